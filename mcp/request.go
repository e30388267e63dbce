package mcp

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Request is a request of the protocol in the form of the newest revision, as middleware and
// handlers see it. It is valid until they return. The bytes of its fields are not to be changed:
// middleware replaces the whole value, and only before it calls next.
type Request struct {
	// Method is the method, such as "tools/call". Changing it has no effect.
	Method string
	// Name is the name of the tool or prompt, or the URI of the resource. "": the method has none.
	Name string
	// Arguments are those of the tool or prompt as the client sent them: they are checked
	// after the middleware. Nil: none.
	Arguments jsonrpc.Raw
	// Meta is the _meta of the request, an object. Nil: none.
	Meta jsonrpc.Raw

	in       *inputs      // what is in the params
	sent     *jsonrpc.Raw // params before they were changed; nil: they were not
	response Response

	call   *call // in a server; that of newCall has none before middleware is around it
	method *method
	req    *farcall.Request
	out    *outgoing // in a client

	mu       sync.Mutex // held while next runs
	running  atomic.Bool
	tried    bool // next has run
	answered bool // response has been returned
	over     bool // the middleware has returned
}

// RequestFrom returns the request that is being handled, as middleware has left it, or nil outside
// of a handler.
func RequestFrom(ctx context.Context) *Request {
	c := callFrom(ctx)
	if c == nil || c.isOver() {
		return nil
	}
	if r := c.request; r != nil && r.call != nil {
		return r
	}
	return c.fillRequest(new(Request))
}

func (c *call) fillRequest(r *Request) *Request {
	r.Method, r.in, r.call = c.method, &c.in, c
	r.fill(c.knownName())
	return r
}

// fill sets the fields. name is the Name, if it is known as a string already.
func (r *Request) fill(name string) {
	if name == "" {
		name = string(r.in.nameIn(r.Method))
	}
	r.Name, r.Meta = name, r.in.meta
	if argumentsMember(r.Method) != "" {
		r.Arguments = r.in.arguments
	}
}

// nameMember returns the member of params that is the Name of a request, or "".
func nameMember(method string) string {
	switch method {
	case spec.MethodToolsCall, spec.MethodPromptsGet:
		return "name"
	case spec.MethodResourcesRead, spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe:
		return "uri"
	}
	return ""
}

// argumentsMember returns the member of params that is the Arguments of a request, or "".
func argumentsMember(method string) string {
	if method == spec.MethodToolsCall || method == spec.MethodPromptsGet {
		return "arguments"
	}
	return ""
}

// nameIn returns the characters of the member that is the Name of a request, or nil if it is no
// string.
func (in *inputs) nameIn(method string) []byte {
	var raw jsonrpc.Raw
	switch nameMember(method) {
	case "name":
		raw = in.name
	case "uri":
		raw = in.uri
	}
	if len(raw) > 0 && raw[0] == '"' {
		return scan.Unquote(raw)
	}
	return nil
}

// knownName returns the Name from what the server offers, which costs no allocation.
func (c *call) knownName() string {
	s, key := c.server(), c.in.nameIn(c.method)
	switch c.method {
	case spec.MethodToolsCall:
		return s.tools.interned(key)
	case spec.MethodPromptsGet:
		return s.prompts.interned(key)
	}
	return s.resources.interned(key)
}

// apply makes params of what middleware has changed.
func (r *Request) apply() error {
	type change struct {
		field, key string
		value      jsonrpc.Raw
	}
	var changes []change
	if r.Name != string(r.in.nameIn(r.Method)) {
		changes = append(changes, change{"Name", nameMember(r.Method), scan.AppendQuoted(nil, r.Name)})
	}
	key := argumentsMember(r.Method)
	if key != "" && !same(r.Arguments, r.in.arguments) || key == "" && r.Arguments != nil {
		changes = append(changes, change{"Arguments", key, r.Arguments})
	}
	if !same(r.Meta, r.in.meta) {
		changes = append(changes, change{"Meta", "_meta", r.Meta})
	}
	if len(changes) == 0 {
		return nil
	}
	params := r.Params()
	for _, c := range changes {
		if c.key == "" {
			return &middlewareError{fmt.Errorf("set the %s of %q, which has none", c.field, r.Method)}
		}
		if c.field != "Name" {
			var err error
			if c.value, err = objectOf(c.value); err != nil {
				return &middlewareError{fmt.Errorf("set the %s of %q: %w", c.field, r.Method, err)}
			}
		}
		o := object.New(params, c.key)
		if c.value != nil {
			o.Add(c.key, c.value)
		}
		params = o.End()
	}
	if r.sent == nil {
		sent := r.Params()
		r.sent = &sent
	}
	var in inputs
	if err := in.read(params); err != nil {
		return err
	}
	if r.call != nil {
		r.call.params = params
	} else {
		r.out.params = params
	}
	*r.in, r.Arguments, r.Meta = in, in.arguments, in.meta
	if key == "" {
		r.Arguments = nil
	}
	return nil
}

// same reports whether a is b, and not another value that is equal.
func same(a, b jsonrpc.Raw) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// Params returns all of the params. What middleware changes is in them once it has called next.
// They are not to be changed.
func (r *Request) Params() jsonrpc.Raw {
	if r.call != nil {
		return r.call.params
	}
	return r.out.params
}

// Respond returns a Response with a result that is v, which marshals to an object: a *[ToolResult],
// a *[PromptResult] or a *spec.ListToolsResult, for example.
func (r *Request) Respond(v any) (*Response, error) {
	raw, err := objectOf(v)
	if err != nil {
		return nil, &middlewareError{fmt.Errorf("answered %q with what is no result: %w", r.Method, err)}
	}
	return &Response{answer{raw: object.OrEmpty(raw)}}, nil
}

// ID returns the id of the request. In a client there is none yet.
func (r *Request) ID() jsonrpc.ID {
	if r.call == nil {
		return jsonrpc.ID{}
	}
	return r.call.id
}

// Continues reports whether the request is a further round of a call: a
// limit of calls, for example, does not count it again.
func (r *Request) Continues() bool { return r.call != nil && r.call.continues() }

// Client says who calls, as [ClientFrom] does. It returns nil in a client.
func (r *Request) Client() *ClientInfo {
	if r.call == nil {
		return nil
	}
	return ClientFrom(r.call)
}

// Session returns the session of the request. It is nil in revisions without sessions, and in a
// client.
func (r *Request) Session() *Session {
	if r.call == nil || r.call.session == nil {
		return nil
	}
	return &r.call.session.public
}

// Owner returns an opaque text that is equal for equal owners only: the authenticated caller (see
// ServerOptions.Owner), else its session, its connection, or its address. It is a key for maps, and
// not for logs. "": unknown.
func (r *Request) Owner() string {
	if r.call == nil {
		return ""
	}
	return r.call.owner().Text()
}

// Header returns the header of the HTTP request that carries this one, or nil on other transports
// and in a client.
func (r *Request) Header() http.Header {
	if r.call == nil {
		return nil
	}
	if over := mcphttp.RequestFrom(r.call); over != nil {
		return over.Header
	}
	return nil
}
