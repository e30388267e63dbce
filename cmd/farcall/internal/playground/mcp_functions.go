package playground

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// pushing are the methods that call or notify their caller in JSON-RPC, which an
// MCP client does not understand.
var pushing = map[string]bool{"callback": true, "clock/subscribe": true, "clock/unsubscribe": true}

// changing are the methods that change something.
var changing = map[string]bool{"continueChat": true, "logEvent": true}

// addFunctions adds a tool for each method of the mux, which it calls.
func addFunctions(s *mcp.Server, mux *farcall.Mux, local farcall.Caller) {
	for _, m := range mux.Methods() {
		if m.Subscription || pushing[m.Name] {
			continue
		}
		f := &function{m, local}
		if m.Name == "sum" { // takes a list, and a tool an object
			mcp.AddTool(s, f.tool(), f.sum)
			continue
		}
		t := f.tool()
		if t.InputSchema = m.Params; string(m.Params) == "{}" {
			t.InputSchema = jsonrpc.Raw(`{"type":"object"}`)
		}
		s.AddTool(t, func(ctx context.Context, arguments jsonrpc.Raw) (*mcp.ToolResult, error) {
			if arguments == nil {
				return f.call(ctx, nil)
			}
			return f.call(ctx, arguments)
		})
	}
}

// function is a method as a tool.
type function struct {
	farcall.Method
	local farcall.Caller
}

// tool describes the method, but for its input.
func (f *function) tool() mcp.Tool {
	t := mcp.Tool{
		Name: strings.ReplaceAll(f.Name, "/", "_"), Title: f.Summary, Description: f.description(),
		Annotations: readOnly(),
	}
	if changing[f.Name] {
		t.Annotations = &spec.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)}
	}
	switch result := string(f.Result); {
	case f.isText(), result == "{}", result == `{"type":"null"}`:
	case f.Stream:
		t.OutputSchema = jsonrpc.Raw(`{"type":"array","items":` + result + `}`)
	default:
		t.OutputSchema = f.Result
	}
	return t
}

func (f *function) description() string {
	text := f.Summary + "."
	if f.Description != "" {
		text += " " + f.Description
	}
	if f.Stream {
		text += " Each value is reported as progress, and the result is the list of all."
	}
	return text
}

// isText reports whether the result is a string, which goes out as it is.
func (f *function) isText() bool { return string(f.Result) == `{"type":"string"}` && !f.Stream }

type numbers struct {
	Numbers []float64 `json:"numbers" doc:"what to add up"`
}

func (f *function) sum(ctx context.Context, in numbers) (*mcp.ToolResult, error) {
	return f.call(ctx, in.Numbers)
}

// call calls the method and makes a tool's result of its result.
func (f *function) call(ctx context.Context, params any) (*mcp.ToolResult, error) {
	if f.isText() {
		text, err := farcall.Call[string](ctx, f.local, f.Name, params)
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(text)}}, toolError(err)
	}
	values := &progress{ctx: ctx, stream: f.Stream}
	result, err := farcall.Call[jsonrpc.Raw](farcall.OnProgress(ctx, values.take), f.local,
		f.Name, params)
	if err != nil {
		return nil, toolError(err)
	}
	if f.Stream {
		result = append(append(jsonrpc.Raw{'['}, values.all...), ']')
	}
	if string(result) == "null" {
		return &mcp.ToolResult{}, nil
	}
	return &mcp.ToolResult{
		StructuredContent: result, Content: []mcp.Content{mcp.Text(string(result))},
	}, nil
}

// progress passes on what a method reports.
type progress struct {
	ctx    context.Context //nolint:containedctx // of the call
	stream bool
	n      int
	all    []byte // of a stream, with commas between them
}

func (p *progress) take(value jsonrpc.Raw) {
	p.n++
	if !p.stream {
		// Only sleep reports its progress: a sleepProgress.
		var done, total int
		if _, err := fmt.Sscanf(string(value), `{"ms":%d,"of":%d}`, &done, &total); err == nil {
			// a client that is gone cancels the call
			_ = mcp.Progress(p.ctx, float64(done), float64(total),
				fmt.Sprintf("slept for %d of %d ms", done, total))
		}
		return
	}
	if p.n > 1 {
		p.all = append(p.all, ',')
	}
	p.all = append(p.all, value...)
	_ = mcp.Progress(p.ctx, float64(p.n), 0, string(value)) // as above
}

// toolError makes the tool's own failure, for the model to read, of what a method
// answers a wrong call with. Internal errors stay what they are.
func toolError(err error) error {
	wire := new(jsonrpc.Error)
	if !errors.As(err, &wire) || wire.Code == jsonrpc.InternalError {
		return farcall.PassOn(err)
	}
	text := fmt.Sprintf("%s (error %d)", wire.Message, wire.Code)
	if len(wire.Data) > 0 {
		text += ": " + string(wire.Data)
	}
	return errors.New(text)
}

