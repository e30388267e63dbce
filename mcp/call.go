package mcp

import (
	"context"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/inbound"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// call is one request that is being handled. It is the context that handlers get: its own type, for
// with a callctx.Context it would be in a larger size class, 32 bytes for each call
// (TestCallBytes).
type call struct {
	context.Context //nolint:containedctx // it is a context itself

	srv     *Server  // that the client is connected to
	mounted *mounted // the server in it that handles the call; nil: srv itself
	rev     *era.Revision
	session *session    // nil when stateless
	who     *clientMeta // what the client says of itself
	// client is where notifications, and the requests of the legacy era, go.
	client   farcall.Caller
	method   string
	id       jsonrpc.ID
	params   jsonrpc.Raw  // in canonical form
	in       inputs       // what is in them
	logLevel string       // modern: what the request asks for; "" is none
	sent     *jsonrpc.Raw // params before middleware changed them; nil: it did not
	request  *Request     // what middleware sees; nil: there is none
	task     *task        // not nil when it runs as a task
	shown    string       // how the client calls the tool of a nested one
	mayAsk   bool         // its handler may ask the client
	lazy     bool         // what its rounds have brought is opened when the handler needs it
	nested   bool         // it is part of another one, which has its rounds and task: see Transform
	forwards bool         // params are as the client sent them, for the Relay

	mu   sync.Mutex
	over bool  // the handler has returned: params and id are lent to another
	asks *asks // what was asked; nil: nothing yet
}

// newCall returns the call of a request from client. One allocation holds what middleware sees of
// it, too.
func (s *Server) newCall(ctx context.Context, client farcall.Caller, req *farcall.Request) *call {
	var c *call
	if s.middleware.none() {
		c = new(call)
	} else {
		both := new(struct {
			call

			request Request
		})
		c, both.call.request = &both.call, &both.request
	}
	c.derive(ctx).srv, c.client = s, client
	c.method, c.id, c.params = req.Method, req.ID, req.Params
	c.forwards = s.forwards(req.Method)
	return c
}

// end is called when the handler has returned. One that goes on in another
// goroutine has no way to the client any more.
func (c *call) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// caps says what the client can do.
func (c *call) caps() *spec.ClientCapabilities { return &c.who.caps }

type callKey struct{}

// callFrom returns the request that is being handled, or nil outside of a
// handler.
func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// derive makes a context the parent of the call's.
func (c *call) derive(parent context.Context) *call {
	c.Context = parent
	return c
}

// Parent returns the context that c is over.
func (c *call) Parent() context.Context { return c.Context }

// Value implements context.Context.
func (c *call) Value(key any) any {
	if v, ok := c.ContextValue(key); ok {
		return v
	}
	return c.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine.
func (c *call) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// ContextValue returns what the call adds to the values of its parent.
func (c *call) ContextValue(key any) (any, bool) {
	switch key.(type) {
	case callKey, inbound.Key:
		return c, true
	case owner.ContextKey:
		if c.srv.opts.Owner == nil && c.session == nil {
			break // the transport knows, and its answer costs no allocation
		}
		return c.ownerValue(), true
	}
	return nil, false
}

// ownerValue returns the owner as the value of an owner.ContextKey.
func (c *call) ownerValue() any {
	k := c.owner()
	if c.session != nil && k == c.session.owner {
		return &c.session.owner
	}
	return k
}

// server returns the server that handles the call.
func (c *call) server() *Server {
	if c.mounted != nil {
		return c.mounted.inner
	}
	return c.srv
}

// owner returns the owner of what the call leaves behind: its principal, or else its session, or
// else its connection or address.
func (c *call) owner() owner.Key {
	if named := c.srv.opts.Owner; named != nil {
		if k := owner.Named(named(c)); !k.IsZero() {
			return k
		}
	}
	k := owner.From(c.Parent())
	if c.session != nil && !k.Authenticated() {
		return c.session.owner
	}
	return k
}

// ClientInfo says who calls. What it says of itself is not verified.
type ClientInfo struct {
	Name, Version, Title string
	Capabilities         *spec.ClientCapabilities // never nil; not to be changed
	Revision             string                   // of the protocol

	// Session names the session of a client of the legacy era within this process.
	// It is not the one that HTTP has. "": the request stands alone.
	Session string
	// InfoRaw and CapabilitiesRaw are what the client says of itself as JSON in the
	// form of the newest revision. Nil: nothing. They are not to be changed.
	InfoRaw, CapabilitiesRaw jsonrpc.Raw
	// LogLevel is what the client wants logged from. "": nothing.
	LogLevel string
	// ProgressWanted: the request asks for its progress, or is a task, which shows it.
	ProgressWanted bool
}

// ClientFrom returns what is known of the client with a request that is being handled, or nil
// outside of a handler. It is inlined: a caller that only copies the ClientInfo does not allocate
// one.
func ClientFrom(ctx context.Context) *ClientInfo {
	i := new(ClientInfo)
	if !describeClient(ctx, i) {
		return nil
	}
	return i
}

// describeClient is ClientFrom. It reports false outside of a handler.
func describeClient(ctx context.Context, i *ClientInfo) bool {
	c := callFrom(ctx)
	if c == nil {
		return false
	}
	*i = c.who.describe(c.rev)
	i.LogLevel, i.ProgressWanted = c.level(), c.in.progress || c.task.started()
	if c.session != nil {
		i.Session = c.session.name
	}
	return true
}

// describe says of a client what does not depend on the request.
func (m *clientMeta) describe(rev *era.Revision) ClientInfo {
	return ClientInfo{
		Name: m.info.Name, Version: m.info.Version, Title: m.info.Title,
		Capabilities: &m.caps, Revision: rev.Name, InfoRaw: m.infoRaw, CapabilitiesRaw: m.capsRaw,
	}
}

// level is from where on the client wants messages; "": none.
func (c *call) level() string {
	if c.session != nil {
		return c.session.level()
	}
	return c.logLevel
}

// logs reports whether the client wants messages of a severity.
func (c *call) logs(severity int) bool {
	wanted := c.level()
	return wanted != "" && severity >= spec.LogSeverity(wanted)
}

// inputs are the members of params that the server looks at, as they are
// written. Nil: absent.
type inputs struct {
	name, arguments, uri, cursor, task, taskID, responses, state, meta jsonrpc.Raw

	progress bool // meta has a progressToken
}

// member returns where a member goes, or nil.
func (in *inputs) member(name []byte) *jsonrpc.Raw {
	switch string(name) {
	case "name":
		return &in.name
	case "arguments":
		return &in.arguments
	case "_meta":
		return &in.meta
	case "uri":
		return &in.uri
	case "cursor":
		return &in.cursor
	case "task":
		return &in.task
	case "taskId":
		return &in.taskID
	case "inputResponses":
		return &in.responses
	case "requestState":
		return &in.state
	}
	return nil
}

// read finds the members.
func (in *inputs) read(params jsonrpc.Raw) (err error) {
	for key, value := range scan.Members(params) {
		if err = once("params", in.member(key), key, value); err != nil {
			break
		}
	}
	in.progress = in.progressToken() != nil
	return err
}

// progressToken returns the token of the request, or nil. The handler has not
// returned.
func (in *inputs) progressToken() jsonrpc.Raw {
	if token := scan.Member(in.meta, spec.MetaProgressToken); isToken(token) {
		return token
	}
	return nil
}

// once notes the value of a member that matters, unless there is one already.
// What is given twice is refused: anyone who checked the request on its way here may
// have seen the other one.
func once(object string, at *jsonrpc.Raw, key, value []byte) error {
	switch {
	case at == nil:
	case *at == nil:
		*at = value
	default:
		return invalidParams("%s has more than one member %q", object, key)
	}
	return nil
}

// text returns the characters of a member that must be a string.
func text(member string, raw jsonrpc.Raw) ([]byte, error) {
	if len(raw) == 0 {
		return nil, invalidParams("params must have a member %q, a string", member)
	}
	if raw[0] != '"' {
		return nil, invalidParams("the member %q of params must be a string", member)
	}
	return scan.Unquote(raw), nil
}

func invalidParams(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: "+format, args...)
}
