// Package ledger answers one question: was this call made already, and what was its answer?
//
// A [Ledger] writes down the calls that have an idempotency key, in a store that several processes
// may share. Of the calls with one owner and key it lets one be executed; the others get its
// answer, also while it is executed, and also from another process.
//
//	         claim                    the answer is stored
//	(none) ────────► begun ──────────────────────────────────────────► done
//	                 ▲ │ ▲ │  nothing was executed                        ▲
//	                 │ │ │ └─────────────────────► free ─┐                │ the process that
//	           claim │ │ └───────────────────────────────┘ claim          │ executes it has not
//	                 │ └─► asked (the call waits for its client)          │ renewed its lease: lost
//	                 └───────┘  begun ────────────────────────────────────┘
//
// Each arrow is a compare-and-swap of one record. A process that was declared lost finds that out
// when it stores its answer, and then answers as all others do.
package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/store"
)

const (
	defaultTTL   = 24 * time.Hour
	defaultLease = 10 * time.Second
	defaultCalls = 10_000
	// leastShare is how many keyed calls one owner may have under way in any case.
	leastShare = 64
	// maxValue bounds a stored answer: stores take up to 1 MB.
	maxValue = 512 << 10
	// storeTimeout is how long the store may take for one record, and endTime how long it is tried to
	// store an answer.
	storeTimeout, endTime = 2 * time.Second, 5 * time.Second
	// pollFirst and pollMost are the pauses between looks at a call of another process.
	pollFirst, pollMost = 10 * time.Millisecond, 500 * time.Millisecond
)

// Errors of Do. Compare with errors.Is. The call was not executed by this Do.
var (
	// ErrOther: the key belongs to a call with other arguments.
	ErrOther = errors.New("ledger: the key was used with other arguments")
	// ErrLost: the process that executed the call has ended or could not reach the store. Whether
	// the call had its effect is unknown, and stays so for all who ask.
	ErrLost = errors.New("ledger: the outcome of the call is unknown")
	// ErrAsked: the call waits for its client's answer, and only a continuation goes on with it.
	ErrAsked = errors.New("ledger: the call waits for an answer of its client")
	// ErrLarge: the call was executed, and its answer is too large to be kept.
	ErrLarge = errors.New("ledger: the answer was too large to be kept")
	// ErrFull: too many calls with keys are under way.
	ErrFull = errors.New("ledger: too many calls with keys are under way")
)

// Options adjust a Ledger. The zero value, and nil, mean the defaults.
type Options struct {
	// Lease is how long a process may be silent before its calls count as lost, 10 s by default.
	Lease time.Duration
	// Calls bounds the calls that are under way, 10,000 by default.
	Calls int
}

// A Ledger is safe for concurrent use.
type Ledger struct {
	records store.Records
	lease   time.Duration

	mu      sync.Mutex
	running map[string]*execution // the calls that are under way here, by owner and key
	held    share.Ledger          // by owner
}

// New returns a ledger over records, which stay open when it is not used any more.
func New(records store.Records, o *Options) *Ledger {
	if o == nil {
		o = &Options{}
	}
	l := &Ledger{
		records: records, lease: cmp.Or(o.Lease, defaultLease),
		running: map[string]*execution{},
	}
	calls := cmp.Or(o.Calls, defaultCalls)
	l.held.SetBounds(share.Bounds{Total: calls, Owner: min(calls, max(calls/10, leastShare))})
	return l
}

// A Call is one with an idempotency key.
type Call struct {
	// Owner has the key: other owners have their own.
	Owner owner.Key
	Key   string
	// Digest is equal for equal arguments only.
	Digest [sha256.Size]byte
	// Continues: it brings what the call has asked its client for.
	Continues bool
	// TTL is how long its answer is kept, from its beginning on. Default 24 hours.
	TTL time.Duration
}

// An Effect says what an execution has done.
type Effect uint8

// The effects of an execution.
const (
	// Done: the answer is final.
	Done Effect = iota
	// None: nothing was executed, and the key may be used again.
	None
	// Asked: the client has to answer, and a continuation goes on.
	Asked
	// Unknown: the outcome is unknown. Others get ErrLost.
	Unknown
)

// An execution is a call that is under way in this process.
type execution struct {
	call  *Call
	ended chan struct{}

	// Before ended is closed they belong to the goroutine that executes the call.
	value []byte
	err   error
	again bool // neither is the call's: those who wait begin again
}

// Do executes the call with run, or returns the answer of the execution that there is, for which it
// waits until ctx ends. run gets the values of ctx, and not its end: a client that is away finds
// the answer when it repeats the call. After ErrOther, ErrAsked, ErrFull and errors of the store
// run was not called.
func (l *Ledger) Do(
	ctx context.Context, c *Call, run func(ctx context.Context) (value []byte, e Effect),
) (value []byte, err error) {
	name := c.Owner.Text() + "\x00" + c.Key
	for {
		f, first, err := l.enter(name, c)
		if err != nil {
			return nil, err
		}
		if first {
			func() {
				defer l.leave(name, f)
				l.execute(ctx, f, run)
			}()
			return f.value, f.err
		}
		select {
		case <-f.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !f.again {
			return f.value, f.err
		}
	}
}

// enter returns what is under way of a name, and whether it is for the caller to execute it.
func (l *Ledger) enter(name string, c *Call) (f *execution, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f = l.running[name]; f != nil {
		if f.call.Digest != c.Digest {
			return nil, false, ErrOther
		}
		return f, false, nil
	}
	if !l.held.Take(c.Owner, 1) {
		return nil, false, ErrFull
	}
	f = &execution{call: c, ended: make(chan struct{})}
	l.running[name] = f
	return f, true, nil
}

func (l *Ledger) leave(name string, f *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, name)
	l.held.Give(f.call.Owner, 1)
	close(f.ended)
}

// execute claims the call and executes it, or waits for the process that does.
func (l *Ledger) execute(
	ctx context.Context, f *execution, run func(context.Context) ([]byte, Effect),
) {
	// Until it returns, as after a panic of run: what it has executed, others may not execute.
	f.err = ErrLost
	e := &entry{l: l, call: f.call, token: rand.Text()}
	found, err := e.claim(ctx)
	switch {
	case err != nil:
		f.err = err
		f.again = ctx.Err() != nil // those who wait have their own time
		return
	case found != nil:
		f.value, f.err = found.answer()
		return
	}
	stop := e.renew(ctx)
	var value []byte
	effect := Unknown
	defer func() {
		stop()
		f.value, f.err = e.end(ctx, value, effect)
		f.again = effect == None || effect == Asked
	}()
	value, effect = run(context.WithoutCancel(ctx))
}

// idOf returns the id of a record, which says nothing of the key.
func idOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "call-" + hex.EncodeToString(sum[:20])
}
