// Package relay answers one question: how does a server forward what it is asked,
// instead of answering it?
//
// A gateway needs it, and a server with its own tools does not. A [Relay] in
// mcp.ServerOptions answers for a server that serves nothing itself. A [Forward]
// is a call that mcp.Client.Forward makes for another client. The functions work on
// the call that a handler is answering, like those of package mcp, but on bytes.
//
// Package relay lies below package mcp, which implements both ends.
package relay

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/inbound"
)

// Notify sends the client with a request that is being handled a notification that
// belongs to the request: notifications/message, when the client wants messages
// of that level, or notifications/progress, with the progressToken of the
// request, when it has one. params are an object in the form of the newest
// revision. Any other notification is sent as it is, to clients with a revision that
// has it.
//
// The progress of a task becomes its statusMessage, too: see mcp.Progress. Notify
// does nothing outside of a handler and when that has returned. It fails when a
// message has no level, and when the client is gone.
func Notify(ctx context.Context, method string, params jsonrpc.Raw) error {
	c := inbound.From(ctx)
	if c == nil {
		return nil
	}
	return c.Notify(ctx, method, params)
}

// CheckHeaders compares the headers of the HTTP request that is being handled, a
// tools/call, with its arguments, where the input schema of the tool wants them
// repeated. Its error is the client's answer. It does nothing outside of a handler,
// and for clients with a transport or revision that does not repeat arguments (2026-07-28,
// Streamable HTTP, "Server Behavior for Custom Headers").
func CheckHeaders(ctx context.Context, tool string, inputSchema jsonrpc.Raw) error {
	c := inbound.From(ctx)
	if c == nil {
		return nil
	}
	return c.CheckHeaders(tool, inputSchema)
}

// TaskState says what a call has to do with tasks.
type TaskState int

// The states of a call. A call goes from MayBecomeTask to IsTask, and never back.
const (
	NoTask        TaskState = iota // it is answered directly
	MayBecomeTask                  // mcp.StartTask makes it a task
	IsTask                         // mcp.Ask waits for the answer of the client
)

// TaskOf returns the state of the call that is being handled. Outside of a handler
// it is NoTask.
func TaskOf(ctx context.Context) TaskState {
	c := inbound.From(ctx)
	if c == nil {
		return NoTask
	}
	switch can, is := c.TaskState(); {
	case is:
		return IsTask
	case can:
		return MayBecomeTask
	}
	return NoTask
}

// maxKept bounds what KeepTask takes, in bytes.
const maxKept = 4 << 10

// KeepTask stores with the task that is being handled, or that the call may become, what
// [Resumer].ResumeTask needs to go on with it in another process: at most 4 KiB. It is called
// before mcp.StartTask. It does nothing outside of a handler, for a call that cannot be a task, and
// for one with tasks that end with the process (see mcp.ServerOptions.Tasks). It fails when the
// store does.
func KeepTask(ctx context.Context, state []byte) error {
	if len(state) > maxKept {
		return fmt.Errorf("relay: the state of a task has %d bytes, more than %d", len(state), maxKept)
	}
	c := inbound.From(ctx)
	if c == nil {
		return nil
	}
	return c.KeepTask(state)
}

// Named returns a context. The next question with it (mcp.Ask, mcp.Elicit and others) has
// that name among the input requests of a call, where the client sees it. Without
// it questions get names by what they ask. Questions of one call that are asked at
// the same time need different names.
func Named(ctx context.Context, name string) context.Context { return inbound.WithName(ctx, name) }

// maxName bounds the names that QuestionName takes from a server, in bytes.
const maxName = 64

// QuestionName returns the name that a server of a legacy revision has given to its
// question with [Named], or "" when there is none or it is longer than 62 bytes. params
// are those of the question.
func QuestionName(params jsonrpc.Raw) string {
	raw := scan.Member(scan.Member(params, "_meta"), inbound.MetaName)
	if len(raw) < 2 || raw[0] != '"' || len(raw) > maxName {
		return ""
	}
	return string(scan.Unquote(raw))
}
