package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
)

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
	responder := farcall.NewResponder(mux, &farcall.Options{Logger: s.opts.Logger, Interceptors: []farcall.Interceptor{holdFailures}})
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
			return jsonrpc.Errorf(jsonrpc.TooLarge, "%s has yielded more than %d MB; ask for less", m.Name, maxStreamed/1_000_000)
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
		if err == nil || remote.Own(err) != nil || errors.Is(err, farcall.ErrNoCallback) || ctx.Err() != nil {
			return v, err
		}
		return v, &jsonrpc.Error{Code: jsonrpc.Timeout, Cause: muxError{err}} // any code that is not logged
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
