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
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/inbound"
	"github.com/farcall-dev/farcall/mcp/spec"
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

// A Relay answers for a Server that serves nothing itself, as a gateway does:
// see mcp.ServerOptions.Relay. Its methods may be called by any number of goroutines
// at once. mcp.ClientFrom works in all of them but Closed.
type Relay interface { //nolint:interfacebloat // who answers for a server does all that a server does
	// Describe says what is offered, to a client that begins. Other requests of the
	// client do not wait for it, but the client does. Nil: nothing is offered. An error
	// is the client's answer: there is nothing to begin with.
	Describe(ctx context.Context) (*Description, error)
	// Forward answers a method that lists, calls, reads, gets or completes, and
	// every method that MCP does not define. params are in the revision rev, as the
	// client sent them, but for the member "task" of the legacy era; they are valid
	// until Forward returns. The result is the server's then: an object in the
	// revision in, from which it is translated to that of the client; nil is the
	// newest one. A modern result that has a resultType is passed to clients of that
	// era as it is.
	//
	// ctx is that of a tool's handler: mcp.Ask, Once, Log, Progress, StartTask,
	// ClientFrom and the functions of this package work. The error that Ask returns is
	// to be returned. The requestState and inputResponses of a request are opened by the
	// first Ask or Once of Forward, and belong to another call when there is none. An
	// error that is a *jsonrpc.Error has the code of the newest revision, or is
	// spec.URLElicitationRequired; any other one is an internal error.
	Forward(
		ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw,
	) (result jsonrpc.Raw, in *era.Revision, err error)
	// TaskSupport says whether a tool runs as a task: spec.TaskForbidden,
	// spec.TaskOptional, spec.TaskRequired, or "", which is forbidden. A tool that
	// is required to is refused to clients that ask for none; TaskOptional lets
	// Forward decide. It is asked before each call of a tool by a client with
	// a revision that has tasks.
	//
	// In the legacy era the client decides, and Forward runs in the background then.
	// In the modern era Forward does, with mcp.StartTask.
	TaskSupport(ctx context.Context, tool string) string
	// Watch subscribes the caller to a resource, once for each session and
	// resource, and for each subscriptions/listen. ctx ends with the request.
	// updated may be called by any goroutine, and does not block, until stop is
	// called, which is once. An error refuses the subscription.
	Watch(ctx context.Context, uri string, updated func()) (stop func(), err error)
	// Notified takes what a client notifies and the server does not
	// handle, in the form of the newest revision, or of the client's when that has no
	// such notification. It must not block: the client's next message may wait for
	// it. params are valid until it returns.
	Notified(ctx context.Context, method string, params jsonrpc.Raw)
	// Closed is called when a session that got a Description has ended, and that
	// nothing of it runs any more. mcp.ClientInfo.Session has named it. When a connection
	// ends that is not HTTP, it gets the text of the owner of the requests that
	// came over it and stood alone (owner.Key.Text).
	Closed(session string)
}

// A Resumer is a [Relay] with tasks that can outlive the process: see [KeepTask].
type Resumer interface {
	// ResumeTask goes on with a task of a process that has ended. state is what KeepTask was given. It
	// runs in the background, as Forward does for a task, when a client asks for the task for the
	// first time, and in the name of that client, who is its owner. A result or an error ends the
	// task, but for [ErrTaskLeft].
	ResumeTask(
		ctx context.Context, rev *era.Revision, state []byte,
	) (result jsonrpc.Raw, in *era.Revision, err error)
}

// ErrTaskLeft is wrapped by the error of Forward or ResumeTask, of a task for which KeepTask was
// called: the task goes on at the server. The next request for it calls ResumeTask, in this process
// or in another one.
var ErrTaskLeft = errors.New("relay: the task goes on at the server")

// A Description is what a server offers, as a [Relay] describes it.
type Description struct {
	// Name, Version and Title are those of the server. Name "": all three are those
	// that mcp.NewServer was given.
	Name, Version, Title string
	// Instructions tell a model how to use the server.
	Instructions string
	// Capabilities are in the form of the newest revision. Either kind of tasks
	// declares both. What is not declared is forwarded all the same when a client asks
	// for it. Nil: none.
	Capabilities *spec.ServerCapabilities
}

// A TaskObserver is notified of the task that a server makes of a forwarded call, see [Forward].
// The goroutine that forwards the call calls its methods, one at a time.
type TaskObserver interface {
	// TaskStarted is called when the server has made a task of the call, before that is followed to
	// its end, with the taskId and the createdAt of that task. An error ends the call, and the task is
	// cancelled.
	TaskStarted(id, created string) error
	// LeavesTask reports, when the context has ended, whether the task goes on at the server.
	// Otherwise it is cancelled.
	LeavesTask() bool
}

// A Forward is a call that mcp.Client.Forward makes for another client.
type Forward struct {
	Method string
	// Params are in the form of Revision: an object, or nil. A progressToken in
	// their _meta is replaced or removed.
	Params jsonrpc.Raw
	// Received: Params came in a message that farcall has decoded, or are made of such. They are not
	// validated again. Others are, and the call fails when they are not valid JSON.
	Received bool
	// Revision is the one that Params are in. Nil: the newest.
	Revision *era.Revision
	// Info and Capabilities say who calls, as JSON in the form of the newest
	// revision, to servers that want to know it with each request. What
	// the _meta of Params has counts first. Nil: the client's own.
	Info, Capabilities jsonrpc.Raw
	// Header is added to the request over HTTP of each round. What the protocol demands counts before
	// it.
	Header http.Header
	// LogLevel is what is to be logged of the call, for those servers. "": nothing
	// is described.
	LogLevel string
	// OnProgress gets the params of each notifications/progress in the form of the
	// newest revision, in order, from the goroutine that reads: it must not block,
	// nor keep them. One that is on its way when the context ends may come after
	// Forward has returned; of a task nothing is reported. Nil: no progress is asked
	// for.
	OnProgress func(params jsonrpc.Raw)
	// Rounds answers input_required with mcp.ClientOptions.Ask and calls again, as
	// mcp.Client.Request does. Otherwise that is the result.
	Rounds bool
	// Tasks is notified of the task that the server makes of the call. Nil: the task is followed all
	// the same.
	Tasks TaskObserver
	// TaskID names a task that the server has made of an earlier call: that is followed to its end,
	// and no call is made. Method is tools/call, and Params are nil or have a _meta only. Tasks is
	// notified when the server has said that it knows the task.
	TaskID string
	// TaskCreated is the createdAt of the task that TaskID names, as Tasks got it. Servers may use an
	// id again, after a restart above all: a task with another createdAt, or with none, belongs to
	// another caller. It is not followed and not cancelled, and the error is jsonrpc.InvalidParams, as
	// of a task that the server does not know.
	TaskCreated string
	// Task calls a tool as a task where it may be one (legacy servers). One that
	// must be one always is.
	Task bool
	// Timeout is used in place of mcp.ClientOptions.Timeout; MaxTimeout holds, too.
	// 0: that one. It bounds each request, not the whole of rounds and tasks.
	Timeout time.Duration
}
