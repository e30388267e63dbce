package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// tool is a tool that a server offers.
type tool struct {
	spec    Tool
	input   *validate.Schema
	typed   bool             // run reads null as the absence of an argument
	output  *validate.Schema // nil: nothing to check
	headers []schema.Header
	relaxed atomic.Uint32 // what of relaxing is in the log already
	// run calls the tool with arguments that fit its input schema. The error is
	// the handler's.
	run func(c *call, t *tool, arguments jsonrpc.Raw) (answer, error)
	part[*tool]

	// the tool as it was added, when a Transform shows it in another form; else nil
	from    *tool
	form    *arguments.Form // what makes its arguments out of those of the form that is shown
	wrapped ToolHandler     // runs in place of the tool (Transform.Wrap); nil: the tool
}

func (t *tool) key() string  { return t.spec.Name }
func (t *tool) kind() string { return "tool" }

func (t *tool) shown() (modern, legacy any) {
	own := t.spec
	own.Execution = nil // there it is the server that decides
	return own, t.spec
}

func (t *tool) under(m *mounted) *tool {
	own := &tool{spec: t.spec, headers: t.headers, part: part[*tool]{m, t}}
	if own.spec.Name = m.named(t.spec.Name); !validToolName(own.spec.Name) {
		misuse("the tool %q of %s: as %q its name has more than 128 characters; choose a shorter prefix",
			t.spec.Name, m.inner.label(), own.spec.Name)
	}
	m.server.noteTasks(own)
	return own
}

func (t *tool) visible(ctx context.Context, s *Server) bool { return visible(ctx, s, t, t.part) }

// noteTasks notes that there are tasks when the tool runs as one.
func (s *Server) noteTasks(t *tool) {
	if support := t.taskSupport(); support == spec.TaskOptional || support == spec.TaskRequired {
		s.taskTools.Store(true)
	}
}

// A ToolHandler runs a tool. The arguments fit the tool's input schema; they are
// valid until the handler returns.
//
// An error that is, or wraps, a *jsonrpc.Error is answered as such: the call was
// wrong. Any other error is the tool's own: its text is the result, with IsError,
// for the model to read, or, if it is a *[ToolError], the Result of that.
type ToolHandler func(ctx context.Context, arguments jsonrpc.Raw) (*ToolResult, error)

// AddTool adds a tool with a given input schema, and an output schema if it has
// one. Arguments and structured content that do not fit them are refused, as in
// the function [AddTool]. A tool of the same name is replaced.
//
// AddTool panics when the name is invalid (1 to 128 of A-Z a-z 0-9 _ - . and no
// other character) and when a schema is not valid.
func (s *Server) AddTool(t Tool, h ToolHandler) {
	if h == nil {
		misuse("the tool %q needs a handler", t.Name)
	}
	s.addTool(&tool{spec: t, run: func(c *call, t *tool, arguments jsonrpc.Raw) (answer, error) {
		r, err := h(c, arguments)
		if err != nil {
			return answer{}, err
		}
		return t.result(r)
	}}, true)
}

// addTool compiles the schemas and adds the tool. check says whether its output
// needs to be validated.
func (s *Server) addTool(t *tool, check bool) {
	if !validToolName(t.spec.Name) {
		misuse("the tool name %q must be 1 to 128 characters of A-Z a-z 0-9 _ - and .", t.spec.Name)
	}
	var err error
	if t.spec.InputSchema, err = objectSchema(t.spec.InputSchema); err != nil {
		misuse("the input schema of the tool %q %v", t.spec.Name, err)
	}
	if t.input, err = validate.Compile(t.spec.InputSchema,
		validate.Limits{OptionalNulls: t.typed}); err != nil {
		misuse("the input schema of the tool %q: %v", t.spec.Name, err)
	}
	if t.headers, err = schema.Headers(t.spec.InputSchema); err != nil {
		misuse("the input schema of the tool %q: %v", t.spec.Name, err)
	}
	if t.spec.OutputSchema != nil {
		output, err := validate.Compile(t.spec.OutputSchema, validate.Limits{})
		if err != nil {
			misuse("the output schema of the tool %q: %v", t.spec.Name, err)
		}
		if check && !s.opts.SkipOutputValidation {
			t.output = output
		}
	}
	s.noteTasks(t)
	s.tools.add(s, t)
}

// objectSchema returns an input schema that says that it is about an object: in
// every revision it must, and there are clients that refuse a whole list for one
// tool with a schema that does not.
func objectSchema(schema jsonrpc.Raw) (jsonrpc.Raw, error) {
	if schema == nil {
		schema = jsonrpc.Raw("{}")
	}
	i := scan.Space(schema, 0)
	if i == len(schema) || schema[i] != '{' {
		return nil, errors.New("is no object")
	}
	switch kind := scan.Member(schema, "type"); string(kind) {
	case `"object"`:
		return schema, nil
	case "":
		o := object.New(nil)
		o.Add("type", jsonrpc.Raw(`"object"`))
		return o.AddAll(schema).End(), nil
	default:
		return nil, fmt.Errorf(`has the type %s; it must be "object"`, kind)
	}
}

