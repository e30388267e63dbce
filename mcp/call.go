package mcp

import (
	"context"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// call is one request that is being handled. It is the context that handlers
// get: an own type, because a call must not cost the allocations of
// context.WithValue.
type call struct {
	context.Context //nolint:containedctx // this is a context itself

	srv     *Server
	rev     *era.Revision
	session *session                 // nil when stateless
	caps    *spec.ClientCapabilities // never nil
	info    spec.Implementation      // of the client
	// client is where notifications, and the requests of the legacy era, go.
	client   farcall.Caller
	method   string
	id       jsonrpc.ID
	params   jsonrpc.Raw // in canonical form
	in       inputs      // what is in them
	logLevel string      // modern: what the request asks for; "" is none
	asks     *asks       // nil unless modern and the method may ask
	task     *task       // not nil when it runs as a task
}

type callKey struct{}

// callFrom returns the request that is being handled, or nil outside of a
// handler.
func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine.
func (c *call) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// ClientInfo says who calls. What it says of itself is not verified.
type ClientInfo struct {
	Name, Version, Title string
	Capabilities         *spec.ClientCapabilities // never nil; not to be changed
	Revision             string                   // of the protocol
}

// ClientFrom returns what is known of the client whose request is being handled,
// or nil outside of a handler.
func ClientFrom(ctx context.Context) *ClientInfo {
	c := callFrom(ctx)
	if c == nil {
		return nil
	}
	return &ClientInfo{
		Name: c.info.Name, Version: c.info.Version, Title: c.info.Title,
		Capabilities: c.caps, Revision: c.rev.Name,
	}
}

// inputs are the members of params that the server looks at, as they are
// written. Nil: absent.
type inputs struct {
	name, arguments, uri, cursor, task, responses, state, meta jsonrpc.Raw
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
	case "inputResponses":
		return &in.responses
	case "requestState":
		return &in.state
	}
	return nil
}

// read finds the members. One that is given twice is refused: whoever checked
// the request on its way here may have seen the other one.
func (in *inputs) read(params jsonrpc.Raw) error {
	var twice string
	scan.Object(params, func(key, value []byte) bool {
		at := in.member(key)
		if at == nil {
			return true
		}
		if *at != nil {
			twice = string(key)
			return false
		}
		*at = value
		return true
	})
	if twice != "" {
		return invalidParams("params has more than one member %q", twice)
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
