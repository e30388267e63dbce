package playground

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	guideURI   = "playground://guide"
	pictureURI = "playground://picture"
	methodsURI = "playground://methods"
	eventsURI  = "playground://events"
	usersURI   = "playground://users/{user_id}"

	guideText = `# The playground

Tools that do something simple, to try a client with.

- **Functions**: ` + "`math_add`" + `, ` + "`sum`" + `, ` + "`paritosh_echo`" + ` and so on are the methods of the JSON-RPC service, with the same names but for the slash.
- **Demonstrations**: ` + "`demo_form`" + `, ` + "`demo_progress`" + ` and the others show a feature each.
- **Resources**: this text, a picture, the methods, users by their number, and the events, which change: call ` + "`logEvent`" + `.
- **Prompts**: ` + "`tour`" + `, ` + "`calculate`" + ` and ` + "`review_events`" + `.
`
)

func guide() mcp.Resource {
	return mcp.Resource{
		URI: guideURI, Name: "guide", Title: "What there is in the playground", MIMEType: "text/markdown", Size: new(int64(len(guideText))),
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
		URI: methodsURI, Name: "methods", Title: "The methods of the JSON-RPC service", MIMEType: "application/json",
		Description: "The OpenRPC document that rpc.discover answers with: the same functions, called without MCP.",
	}, func(ctx context.Context, _ string) ([]mcp.ResourceContents, error) {
		text, err := farcall.Call[jsonrpc.Raw](ctx, local, "rpc.discover", nil)
		return []mcp.ResourceContents{{Text: string(text)}}, err
	})
	server.AddResource(mcp.Resource{
		URI: eventsURI, Name: "events", Title: "The events that were logged", MIMEType: "application/json",
		Description: "How many events were logged, and the last of them. It changes when logEvent is called; subscribers are notified.",
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
	return string(fmt.Appendf(nil, `{"count":%d,"last":%s}`, s.events, jsonrpc.AppendString(nil, s.lastEvent)))
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
			mcp.Text("Show me around the playground: call one of its functions, one of its demonstrations, and read one of its resources. Explain each step in one sentence.")), nil
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
			mcp.Embed(mcp.ResourceContents{URI: eventsURI, MIMEType: "application/json", Text: s.eventsText()})), nil
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
	b := args["b"]
	if b == "" {
		b = "1"
	}
	for _, o := range operations {
		if o.name == args[argOperation] {
			return says("A calculation", mcp.Text(fmt.Sprintf("Use the tool %s with a = %s and b = %s, and tell me the result.", o.tool, args["a"], b))), nil
		}
	}
	return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: the operation must be add, multiply or subtract")
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
