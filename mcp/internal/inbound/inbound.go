// Package inbound answers one question: what may package relay do with the call
// that a server is handling?
//
// Package mcp implements [Call] and hands it to handlers in their context. Package
// relay finds it there. It is internal, so that only these two know the key.
package inbound

import (
	"context"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Call is a request that a server is handling. Its methods are those of the
// functions of package relay, which have the contracts.
type Call interface {
	Notify(ctx context.Context, method string, params jsonrpc.Raw) error
	CheckHeaders(tool string, inputSchema jsonrpc.Raw) error
	// TaskState reports whether the call can become a task or is one, and whether it
	// is one.
	TaskState() (can, is bool)
	KeepTask(state []byte) error
}

// Key is the key of the context value that is the Call.
type Key struct{}

// From returns the call that is being handled, or nil outside of a handler.
func From(ctx context.Context) Call {
	c, _ := ctx.Value(Key{}).(Call)
	return c
}

type nameKey struct{}

// WithName returns a context with a next question that has that name.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// NameFrom returns the name of the next question, or "".
func NameFrom(ctx context.Context) string {
	name, _ := ctx.Value(nameKey{}).(string)
	return name
}

// MetaName is the key of the name of a question in the _meta of its params in
// legacy revisions, which have no name for it.
const MetaName = "farcall.dev/name"
