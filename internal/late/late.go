// Package late answers one question: which of many short things turn out to be
// long? Those need a timer, or a goroutine that watches them; the others should not
// have to pay for that.
package late

import (
	"cmp"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/chain"
)

// After is how long a thing may take where a Watch does not say so.
const After = 10 * time.Millisecond

// A Watch looks out for things that are late. The zero value is ready. One timer
// runs while there are any, and none otherwise.
type Watch struct {
	// After is how long a thing may take. It is late some time between that and
	// twice as much. It is set before the first use. Default: the constant After.
	After time.Duration

	mu      sync.Mutex
	turn    uint64            // of the timer
	entries chain.List[Entry] // the one that has begun first is first
	timer   *time.Timer
	running bool
}

// Thing is what a Watch calls once, when it is late. The watch is locked then: Late does not
// block, and does not use it.
type Thing interface{ Late() }

// An Entry is the place of a thing in a watch.
type Entry struct {
	thing Thing // nil: it is in none
	turn  uint64
	node  chain.Node[Entry]
}

// Enter begins to watch a thing.
func (w *Watch) Enter(e *Entry, t Thing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.thing, e.turn, e.node.Of = t, w.turn, e
	w.entries.Push(&e.node)
	if !w.running {
		w.run()
	}
}

// Leave ends that. The thing is not told any more once it returns.
func (w *Watch) Leave(e *Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(e)
}

func (w *Watch) remove(e *Entry) {
	if e.thing != nil {
		w.entries.Remove(&e.node)
		*e = Entry{}
	}
}

func (w *Watch) run() {
	w.running = true
	after := cmp.Or(w.After, After)
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.tick)
		return
	}
	w.timer.Reset(after)
}

// tick tells the things that were there at the tick before.
func (w *Watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := w.entries.First; n != nil && n.Of.turn < w.turn; n = w.entries.First {
		t := n.Of.thing
		w.remove(n.Of)
		t.Late()
	}
	w.turn++
	if w.running = w.entries.First != nil; w.running {
		w.run()
	}
}

// A Call is a call under way that may be given up, without a context that
// has to be made for it.
type Call interface {
	// GiveUp ends the call, as the end of its context does, but with that reason.
	// It does nothing when the call has ended.
	GiveUp(reason error)
}

// A Limit bounds calls. It is the value of a LimitKey in their contexts.
type Limit interface {
	// Began receives the call before it is sent.
	Began(c Call)
}

// A LimitKey finds a Limit. It stands for a context that can be cancelled, with which a call takes
// 3 to 5 allocations and 200 to 480 bytes more (BenchmarkForward of package mcp).
type LimitKey struct{}
