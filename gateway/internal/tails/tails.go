// Package tails answers one question: what has a node that is gone sent on the event streams of a
// session, which goes on at another one?
//
// Each event is a record of the store that the nodes share. It is written behind the call that
// sends it, one at a time, so that streams wait for nothing and a node loads the store with one
// write. Of what is too large, or has no room in between, the record says that it is lost. The last
// events of a node that is killed have no record.
package tails

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/store"
)

const (
	// lasts is how long an event can be asked for.
	lasts = 5 * time.Minute
	// waiting bounds the bytes that wait to be written, and owned those of one owner.
	waiting, owned = 4 << 20, 1 << 20
	// cost is what an event costs beside its data, and largest what is shared at all.
	cost, largest = 400, 64 << 10
	// timeout bounds each operation of the store, and Close.
	timeout = 2 * time.Second
	// gap is how many events without a record there may be in a row, with others behind them.
	gap = 8
	// ended is the id of the record of a session that has ended.
	ended = "ended"
)

var (
	errLarge = errors.New("tails: the event is larger than 64 KiB")
	errFull  = errors.New("tails: too many events wait to be written")
)

// Tails is mcphttp.Options.SharedEvents over a store.
type Tails struct {
	records store.Records
	log     *slog.Logger
	ctx     context.Context //nolint:containedctx // of what is written: it ends a while after Close
	stop    context.CancelFunc
	wake    chan struct{} // has one when something waits
	idle    chan struct{} // closed when nothing writes any more

	mu     sync.Mutex
	room   share.Ledger
	queue  []event
	closed bool
}

// event is one that waits to be written.
type event struct {
	owner  owner.Key
	record *store.Record
}

// New returns tails in a store, until Close.
func New(records store.Records, log *slog.Logger) *Tails {
	t := &Tails{records: records, log: log, wake: make(chan struct{}, 1), idle: make(chan struct{})}
	t.ctx, t.stop = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	t.room.SetBounds(share.Bounds{Total: waiting, Owner: owned})
	go t.write()
	return t
}

// Append has an event written. It does not wait for that.
func (t *Tails) Append(group, session string, stream, n uint64, data []byte) error {
	if len(data) > largest {
		return cmp.Or(t.add(group, session, idOf(stream, n), nil), errLarge)
	}
	err := t.add(group, session, idOf(stream, n), data)
	if err != nil && len(data) > 0 {
		_ = t.add(group, session, idOf(stream, n), nil) // what is lost is known then
	}
	return err
}

// Drop has nothing of a session that has ended replayed.
func (t *Tails) Drop(session string) {
	if err := t.add("", session, ended, nil); err != nil {
		t.log.Debug("the other nodes do not know that a session has ended", "error", err)
	}
}

// add has a record written.
func (t *Tails) add(group, session, id string, data []byte) error {
	who := owner.Named(group)
	r := &store.Record{
		Owner: ownerOf(session), Group: group, ID: id, Value: slices.Clone(data),
		Expires: time.Now().Add(lasts),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || !t.room.Take(who, len(data)+cost) {
		return errFull
	}
	t.queue = append(t.queue, event{who, r})
	t.signal()
	return nil
}

func (t *Tails) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// write writes what waits, until Close and all of that is written.
func (t *Tails) write() {
	defer close(t.idle)
	for {
		t.mu.Lock()
		all, closed := t.queue, t.closed
		t.queue = nil
		t.mu.Unlock()
		for _, e := range all {
			t.put(e)
		}
		if len(all) == 0 {
			if closed {
				return
			}
			<-t.wake
		}
	}
}

func (t *Tails) put(e event) {
	if t.ctx.Err() == nil { // else it is given up
		ctx, cancel := context.WithTimeout(t.ctx, timeout)
		defer cancel()
		if _, err := t.records.Put(ctx, e.record); err != nil {
			t.log.Debug("an event is not shared with the other nodes", "error", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.room.Give(e.owner, len(e.record.Value)+cost)
}

// Replay calls yield with the events of a stream that come after event n and are there, until
// yield fails.
func (t *Tails) Replay(
	session string, stream, n uint64, yield func(n uint64, data []byte) error,
) error {
	//nolint:forbidigo // the interface has no context
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if _, err := t.records.Get(ctx, ownerOf(session), ended); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	for missing := 0; missing < gap; {
		n++
		r, err := t.records.Get(ctx, ownerOf(session), idOf(stream, n))
		if missing++; errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if missing = 0; len(r.Value) == 0 {
			continue // it is lost
		}
		if err := yield(n, r.Value); err != nil {
			return err
		}
	}
	return nil
}

// Close writes what waits, as far as the store takes it in 2 s.
func (t *Tails) Close() {
	defer t.stop()
	defer time.AfterFunc(timeout, t.stop).Stop()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.signal()
	<-t.idle
}

func ownerOf(session string) string { return "events " + session }

func idOf(stream, n uint64) string {
	return strconv.FormatUint(stream, 10) + "-" + strconv.FormatUint(n, 10)
}
