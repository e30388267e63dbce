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
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/jsonv2"
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
	o = cmp.Or(o, &Options{})
	l := &Ledger{
		records: records, lease: cmp.Or(o.Lease, defaultLease), running: map[string]*execution{},
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

// Prefix begins the owners of the records of ledgers.
const Prefix = "ledger\x00"

// The states of a record.
const (
	begun = "begun"
	free  = "free"
	asked = "asked"
	done  = "done"
	lost  = "lost"
	large = "large" // done, without the answer
)

// A record is what is stored of a call: a line of JSON, and after it the answer.
type record struct {
	State  string `json:"state"`
	Token  string `json:"token"` // of the execution
	Digest string `json:"digest"`

	value   []byte
	version uint64
}

func (r *record) final() bool { return r.State == done || r.State == lost || r.State == large }

// answer is that of a call that has ended.
func (r *record) answer() ([]byte, error) {
	switch r.State {
	case done:
		return r.value, nil
	case large:
		return nil, ErrLarge
	}
	return nil, ErrLost
}

// An entry is the record of a call, for one process. Its methods are called one at a time.
type entry struct {
	l       *Ledger
	call    *Call
	token   string
	version uint64    // of the record that is stored, as far as that is known
	expires time.Time // of the record
}

// storing bounds what the store is asked to do. A record is written whether its client waits or
// not.
func storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// put writes the record in place of the version that is known.
func (e *entry) put(ctx context.Context, r *record) error {
	value, err := jsonv2.Append(nil, r)
	if err != nil {
		return err
	}
	o := e.call.Owner
	group := ""
	if g := o.Group(); g != o {
		group = Prefix + g.Text()
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	version, err := e.l.records.Put(ctx, &store.Record{
		Owner: Prefix + o.Text(), Group: group, ID: idOf(e.call.Key), Version: e.version,
		Expires: e.expires, Value: append(append(value, '\n'), r.value...),
	})
	if err == nil {
		e.version = version
	}
	return err
}

// get reads the record; nil: there is none.
func (e *entry) get(ctx context.Context) (*record, error) {
	ctx, cancel := storing(ctx)
	defer cancel()
	stored, err := e.l.records.Get(ctx, Prefix+e.call.Owner.Text(), idOf(e.call.Key))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	head, value, ok := bytes.Cut(stored.Value, []byte("\n"))
	r := &record{value: value, version: stored.Version}
	if err := jsonv2.Unmarshal(head, r); err != nil || !ok {
		return nil, fmt.Errorf("ledger: a record cannot be read: %w", errors.Join(err, ErrLost))
	}
	e.expires = stored.Expires
	return r, nil
}

func (e *entry) digest() string { return hex.EncodeToString(e.call.Digest[:]) }

// claim returns nil when the call is to be executed here, or the record of its end. It waits while
// another process executes the call.
func (e *entry) claim(ctx context.Context) (*record, error) {
	var seen uint64 // the version of the record that another process has written
	var since time.Time
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		r, err := e.look(ctx)
		switch {
		case errors.Is(err, store.ErrConflict): // another process was first
		case err != nil:
			return nil, err
		case r == nil || r.final():
			return r, nil
		case r.version != seen:
			seen, since = r.version, time.Now()
		case time.Since(since) >= e.l.lease:
			if err := e.declareLost(ctx, r); err != nil {
				return nil, err
			}
		}
		if err := backoff.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// look tries to claim the call once. Nil: it is claimed. ErrConflict: another process was first.
func (e *entry) look(ctx context.Context) (*record, error) {
	r, err := e.get(ctx)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		e.version, e.expires = 0, time.Now().Add(cmp.Or(e.call.TTL, defaultTTL))
	case r.Digest != e.digest():
		return nil, ErrOther
	case r.State == asked && !e.call.Continues:
		return nil, ErrAsked
	case r.State == free, r.State == asked:
		e.version = r.version
	default:
		return r, nil
	}
	err = e.put(ctx, &record{State: begun, Token: e.token, Digest: e.digest()})
	switch {
	case err == nil:
		return nil, nil //nolint:nilnil // it is ours
	case known(err):
		return nil, err
	}
	// The outcome is unknown: it is ours if the record says so.
	now, readErr := e.get(ctx)
	if readErr != nil || now == nil || now.Token != e.token {
		return nil, err
	}
	e.version = now.version
	return nil, nil //nolint:nilnil // it is ours
}

// known reports whether an error of the store says that nothing has changed.
func known(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable)
}

// declareLost ends a call that its process has not renewed.
func (e *entry) declareLost(ctx context.Context, r *record) error {
	e.version = r.version
	err := e.put(ctx, &record{State: lost, Token: r.Token, Digest: r.Digest})
	if errors.Is(err, store.ErrConflict) {
		return nil // it has gone on, or another process was first
	}
	return err
}

// renew writes the record again while the call is executed. stop waits until no write is under way.
func (e *entry) renew(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(e.l.lease / 4)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := e.put(ctx, &record{State: begun, Token: e.token, Digest: e.digest()})
			if err != nil && !e.resume(ctx) {
				return // it has ended otherwise: end finds out
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// resume learns the version of the record after a write that may have failed. It reports false when
// the call has ended in the store.
func (e *entry) resume(ctx context.Context) bool {
	r, err := e.get(ctx)
	if err != nil {
		return true // the store is away
	}
	if r == nil || r.Token != e.token || r.State != begun {
		return false
	}
	e.version = r.version
	return true
}

// end stores what has become of the call, and returns its answer. Where the store does not take it
// in time, the answer is that of the execution all the same, and others learn that it is unknown.
func (e *entry) end(ctx context.Context, value []byte, effect Effect) ([]byte, error) {
	r := &record{State: done, Token: e.token, Digest: e.digest(), value: value}
	var mine error
	switch effect {
	case None:
		r.State, r.value = free, nil
	case Asked:
		r.State, r.value = asked, nil
	case Unknown:
		r.State, r.value, mine = lost, nil, ErrLost
	case Done:
		if len(value) > maxValue {
			r.State, r.value = large, nil
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	for {
		err := e.put(ctx, r)
		if err == nil {
			return value, mine
		}
		if errors.Is(err, store.ErrFull) && r.State == done {
			r.State, r.value = large, nil
			continue
		}
		now, readErr := e.get(ctx)
		switch {
		case readErr != nil:
		case now == nil || now.Token != e.token: // it has expired, or is free and was claimed again
			return value, mine
		case now.State == r.State:
			return value, mine
		case now.State == lost:
			return nil, ErrLost
		default:
			e.version = now.version
		}
		if backoff.Sleep(ctx, pollMost) != nil {
			return value, mine
		}
	}
}
