package farcall

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// Options adjust a Peer or a Responder. The zero value, and nil, mean the
// defaults. They are copied; later changes have no effect.
type Options struct {
	// MaxDepth bounds the nesting of a message. Default 512.
	MaxDepth int
	// MaxBatch bounds the elements of a batch. Default 10,000.
	MaxBatch int
	// MaxInFlight bounds the requests that are being handled at once; a batch is
	// admitted as a whole, and so many of its elements run at once. A handler
	// that waits for a call back over the same connection does not count.
	// Default 1,024.
	MaxInFlight int
	// MaxInFlightBytes bounds the bytes of the requests that are being handled
	// and of the notifications that wait their turn. Each counts at least 512.
	// One message is always admitted. Default 128 MiB.
	MaxInFlightBytes int
	// Budget has the memory for the frames of more than 64 KiB that a Peer handles;
	// its transport draws from a budget while they arrive. A Responder leaves both to
	// its transport. Default: that of the process, see [Budget].
	Budget *Budget
	// MaxUnsent bounds the bytes of frames that wait for the other end to read.
	// From a quarter of it on, calls and notifications of this end wait for room
	// and requests of the other end are refused; a connection with answers that
	// exceed all of it is closed. Default 128 MiB.
	MaxUnsent int
	// MaxSubscriptions bounds the subscriptions that the other end has open, see
	// [HandleSubscription]; one more is refused. Default 1,000.
	MaxSubscriptions int
	// CloseTimeout bounds how long Close waits for handlers to return.
	// Default 5 s.
	CloseTimeout time.Duration

	// NoInline gives each call its own goroutine. Default: a method with a
	// handler that returned within 20 µs runs in the goroutine that reads the
	// connection, which saves a call some microseconds. No handler holds up the
	// reading for more than about a millisecond, and then not again.
	NoInline bool

	// Linger bounds how long calls in flight may take when the other end sends no
	// more but may still read; then they are answered with an error that says so.
	// Negative: no bound. Default: no bound on standard input and output, because their end
	// says only that no more requests come; 10 s elsewhere.
	Linger time.Duration

	// FirstID is the id of the first call that this end makes. Each later call has the next id, up to
	// 2^53-1; then calls fail. Set it when an earlier Peer, or process, has made calls in the same
	// session of the protocol above, so that no id is used twice. Default 1.
	FirstID uint64
	// Dialect is how cancellation and progress are written. Default: LSP's
	// $/cancelRequest and $/progress.
	Dialect Dialect
	// V1 also accepts JSON-RPC 1.0, answers it in kind, and calls in 1.0.
	V1 bool
	// StrictAnswers fails calls with answers that do not follow the specification.
	// Default: a null error beside a result, a null result beside an error, and a
	// missing "jsonrpc" are passed over, as other clients do. Requests are always
	// held to the specification.
	StrictAnswers bool
	// Details adds the Go type and text of internal errors to the data of error
	// answers. For trusted callers only.
	// An interceptor keeps them from a caller by an error, around the handler's,
	// that has a method Discreet, and it returns true.
	Details bool
	// Errors maps Go error types to codes and back. Default none.
	Errors *Errors
	// Interceptors wrap the handler, the first outermost.
	Interceptors []Interceptor
	// CallInterceptors wrap the calls and notifications that this end makes, each
	// element of a batch on its own, the first outermost: the place for retries, fresh
	// tokens and traces. Calling next sends the request, again if it is called again.
	// The result is a [jsonrpc.Raw]; an error that the other end answered wraps a
	// *[jsonrpc.Error]. A batch is sent when each of its elements has come to next or
	// has ended, so an interceptor must not make one element wait for another:
	// Request.InBatch reports them. Default none, which costs nothing.
	CallInterceptors []Interceptor

	// Logger takes what does not go over the wire: panics with their stacks,
	// causes of internal errors, answers that match nothing. Default:
	// [slog.Default]; for silence set one with [slog.DiscardHandler].
	Logger *slog.Logger
	// Observer sees each call in both directions, each frame, and when the connection opens and
	// closes: for logs, metrics and traces. Nil costs nothing.
	Observer *observe.Observer
	// OnRecord is a simple observer: it is called once for each request and notification that was
	// handled or refused, each element of a batch on its own, by the goroutine
	// that handled it. The context is the handler's, or that of the connection or
	// exchange when there was no handler. It is also called for each call and
	// notification that this end has sent, by the goroutine that made it, with its
	// context: see Record.Outgoing. It must not keep the slices. Nil costs nothing.
	OnRecord func(context.Context, Record)
	// ConnContext returns the context of all handlers of a connection, derived from
	// ctx, which ends with the connection: the place for values that belong to the
	// connection, such as what a login has found out. It is called once for each
	// Peer, before any handler; over HTTP http.Server.ConnContext does the same.
	// Default: ctx itself.
	ConnContext func(ctx context.Context) context.Context
	// OnClose is called once, when the connection has ended, with the reason.
	OnClose func(error)
	// Transport and Conn name the connection in records, for example "tcp" and
	// "tcp-17".
	Transport, Conn string
}