// inProcess returns a caller of the mux that no connection is needed for. Its
// methods are not recorded: the tools that call them are.
func inProcess(mux *farcall.Mux, rpc farcall.Options) farcall.Caller {
	rpc.OnRecord, rpc.Observer = nil, nil
	return farcall.NewClient(&direct{farcall.NewResponder(mux, &rpc)}, nil, nil)
}

// direct is the shortest transport of all.
type direct struct{ responder *farcall.Responder }

// Exchange implements farcall.Exchanger.
func (d *direct) Exchange(ctx context.Context, frame []byte, reply func(frame []byte) error) error {
	answer := d.responder.Respond(ctx, nil, frame, reply)
	if len(answer) == 0 {
		return nil
	}
	return reply(answer)
}

// Close implements farcall.Exchanger.
func (d *direct) Close() error { return nil }

const (
	website = "https://github.com/farcall-dev/farcall"

	instructions = `A playground to try the Model Context Protocol with. Nothing here reaches beyond the process.

- Calculate with math_add, math_subtract, math_multiply, math_sqrt and sum. math_add_stream and text_stream report each value as progress.
- fail fails in the way you choose; sleep takes as long as you say, and can be cancelled.
- The tools demo_* show one feature each: forms, URLs, sampling, roots, progress, logging, tasks and every type of content.
- logEvent changes the resource playground://events: subscribe to that to be notified.`

	icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><path fill="#0d7a5f" d="M1 ` +
		`3h4V1l2 3-2 3V5H1z"/></svg>`
)

// MCP returns a server that offers the playground to language models: the methods
// of mux, which were added by Register, as tools, and what the protocol has
// as well. rpc says how calls are recorded and what becomes of errors.
// Close closes the server, too.
func (s *Service) MCP(
	mux *farcall.Mux, rpc farcall.Options, adjust func(*mcp.ServerOptions),
) *mcp.Server {
	rpc.V1 = false // no revision has it
	o := &mcp.ServerOptions{
		Title:       "farcall playground",
		Description: "Tools, resources and prompts to try the Model Context Protocol with.",
		WebsiteURL:  website,
		Icons: []spec.Icon{
			{Src: dataURI("image/svg+xml", []byte(icon)), MIMEType: "image/svg+xml", Sizes: []string{"any"}},
		},
		Instructions: instructions, Complete: complete, RPC: &rpc, Logger: rpc.Logger,
	}
	if adjust != nil {
		adjust(o)
	}
	server := mcp.NewServer("farcall-playground", mux.Info.Version, o)
	local := inProcess(mux, rpc)
	addFunctions(server, mux, local)
	addQuestions(server)
	addDemos(server)
	s.addResources(server, local)
	s.addPrompts(server)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mcp = server
	return server
}

func dataURI(mime string, data []byte) string {
	return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// readOnly are the hints of a tool that changes nothing and reaches nothing
// outside the process.
func readOnly() *spec.ToolAnnotations {
	return &spec.ToolAnnotations{
		ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true,
		OpenWorldHint: new(false),
	}
}

const (
	guideURI   = "playground://guide"
	pictureURI = "playground://picture"
	methodsURI = "playground://methods"
	eventsURI  = "playground://events"
	usersURI   = "playground://users/{user_id}"

	guideText = `# The playground

Tools that do something simple, to try a client with.

- **Functions**: ` + "`math_add`" + `, ` + "`sum`" + `, ` +
		"`text_stream`" +
		` and so on are the methods of the JSON-RPC service, with the same names but for the slash.
- **Demonstrations**: ` + "`demo_form`" + `, ` +
		"`demo_progress`" + ` and the others show a feature each.
- **Resources**: this text, a picture, the methods, users by their number, and the events, which change: call ` + "`logEvent`" + `.
- **Prompts**: ` + "`tour`" + `, ` + "`calculate`" + ` and ` + "`review_events`" + `.
`
)

func guide() mcp.Resource {
	return mcp.Resource{
		URI: guideURI, Name: "guide", Title: "What there is in the playground", MIMEType: "text/markdown",
		Size:        new(int64(len(guideText))),
		Description: "A short guide to the tools, resources and prompts.",
	}
}

func (s *Service) addResources(server *mcp.Server, local farcall.Caller) {
	server.AddResource(guide(), func(context.Context, string) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{{Text: guideText}}, nil
	})
	server.AddResource(mcp.Resource{
		URI: pictureURI, Name: "picture", Title: "A picture", MIMEType: "image/png",
		Description: "A resource that is not text.",
	}, func(context.Context, string) ([]mcp.ResourceContents, error) {
		data, err := picture()
		return []mcp.ResourceContents{{Blob: data}}, err
	})
	server.AddResource(mcp.Resource{
		URI: methodsURI, Name: "methods", Title: "The methods of the JSON-RPC service",
		MIMEType: "application/json",
		Description: "The OpenRPC document that rpc.discover answers with: the same functions, called " +
			"without MCP.",
	}, func(ctx context.Context, _ string) ([]mcp.ResourceContents, error) {
		text, err := farcall.Call[jsonrpc.Raw](ctx, local, "rpc.discover", nil)
		return []mcp.ResourceContents{{Text: string(text)}}, err
	})
	server.AddResource(mcp.Resource{
		URI: eventsURI, Name: "events", Title: "The events that were logged",
		MIMEType: "application/json",
		Description: "How many events were logged, and the last of them. It changes when logEvent is " +
			"called; subscribers are notified.",
	}, func(context.Context, string) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{{Text: s.eventsText()}}, nil
	})
	server.AddTemplate(mcp.ResourceTemplate{
		URITemplate: usersURI, Name: "user", Title: "A user, by number", MIMEType: "application/json",
		Description: "What getUserProfile answers. user_id is a positive number.",
	}, func(ctx context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
		id, err := strconv.ParseInt(vars.Get("user_id"), 10, 64)
		if err != nil || id <= 0 {
			return nil, mcp.ErrNotFound
		}
		text, err := farcall.Call[jsonrpc.Raw](ctx, local, "getUserProfile", userID{id})
		return []mcp.ResourceContents{{Text: string(text)}}, err
	})
}

