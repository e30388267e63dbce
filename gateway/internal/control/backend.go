package control

import (
	"context"
	"net/http"
)

const (
	base     = "/api/v1"
	document = "/openapi.json"
	maxBody  = 64 << 10
)

// A Backend is the gateway that the requests are about. An error that is a [*Problem] is the
// answer.
type Backend interface { //nolint:interfacebloat // a method for each operation
	Overview(ctx context.Context) *Overview
	Cluster(ctx context.Context) *Cluster
	Upstreams(ctx context.Context) *Upstreams
	Upstream(ctx context.Context, name string) (*UpstreamDetails, error)
	Restart(ctx context.Context, name string, o *Restart) (*Upstream, error)
	Drain(ctx context.Context, name string) (*Upstream, error)
	Disable(ctx context.Context, name string) (*Upstream, error)
	Enable(ctx context.Context, name string) (*Upstream, error)
	Sessions(ctx context.Context) *Sessions
	Calls(ctx context.Context) *Calls
	EndSession(ctx context.Context, id string) (*Session, error)
	LogLevel(ctx context.Context) (*LogLevel, error)
	SetLogLevel(ctx context.Context, to *LogLevel) (*LogLevel, error)
	Reload(ctx context.Context) (*Reloaded, error)
	Dump(ctx context.Context) (*Dumped, error)
	Pins(ctx context.Context) (*Pins, error)
	PinChanges(ctx context.Context, name string) (*PinChanges, error)
	AcceptPins(ctx context.Context, name string, o *AcceptPins) (*PinChanges, error)
	Explain(ctx context.Context, q *Question) (*Explanation, error)
}

// An Access decides who may do what.
type Access interface {
	// Hosts are the names of the gateway that a request may ask for.
	Hosts() []string
	// Read returns why a request may read nothing. Nil: it may.
	Read(r *http.Request) *Problem
	// Begin decides about a change and writes the decision down. done is to be called with what came
	// of it.
	Begin(r *http.Request, c *Change) (done func(error), refused *Problem)
	// Refuse writes down that a change is refused.
	Refuse(r *http.Request, c *Change, p *Problem)
}

// A Change is what a request would change.
type Change struct {
	Name     string // of the change: restart, reload
	Upstream string // that it is about; "": it is about the gateway
	Params   []byte // JSON, or nil
}

// A request is one on its way through the handler.
type request struct {
	*http.Request

	name string // what {name} stands for in the path
	body []byte
}
