package mcp

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// ServerOptions adjust a Server. The zero value, and nil, mean the defaults.
// They are copied; later changes have no effect.
type ServerOptions struct {
	// Title, Description, WebsiteURL and Icons say for people what the server
	// is.
	Title, Description, WebsiteURL string
	Icons                          []spec.Icon
	// Instructions tell a model how to use the server.
	Instructions string

	// Relay answers for the server, which has no tools, resources and prompts
	// itself then: adding one panics. Instructions, Capabilities, Complete, PageSize
	// and Visible have no effect then, and CacheTTL and CacheScope only on what does
	// not say on its own how long it may be kept. Default: none.
	Relay relay.Relay

	// Capabilities are declared even before something of them was added, and
	// whatever else is in them. What the server has it declares on its own.
	Capabilities *spec.ServerCapabilities
	// Complete suggests values for the arguments of prompts and resource templates that
	// have no function of Server.CompletePrompt or Server.CompleteTemplate, and no values known
	// by their type (see the function AddPrompt). Nil: only those complete.
	Complete func(context.Context, *spec.CompleteRequestParams) (*spec.CompleteResult, error)
	// PageSize bounds what one page of a list holds. Default 1,000: many clients read
	// the first page only.
	PageSize int
	// CacheTTL is how long a client may reuse lists and resources that it got.
	// Default 0: not at all.
	CacheTTL time.Duration
	// CacheScope says who may share them: "public" or "private". Default
	// "private".
	CacheScope string
	// Arguments says whether calls with arguments that do not quite fit the input schema of
	// their tool are refused. The schema that clients see is the strict one in any case.
	// Default Lenient.
	Arguments Tolerance
	// SkipOutputValidation does not hold the structured content of tools against
	// their output schemas.
	SkipOutputValidation bool

	// Visible reports whether the caller may see something: kind is "tool",
	// "resource", "template" or "prompt". What a caller does not see does not
	// exist for it. Default: everything is visible.
	Visible func(ctx context.Context, kind, name string) bool
	// Owner returns a text that is unique for the authenticated caller, for example
	// issuer and subject of its token, and "" for any other. Request states and tasks
	// belong to it, and sessions over HTTP: there ctx is derived from the context of the
	// request, and mcphttp.RequestFrom returns it. Those of other callers belong to
	// their session, else to their connection, else (HTTP without sessions) to their
	// address. Default: what mcphttp.Options.Owner says, and no caller is authenticated
	// on other transports.
	Owner func(ctx context.Context) string

	// Keys are random keys of 32 bytes that seal what clients carry for the server: what one round of
	// a request leaves for the next, and, over HTTP, sessions of the legacy era, which every server
	// with these keys can serve then: see Sessions of [mcphttp.Options]. The first one seals, each one
	// opens, so that keys can be changed: put the new one first on each replica, and drop the old one
	// when what it sealed has expired. Servers that share a load need the same ones. Default: one
	// random key, which ends with the process.
	Keys [][]byte
	// Replica is the name of this replica, which begins each requestState then, so that the request
	// that goes on with it can be routed here: see Forward of [mcphttp.Options]. Default none.
	Replica string
	// StateTTL is how long a client may take for a round. Default 10 min.
	StateTTL time.Duration

	// OnSessionBegan is called when a client has begun a session, of a revision that has them, before
	// it gets the answer to initialize; OnSessionInitialized, once, when it has said that it is
	// initialized; OnSessionEnded when the session has ended and nothing of it runs any more. Of one
	// session they are called in this order, and OnSessionEnded once if OnSessionBegan has returned.
	// [ClientFrom] works in the first two. They run in the goroutine of the request, or of what ends
	// the session, which waits for them; different sessions call them at the same time. A panic fails
	// the request, or is logged. A session that another replica has begun, and this one goes on with,
	// calls none; a sealed one has ended for its hook when this process has nothing of it in memory
	// any more. Nil: nothing is called.
	OnSessionBegan, OnSessionInitialized func(ctx context.Context, s *Session)
	OnSessionEnded                       func(s *Session)
	// OnSubscribe is called when a resource of the server gets its first subscriber, in any revision,
	// before that gets its answer, and stop, which may be nil, when the last one has gone. For one
	// resource they alternate: other subscribers of it wait meanwhile. An error refuses the
	// subscription, and the next subscriber is the first one then. ctx is that of the request. What
	// ResourceUpdated reports before OnSubscribe returns does not reach the first subscriber. A panic
	// fails the request; one of stop is logged. Nil: nothing is called. It is not called with a Relay.
	OnSubscribe func(ctx context.Context, uri string) (stop func(), err error)

	// TaskAfter is how long a call of a tool with task support may take before it
	// becomes a task, in revisions where the server decides (2026-07-28): one that ends
	// earlier is answered like any other call. One that asks the client something
	// becomes a task at once. Default 1 s; negative: every such call becomes a task
	// at once.
	TaskAfter time.Duration
	// TaskTTL is how long a task is kept, from its creation. Default 1 h.
	TaskTTL time.Duration
	// MaxTasks bounds the tasks that are kept at a time. One owner has a tenth of
	// them at most, or 16, and all sessions of one address half. Default 10,000.
	MaxTasks int
	// Sessions stores the values of sealed sessions over HTTP (see Keys and [Session.SetValue]), the
	// level of their log, and what they have subscribed to, so that they outlive the process and are
	// seen by all servers that share the store, until the session ends: at its DELETE, or when it is
	// as old as it may be. It may be the store of Tasks, too. A directory belongs to one process: what
	// several processes share implements [store.Records]. Default: values are in the memory of one
	// process.
	Sessions store.Records
	// Tasks stores tasks, each before a client gets its id, and its end before a client sees that. A
	// server that starts finds those of a process that has ended, however it ended: a task that had
	// ended is answered with the same bytes until its time is over, and one that still ran has failed,
	// with a message that says so. So a client that has an id is not told that it is unknown before
	// the time of the task is over, and an end never changes. The tasks of a connection (a stream
	// without its own session and an authenticated caller) end with it, and are kept in memory in any
	// case. Each server has its own store. One that is used up refuses new tasks; a result that finds
	// no room makes its task fail. NewServer reads the store; closing it is left to who opened it.
	// Default: in memory, 256 MiB for all owners. [store.Open] makes one in a directory.
	Tasks store.Records
	// Shared stores tasks in place of Tasks for all servers, of one process or of several, that have
	// the same store and SharedName. Each of them answers for a task, to its owner alone, with the
	// promises of Tasks. Of one that another server runs it stores what the client answers and that
	// it is cancelled; the server that runs it takes that up at once. A server that was silent for
	// 10 s has ended, and its tasks have failed, with a message that says so; where the Relay can
	// resume a task, the server that is asked next goes on with it. Keys must be set at all servers
	// alike for sessions to go on at another one. The store is closed after the Server, by who
	// opened it. Default: none.
	Shared store.Store
	// SharedName names what the servers with one Shared have in common. Default: the server's name.
	SharedName string
	// OnTask is called when a task was created and when it has ended, for metrics, concurrently for
	// several tasks. It must not block, and not ask for the task. Default: none.
	OnTask func(TaskEvent)
	// TaskPoll is how often a client should ask for a task. Default 1 s.
	TaskPoll time.Duration

	// Eras says which revisions are served: "auto", "modern", "legacy" or the name of one, such as
	// spec.Revision20251125. NewServer panics at anything else. Default "auto": all.
	Eras string

	// RPC adjusts the connections of the server, unless mcphttp.Options.RPC or the
	// function Serve has other options for them. Its Dialect is ignored. Its
	// Interceptors belong to the server: on every transport, and whatever options its
	// connections have, they see each request and notification but those of
	// cancellation and progress.
	RPC *farcall.Options
	// Trace gets a line for each frame of each connection, over every transport; nil:
	// none. See [ClientOptions].Trace. A failure of the writer is logged.
	Trace io.Writer
	// HTTP adjusts what ListenAndServe serves, and is what mcphttp.NewHandler uses
	// for the server when it gets no options.
	HTTP *mcphttp.Options
	// Logger takes what is not for clients, such as the stack of a panic. It
	// applies where the options of a connection have no Logger, and RPC has none.
	// Default: [slog.Default].
	Logger *slog.Logger
}

func (o *ServerOptions) setDefaults() {
	setDefault(&o.PageSize, 1000)
	setDefault(&o.CacheScope, "private")
	setDefault(&o.StateTTL, 10*time.Minute)
	setDefault(&o.TaskAfter, time.Second)
	setDefault(&o.TaskTTL, time.Hour)
	setDefault(&o.MaxTasks, 10_000)
	setDefault(&o.TaskPoll, time.Second)
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