// eventsText is the resource of the events.
func (s *Service) eventsText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(
		fmt.Appendf(nil, `{"count":%d,"last":%s}`, s.events, jsonrpc.AppendString(nil, s.lastEvent)))
}

const (
	promptCalculate = "calculate"
	argOperation    = "operation"
)

// operations has the tool of each operation that the prompt calculate knows.
var operations = []struct{ name, tool string }{
	{"add", "math_add"}, {"multiply", "math_multiply"}, {"subtract", "math_subtract"},
}

func (s *Service) addPrompts(server *mcp.Server) {
	server.AddPrompt(mcp.Prompt{
		Name: "tour", Title: "Take a tour",
		Description: "Shows what the playground has. It takes no arguments.",
	}, func(context.Context, map[string]string) (*mcp.PromptResult, error) {
		return says("What the playground has",
			mcp.Text(
				"Show me around the playground: call one of its functions, one of its demonstrations, and "+
					"read one of its resources. Explain each step in one sentence.")), nil
	})
	server.AddPrompt(mcp.Prompt{
		Name: promptCalculate, Title: "Calculate with two numbers",
		Description: "Asks for a calculation, to be done with a tool.",
		Arguments: []spec.PromptArgument{
			{Name: argOperation, Description: "add, multiply or subtract", Required: true},
			{Name: "a", Description: "the first number", Required: true},
			{Name: "b", Description: "the second number; 1 when left out"},
		},
	}, calculate)
	server.AddPrompt(mcp.Prompt{
		Name: "review_events", Title: "Review the events",
		Description: "Asks what has happened, and brings the events along as an embedded resource.",
	}, func(context.Context, map[string]string) (*mcp.PromptResult, error) {
		return says("What has happened",
			mcp.Text("These are the events that were logged in the playground. Sum them up."),
			mcp.Embed(
				mcp.ResourceContents{URI: eventsURI, MIMEType: "application/json", Text: s.eventsText()})), nil
	})
}

func says(description string, contents ...mcp.Content) *mcp.PromptResult {
	r := &mcp.PromptResult{Description: description}
	for _, c := range contents {
		r.Messages = append(r.Messages, mcp.PromptMessage{Role: "user", Content: c})
	}
	return r
}

func calculate(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
	b := cmp.Or(args["b"], "1")
	for _, o := range operations {
		if o.name == args[argOperation] {
			return says("A calculation",
				mcp.Text(fmt.Sprintf("Use the tool %s with a = %s and b = %s, and tell me the result.", o.tool,
					args["a"], b))), nil
		}
	}
	return nil, jsonrpc.Errorf(jsonrpc.InvalidParams,
		"Invalid params: the operation must be add, multiply or subtract")
}

// complete suggests operations and users.
func complete(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
	r := &spec.CompleteResult{Completion: spec.Completion{Values: []string{}}}
	add := func(value string) {
		if strings.HasPrefix(value, p.Argument.Value) {
			r.Completion.Values = append(r.Completion.Values, value)
		}
	}
	switch {
	case p.Ref.Name == promptCalculate && p.Argument.Name == argOperation:
		for _, o := range operations {
			add(o.name)
		}
	case p.Ref.URI == usersURI && p.Argument.Name == "user_id":
		for n := range 200 {
			add(strconv.Itoa(n + 1))
		}
	}
	return r, nil
}