// A Record tells what became of one request or notification.
type Record struct {
	Transport, Conn   string
	ID                jsonrpc.ID
	Method            string
	Code              jsonrpc.Code // 0: answered with a result, or a notification handled
	Err               error        // what was answered, with its private cause
	Latency           time.Duration
	BytesIn, BytesOut int
	Request, Response jsonrpc.Raw // the messages as they were on the wire
	Notification      bool
	Batch             bool // an element of a batch
	// Outgoing: this end has sent it. Err is what the call failed with, BytesOut and
	// Request are what was sent, and BytesIn and Response what was answered, if anything.
	Outgoing bool
}

// Stats counts what happened on a connection.
type Stats struct {
	Requests, Notifications uint64 // that arrived
	Refused                 uint64 // frames and messages that were not valid
	Overloaded              uint64 // requests beyond the limits
	Dropped                 uint64 // answers that matched no call
	DroppedEvents           uint64 // events of subscriptions that there are not, or not any more
	Subscriptions           int    // that the other end has open
	// requests being handled; of these, waiting on their own call; notifications waiting their turn
	InFlight, Waiting, Queued int
	Calls                     int // calls of ours that wait for their answers
	UnsentBytes               int
}

// withDefaults returns a copy with the defaults; for nil one that all share.
func (o *Options) withDefaults() *Options {
	if o == nil {
		return defaultOptions()
	}
	c := *o
	c.setDefaults()
	return &c
}

// defaultOptions are those of connections without options: one copy, because there may be very
// many.
var defaultOptions = sync.OnceValue(func() *Options {
	o := new(Options)
	o.setDefaults()
	return o
})

func (o *Options) setDefaults() {
	setDefault(&o.FirstID, 1)
	o.FirstID = min(o.FirstID, maxID)
	setDefault(&o.MaxInFlight, 1024)
	setDefault(&o.MaxInFlightBytes, 128<<20)
	setDefault(&o.MaxUnsent, 128<<20)
	setDefault(&o.MaxSubscriptions, 1000)
	setDefault(&o.CloseTimeout, 5*time.Second)
	o.Dialect = o.Dialect.withDefaults()
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// A Budget bounds the memory of large frames, over all transports that are given
// it: each frame of more than 64 KiB draws its bytes from it while it arrives and
// until it has been handled. A frame for which there is no room is refused at once
// with "overloaded" (-32010, over HTTP status 503); smaller ones go on.
//
// What a connection has not sent yet draws, too, from 1 MiB on and in steps of that. It exists
// already, so it may overdraw the budget: until there is room again, connections with so much
// unsent get "overloaded" for further requests.
//
// Without one, the budget of the process is used: 512 MiB, or half of
// GOMEMLIMIT where that is less. It is one for all because memory is the
// process's: servers that do not know each other cannot bound it apart.
//
// No owner holds more than it leaves free for the others: one alone half of the
// budget. Each connection is an owner, unless its transport was given a budget
// from the method Owner. Unauthenticated connections share the smaller budget that
// the method Unauthenticated returns, in which the oldest incomplete frame goes
// first.
//
// What a process takes in all is more: Go's garbage collector lets memory be
// reused some time after a frame is done, up to twice what is in use by default.
// GOMEMLIMIT bounds that.
type Budget = budget.Budget

// NewBudget returns a budget of so many bytes, and of so many for unauthenticated
// connections. 0 means the default: that of the process, and 64 MiB, or an eighth
// of the budget where that is less.
func NewBudget(bytes, unauthenticated int64) *Budget { return budget.New(bytes, unauthenticated) }