// RemoveTool removes a tool. Calls that run already go on.
func (s *Server) RemoveTool(name string) { s.tools.remove(s, name) }

func validToolName(name string) bool {
	return len(name) > 0 && len(name) <= 128 && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' &&
			r != '-' && r != '.'
	}) < 0
}

func (s *Server) listTools(c *call) (answer, error) { return s.tools.page(s, c) }

// callTool serves tools/call.
func (s *Server) callTool(c *call) (answer, error) {
	name, err := text("name", c.in.name)
	if err != nil {
		return answer{}, err
	}
	t, ok := s.tools.find(c, s, name)
	if !ok {
		// 2026-07-28, server/tools, "Error Handling": a protocol error.
		return answer{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown tool: %s", name)
	}
	if len(c.in.arguments) > 0 && c.in.arguments[0] != '{' {
		if string(c.in.arguments) != "null" {
			return answer{}, invalidParams("the member %q of params must be an object", "arguments")
		}
		c.in.arguments = nil
	}
	if len(t.headers) > 0 && c.rev.MirroredHeaders && c.mounted == nil {
		// or the outer server has compared them
		if err := c.compareHeaders(t.spec.Name, t.headers); err != nil {
			return answer{}, err
		}
	}
	switch {
	case t.of != nil && t.from == nil:
		return t.of.serve(c, t.base.key(), (*Server).callTool)
	case c.nested:
		a, err := t.call(c)
		return toolOutcome(c, a, err)
	}
	if asTask, err := c.wantsTask(c.shownName(t), t.taskSupport()); err != nil {
		return answer{}, err
	} else if asTask {
		raw, err := s.startTask(c, t.startsLater(s), func(own *call) (jsonrpc.Raw, error) {
			a, err := t.call(own)
			a, err = toolOutcome(own, a, err)
			return a.raw, err
		})
		return answer{raw: raw}, err
	}
	if err := s.openAsks(c); err != nil {
		return answer{}, err
	}
	a, err := t.call(c)
	if raw, asked := c.inputRequired(); asked {
		return answer{raw: raw}, nil
	}
	return toolOutcome(c, a, err)
}

// call validates the arguments and runs the tool.
func (t *tool) call(c *call) (answer, error) {
	var arguments jsonrpc.Raw
	err := t.form.Check(c.in.arguments)
	if err == nil {
		arguments, err = t.arguments(c)
	}
	if err != nil {
		return toolError("Invalid arguments for the tool " + c.shownName(t) + ": " + err.Error()), nil //nolint:nilerr // the model is to read it
	}
	if err := t.permitted(c, object.OrEmpty(c.in.arguments), arguments); err != nil {
		return answer{}, err
	}
	return t.run(c, t, arguments)
}

// toolOutcome makes of a handler's error what the wire has for it.
func toolOutcome(ctx context.Context, a answer, err error) (answer, error) {
	if err == nil {
		return a, nil
	}
	if ctx.Err() != nil {
		return answer{}, ctx.Err() // no caller waits for it
	}
	if remote.Own(err) != nil {
		return answer{}, err
	}
	a, ok := ownResult(err)
	if !ok {
		a = toolError(err.Error())
	}
	a.failure = err
	return a, nil
}

// ownResult returns the result of a *ToolError.
func ownResult(err error) (a answer, ok bool) {
	own, ok := err.(*ToolError) //nolint:errorlint // what wraps one has more to say: its text
	if !ok || own.Result == nil {
		return answer{}, false
	}
	r := *own.Result
	r.IsError, r.ResultType = true, ""
	r.Meta = maps.Clone(r.Meta)
	delete(r.Meta, spec.MetaServerInfo) // that of the server which the handler has called
	return answer{raw: r.AppendJSON(nil), plain: len(r.Meta) == 0}, true
}

// toolError returns a result that tells the model what went wrong.
func toolError(message string) answer {
	out := jsonrpc.AppendString([]byte(`{"content":[{"type":"text","text":`), message)
	return answer{raw: append(out, `}],"isError":true}`...), plain: true}
}

// result checks a handler's result and writes it.
func (t *tool) result(r *ToolResult) (answer, error) {
	if r == nil {
		r = &ToolResult{}
	}
	if t.output != nil && !r.IsError && (r.ResultType == "" || r.ResultType == spec.ResultComplete) {
		if r.StructuredContent == nil {
			return answer{}, t.badOutput(
				errors.New("there is no structured content, though the tool has an output schema"))
		}
		if err := t.output.Validate(r.StructuredContent); err != nil {
			return answer{}, t.badOutput(err)
		}
	}
	return answer{raw: r.AppendJSON(nil), plain: r.ResultType == "" && r.Meta == nil}, nil
}

// badOutput is the error for a result that is not what the tool promises. What
// is wrong with it is for the log: it is the tool that must be changed.
func (t *tool) badOutput(err error) error {
	return &jsonrpc.Error{
		Code: jsonrpc.InternalError,
		Message: "Internal error: the result of the tool " + t.spec.Name +
			" does not fit its output schema",
		Cause: err,
	}
}

// CheckHeaders is relay.CheckHeaders.
func (c *call) CheckHeaders(tool string, inputSchema jsonrpc.Raw) error {
	if !c.rev.MirroredHeaders || !bytes.Contains(inputSchema, []byte(schema.HeaderKeyword)) {
		return nil
	}
	headers, err := schema.Headers(inputSchema)
	if err != nil {
		return nil //nolint:nilerr // clients do not take such a tool, or they repeat nothing
	}
	return c.compareHeaders(tool, headers)
}

func (c *call) compareHeaders(tool string, headers []schema.Header) error {
	r := mcphttp.RequestFrom(c)
	if r == nil {
		return nil
	}
	given := c.in.arguments
	if c.sent != nil {
		given = scan.Member(*c.sent, "arguments")
	}
	if err := arguments.CheckHeaders(headers, r.Header, given); err != nil {
		return &jsonrpc.Error{
			Code: spec.HeaderMismatch,
			Message: fmt.Sprintf("Header mismatch: %v; see the input schema of the tool %s in tools/list",
				err, tool),
		}
	}
	return nil
}

// A Tolerance says what becomes of arguments that do not fit the input schema of
// their tool.
type Tolerance int

const (
	// Lenient also takes what models write: a number or a boolean in quotation marks,
	// where the schema has no text, and members that the schema does not have, which
	// are dropped. The log says so once for each tool and kind. A guard with policies that look at
	// arguments decides about those that the tool gets as well as about those that came.
	Lenient Tolerance = iota
	// Strict refuses them.
	Strict
)

// arguments returns the arguments of a call as they fit the input schema, or the
// reason why they do not.
func (t *tool) arguments(c *call) (jsonrpc.Raw, error) {
	given := object.OrEmpty(c.in.arguments)
	err := t.input.Validate(given)
	if err == nil || c.strict() {
		return given, err
	}
	relaxed, changed := arguments.Relax(t.spec.InputSchema, given)
	if changed == 0 || t.input.Validate(relaxed) != nil {
		return nil, err
	}
	if before := t.relaxed.Or(changed); before&changed != changed {
		c.srv.logger().WarnContext(c,
			"mcp: arguments do not fit the tool's input schema and were taken all the same; "+
				"ServerOptions.Arguments: Strict refuses them",
			"tool", t.spec.Name, "reason", err.Error())
	}
	return relaxed, nil
}

// permitted asks the guard in front, if any, about arguments that it has not seen: a policy that
// forbids true must not be passed by "true".
func (t *tool) permitted(c *call, given, relaxed jsonrpc.Raw) error {
	if bytes.Equal(given, relaxed) {
		return nil
	}
	permitted := permit.From(c)
	if permitted == nil {
		return nil
	}
	params := jsonrpc.AppendString(
		[]byte(`{"_meta":{"`+spec.MetaProtocolVersion+`":"`+era.Latest().Name+`"},"name":`), c.shownName(t))
	params = append(append(params, `,"arguments":`...), relaxed...)
	return permitted(c, spec.MethodToolsCall, append(params, '}'))
}

// FromMux returns a server with a tool for each method that mux has now. The tool math_add calls
// the method math/add; its arguments are the members of the params. Params that are a list are the
// one argument params, and params that a method does not describe are any object. Values of a
// stream are reported as progress, and together they are the result, of 10 MB at most.
// Subscriptions become no tools: their events have no end.
//
// An error of a method is the tool's, for the model to read; an internal error stays one. A method
// that calls its caller back gets farcall.ErrNoCallback; in its place it may use [Elicit] and its
// like, as its context is that of a tool's handler. Interceptors of mux surround the calls. FromMux
// panics when two methods make one name.
func FromMux(mux *farcall.Mux, o *ServerOptions) *Server {
	s := NewServer(cmp.Or(mux.Info.Title, "JSON-RPC service"), cmp.Or(mux.Info.Version, "0.0.0"), o)
	responder := farcall.NewResponder(mux,
		&farcall.Options{Logger: s.opts.Logger, Interceptors: []farcall.Interceptor{holdFailures}})
	methods := map[string]string{}
	for _, m := range mux.Methods() {
		if m.Subscription {
			continue
		}
		t := &muxTool{Method: m, responder: responder}
		name := toolNameOf(m.Name)
		if other, ok := methods[name]; ok {
			misuse("the methods %q and %q make one tool, %q: rename one of them", other, m.Name, name)
		}
		methods[name] = m.Name
		s.AddTool(t.tool(name), t.call)
	}
	return s
}

// toolNameOf makes of a method's name one that a tool may have.
func toolNameOf(method string) string {
	name := strings.Map(func(r rune) rune {
		if validToolName(string(r)) {
			return r
		}
		return '_'
	}, method)
	return name[:min(len(name), 128)]
}

// maxStreamed bounds the values of a stream that are one result.
const maxStreamed = 10_000_000

// muxTool is a method as a tool.
type muxTool struct {
	farcall.Method
	responder *farcall.Responder
	list      bool // the params are the argument params
	text      bool // the result is a text, and no structured content
}

func (m *muxTool) tool(name string) Tool {
	t := Tool{Name: name, Description: strings.TrimSpace(m.Summary + "\n\n" + m.Description)}
	switch kind := string(scan.Member(m.Params, "type")); kind {
	case `"object"`:
		t.InputSchema = m.Params
	case `"null"`:
		t.InputSchema = jsonrpc.Raw(`{"type":"object","additionalProperties":false}`)
	case "":
		t.InputSchema = jsonrpc.Raw(`{"type":"object"}`)
	default:
		m.list = true
		o := object.New(nil)
		o.Add("type", jsonrpc.Raw(`"object"`))
		o.Add("properties", object.With(nil, "params", m.Params))
		o.Add("required", jsonrpc.Raw(`["params"]`))
		o.Add("additionalProperties", jsonrpc.Raw("false"))
		t.InputSchema = o.End()
	}
	switch kind := string(scan.Member(m.Result, "type")); {
	case m.Stream && m.Result != nil:
		o := object.New(nil)
		o.Add("type", jsonrpc.Raw(`"array"`))
		o.Add("items", m.Result)
		t.OutputSchema = o.End()
	case kind == `"string"`:
		m.text = true
	case kind != "" && kind != `"null"`:
		t.OutputSchema = m.Result
	}
	return t
}

// call calls the method.
func (m *muxTool) call(ctx context.Context, arguments jsonrpc.Raw) (*ToolResult, error) {
	if m.list {
		arguments = scan.Member(arguments, "params")
	} else if string(scan.Member(m.Params, "type")) == `"null"` {
		arguments = nil
	}
	var values []byte
	count := 0
	err := m.responder.Stream(ctx, m.Name, arguments, func(value jsonrpc.Raw) error {
		if count++; count > 1 {
			values = append(values, ',')
		}
		values = append(values, value...)
		switch {
		case !m.Stream:
			return nil
		case len(values) > maxStreamed:
			return jsonrpc.Errorf(jsonrpc.TooLarge, "%s has yielded more than %d MB; ask for less", m.Name,
				maxStreamed/1_000_000)
		}
		return Progress(ctx, float64(count), 0, string(value))
	})
	switch {
	case err != nil:
		return nil, m.failure(ctx, err)
	case m.Stream:
		values = append(append([]byte{'['}, values...), ']')
	case m.text && len(values) > 0 && values[0] == '"':
		return &ToolResult{Content: []Content{Text(string(scan.Unquote(values)))}}, nil
	case string(values) == "null":
		return &ToolResult{}, nil
	}
	return &ToolResult{Content: []Content{Text(string(values))}, StructuredContent: values}, nil
}

// A muxError is an error of a method that its caller is not told. It goes through the Responder,
// which would log it, to the server, which does.
type muxError struct{ error }

func (f muxError) Unwrap() error { return f.error }

func holdFailures(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		v, err := next.ServeRPC(ctx, r)
		if err == nil || remote.Own(err) != nil || errors.Is(err, farcall.ErrNoCallback) ||
			ctx.Err() != nil {
			return v, err
		}
		// any code that is not logged
		return v, &jsonrpc.Error{Code: jsonrpc.Timeout, Cause: muxError{err}}
	})
}

// failure makes the tool's own error of what a method answers a wrong call with.
func (m *muxTool) failure(ctx context.Context, err error) error {
	if held, ok := errors.AsType[muxError](err); ok {
		if errors.Is(held, ErrAsked) {
			return held.error
		}
		return &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Cause: held.error}
	}
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code == jsonrpc.InternalError || ctx.Err() != nil {
		return err
	}
	text := fmt.Sprintf("%s (error %d)", wire.Message, wire.Code)
	if len(wire.Data) > 0 {
		text += ": " + string(wire.Data)
	}
	return errors.New(text)
}
