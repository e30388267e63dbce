// Package process answers one question: what does a process have at any engine that several share?
package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// OperationTimeout bounds an operation when its context has no deadline.
	OperationTimeout = 5 * time.Second
	// PresenceTTL is after which time a process is taken to have ended that has not said that it is
	// there. Only Adopt asks. A process that is wrongly taken to have ended finds that the versions
	// of its records have grown.
	PresenceTTL = 12 * time.Second

	presencePause = 3 * time.Second
)

// A Process is one process at an engine, from Open to Close. B is one Subscribe of a topic.
type Process[B interface {
	comparable
	Stop()
}] struct {
	ID      string
	Name    string        // of the store
	Skew    time.Duration // by how much the clocks of the processes may differ
	Lease   time.Duration // how long a worker keeps an item without a sign of life
	Logger  *slog.Logger
	Context context.Context //nolint:containedctx // ends with Close
	Wait    sync.WaitGroup  // what Close waits for

	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	buses  map[B]struct{}
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Open begins, with the defaults in place of zero values. The context ends with Close only. engine
// stands before an error.
func (p *Process[B]) Open(ctx context.Context, engine string) error {
	p.ID, p.buses = rand.Text(), map[B]struct{}{}
	p.Name = cmp.Or(p.Name, "farcall")
	p.Skew, p.Lease = cmp.Or(p.Skew, time.Minute), cmp.Or(p.Lease, 30*time.Second)
	p.Logger = cmp.Or(p.Logger, slog.Default())
	if len(p.Name) > 40 || !nameRule.MatchString(p.Name) {
		return fmt.Errorf("%s: Name %q: 1 to 40 letters, digits, - and _ are allowed", engine, p.Name)
	}
	//nolint:gosec // Close calls cancel
	p.Context, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return nil
}

// Close ends the context and all subscriptions, and waits. It reports false the second time.
func (p *Process[B]) Close() bool {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	all := slices.Collect(maps.Keys(p.buses))
	p.mu.Unlock()
	if first {
		p.cancel()
		for _, b := range all {
			b.Stop()
		}
		p.Wait.Wait()
	}
	return first
}

// Closed reports whether Close was called.
func (p *Process[B]) Closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Subscribe keeps a subscription, which Close stops. It reports false after Close.
func (p *Process[B]) Subscribe(b B) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.buses[b] = struct{}{}
	}
	return !p.closed
}

// Unsubscribe forgets a subscription.
func (p *Process[B]) Unsubscribe(b B) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buses, b)
}

// Tell calls tell with each subscription, each in its own goroutine.
func (p *Process[B]) Tell(tell func(B)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for b := range p.buses {
		p.Wait.Go(func() { tell(b) })
	}
}

// Bound gives an operation an end: that of its context, of the store, or 5 s.
func (p *Process[B]) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, OperationTimeout)
	stop := context.AfterFunc(p.Context, cancel)
	return ctx, func() { stop(); cancel() }
}

// Announce tells other processes that this one is there, by present, until Close.
func (p *Process[B]) Announce(ctx context.Context, present func(context.Context) error) error {
	if err := present(ctx); err != nil {
		return err
	}
	p.Wait.Go(func() {
		tick := time.NewTicker(presencePause)
		defer tick.Stop()
		for {
			select {
			case <-p.Context.Done():
				return
			case <-tick.C:
			}
			if err := present(p.Context); err != nil && p.Context.Err() == nil {
				p.Logger.Warn("store: cannot announce this process to the others", slog.Any("error", err))
			}
		}
	})
	return nil
}

// Identity is the owner and the id of a record, as one text.
func Identity(owner, id string) string { return strconv.Itoa(len(owner)) + ":" + owner + id }

// Hash makes a part of a key of any text.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:20])
}
