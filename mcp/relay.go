package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Relay answers for a Server that has nothing of its own, as a gateway does:
// see ServerOptions.Relay. Its methods may be called by any number of goroutines
// at once. [ClientFrom] works in all of them but Closed.
type Relay interface { //nolint:interfacebloat // who answers for a server does all that a server does
	// Describe says what is offered, to a client that begins: a name, version and
	// title (of NewServer, when there is no name), instructions, and capabilities in
	// the form of the newest revision. Other requests of the client do not wait for
	// it, but the client does. Nil: nothing is offered. An error is the client's
	// answer: there is nothing to begin with.
	//
	// Either kind of tasks among the capabilities declares both. What is not
	// declared is forwarded all the same when a client asks for it.
	Describe(ctx context.Context) (*ServerInfo, error)
	// Forward answers a method that lists, calls, reads, gets or completes, and
	// every method that MCP does not define. params are in the revision rev, as the
	// client sent them, but for the member "task" of the legacy era; they are valid
	// until Forward returns. The result is the server's then: an object in the
	// revision in, from which it is translated to that of the client; nil is the
	// newest one. A modern result that has a resultType is passed to clients of that
	// era as it is.
	//
	// ctx is that of a tool's handler: [Ask], [Once], [Log], [Progress],
	// [StartTask], [ClientFrom] and the functions of package relay work. The error that Ask returns is to be
	// returned. The requestState and inputResponses of a request are opened by the
	// first Ask or Once of Forward, and are somebody else's when there is none. An
	// error that is a *jsonrpc.Error has the code of the newest revision, or is
	// spec.URLElicitationRequired; any other one is an internal error.
	Forward(ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw) (result jsonrpc.Raw, in *era.Revision, err error)
	// TaskSupport says whether a tool runs as a task: spec.TaskForbidden,
	// spec.TaskOptional, spec.TaskRequired, or "", which is forbidden. A tool that
	// is required to is refused to clients that ask for none; TaskOptional lets
	// Forward decide. It is asked before each call of a tool by a client whose
	// revision has tasks.
	//
	// In the legacy era the client decides, and Forward runs in the background then.
	// In the modern era Forward does, with StartTask.
	TaskSupport(ctx context.Context, tool string) string
	// Watch subscribes the caller to a resource, once for each session and
	// resource, and for each subscriptions/listen. ctx ends with the request.
	// updated may be called by any goroutine, and does not block, until stop is
	// called, which is once. An error refuses the subscription.
	Watch(ctx context.Context, uri string, updated func()) (stop func(), err error)
	// Notified takes what a client notifies and the server does not handle by
	// itself, in the form of the newest revision, or of its own when that has no
	// such notification. It must not block: the client's next message may wait for
	// it. params are valid until it returns.
	Notified(ctx context.Context, method string, params jsonrpc.Raw)
	// Closed is told that a session which was described to has ended, and that
	// nothing of it runs any more. ClientInfo.Session has named it. When a connection
	// ends that is not HTTP, it is told the text of the owner of the requests that
	// came over it and stood alone (owner.Key.Text).
	Closed(session string)
}

// ListChanged tells clients that a list has changed, of the server's [Relay] or by
// what ServerOptions.Visible lets them see: kind is "tools", "resources" or
// "prompts". It panics for any other kind.
func (s *Server) ListChanged(kind string) {
	switch kind {
	case "tools":
		s.listChanged(listTools)
	case "resources":
		s.listChanged(listResources)
	case "prompts":
		s.listChanged(listPrompts)
	default:
		misuse(`ListChanged: there is no list %q; the kind must be "tools", "resources" or "prompts"`, kind)
	}
}

// Notify is relay.Notify.
func (c *call) Notify(ctx context.Context, method string, params jsonrpc.Raw) error {
	switch method {
	case spec.NotificationMessage:
		level := levelOf(params)
		if level < 0 {
			return fmt.Errorf("mcp: notify %q: the level must be one of %s", method, strings.Join(spec.LogLevels(), ", "))
		}
		if !c.logs(level) {
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	if method == spec.NotificationProgress {
		if c.task.started() {
			var p spec.ProgressNotificationParams
			if err := jsonv2.Unmarshal(params, &p); err != nil {
				return fmt.Errorf("mcp: notify %q: %w", method, err)
			}
			c.task.report(statusMessage(&p))
		}
		token := c.progressToken()
		if token == nil {
			return nil
		}
		params = withMember(params, "progressToken", token)
	}
	return notify(ctx, c.client, c.rev, method, params)
}

// TaskState is relay.TaskOf.
func (c *call) TaskState() (can, is bool) {
	return c.task != nil, c.task.started()
}

func levelOf(params jsonrpc.Raw) int {
	raw := scan.Member(params, "level")
	if len(raw) == 0 || raw[0] != '"' {
		return -1
	}
	return spec.LogSeverity(string(scan.Unquote(raw)))
}
