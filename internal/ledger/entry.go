package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/store"
)

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
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// pause waits. Its error is that of the context.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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
		if pause(ctx, pollMost) != nil {
			return value, mine
		}
	}
}
