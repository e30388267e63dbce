package store

import (
	"context"
	"errors"
	"io"
	"time"
)

// A Store is what processes share: five small interfaces over one engine. [Memory] serves one
// process; store/natsstore and store/valkeystore serve several. All methods may be called
// concurrently, and obey their context. internal/storetest checks the contracts below over each
// engine.
//
// Errors have two meanings, and no third. After [ErrFull], [ErrClosed], [ErrConflict],
// [ErrNotFound], [ErrPast] and [ErrUnavailable] nothing has changed. After any other error, that of
// a context included, the outcome is unknown: the operation has had its whole effect, has none, or
// will have it within seconds. Each method says how its caller stays on the safe side then.
type Store interface { //nolint:interfacebloat // it is the five and Close
	Once
	Counter
	Records
	Queue
	Bus
	// Close ends what waits, with ErrClosed, and releases all resources of this process.
	io.Closer
}

// Once claims keys: nonces, proofs, ids that may be used one time.
type Once interface {
	// Claim claims a key until a time, and reports whether it was free. Of all Claims of a key in
	// all processes at most one reports true before that time. A key may stay claimed for longer.
	// Unknown outcome: act as if it had reported false; a second try by the same caller does report
	// false if the first took effect. ErrPast: the time is over already.
	Claim(ctx context.Context, key string, until time.Time) (first bool, err error)
	// Release frees a key for which a Claim of this process has reported true, and no other.
	// Unknown outcome: the key stays claimed until its time at worst.
	Release(ctx context.Context, key string) error
	// Since returns when the store began to remember. A store that has lost its claims began after
	// that. What was made before then may have been claimed and forgotten: refuse it.
	Since(ctx context.Context) (time.Time, error)
}

// Counter counts against a limit: quotas, budgets, and rates by windows of time.
type Counter interface {
	// Take adds up to n to the sum of a key, as many as keep it at most limit, and returns how
	// many. Whatever happens, what all processes have been granted, less what Give returned, is at
	// most limit, until the time that the first Take of the key gave; then the sum is 0 again. n
	// must be at least 1. Unknown outcome: nothing was granted; up to n may be lost until then.
	Take(ctx context.Context, key string, n, limit int64, until time.Time) (granted int64, err error)
	// Give returns some of what was granted and not used. Call it once for each part: after an
	// error that part may be lost until the sum is 0 again.
	Give(ctx context.Context, key string, n int64) error
}

// Queue hands out work, each item to one worker at a time, until a worker has done it. Names of
// queues are few and chosen by the program, not by callers.
type Queue interface {
	// Push adds an item. When it returns nil, the item is as durable as the store promises, and is
	// handed out again and again until one Done of it has returned nil. Unknown outcome: the item
	// may be there; a second Push may make two of it. ErrFull: the queue has no room.
	Push(ctx context.Context, queue string, data []byte) error
	// Pull waits for an item, the oldest first, and leases it to the caller: no other caller has it
	// until the lease ends. When it ends without Done, the item is handed out again, so a worker
	// that is late may find that another has begun. At least once, therefore; what must not happen
	// twice needs a Claim or a version of a record as well.
	Pull(ctx context.Context, queue string) (Item, error)
}

// An Item is leased work.
type Item interface {
	// Data is what was pushed. The caller must not change it.
	Data() []byte
	// Attempt counts how often the item was handed out, 1 at first, this time included.
	Attempt() int
	// Done removes the item: once it has returned nil, the item is not handed out any more. Unknown
	// outcome: it may be handed out again.
	Done(ctx context.Context) error
	// Extend renews the lease for its whole length from now.
	Extend(ctx context.Context) error
	// Return ends the lease: the item is handed out again at once.
	Return(ctx context.Context) error
}

// Bus tells all processes of something: changes, presence. It keeps nothing.
type Bus interface {
	// Publish sends data to all that subscribe to a topic now, in all processes, this one included.
	// Delivery is at most once.
	Publish(ctx context.Context, topic string, data []byte) error
	// Subscribe calls receive for each message, one at a time: those of one publisher in order, and
	// none twice. It returns once the engine knows of it; in a cluster of engines what others
	// publish at that moment may be missed. Where messages may have been lost, because the
	// connection was interrupted or receive was slow, a Message with Gap comes before the next one,
	// at the latest when the connection is there again: read again what the messages are about.
	// stop waits until receive has returned; receive must not call it.
	Subscribe(ctx context.Context, topic string, receive func(Message)) (stop func(), err error)
}

// A Message is what a subscriber gets.
type Message struct {
	Data []byte
	Gap  bool // messages may have been lost before; Data is nil
}

// Errors of what is shared. Nothing has changed.
var (
	ErrPast        = errors.New("store: the time until which the key is to be kept is over")
	ErrUnavailable = errors.New("store: not reachable; nothing was changed")
)
