// Package late answers one question: which of many short things turn out to be
// long? Those need a timer, or a goroutine that watches them; the others should not
// have to pay for that.
package late

import (
	"cmp"
	"sync"
	"time"
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
	turn    uint64 // of the timer
	first   *Entry // the one that has begun first
	last    *Entry
	timer   *time.Timer
	running bool
}

// Thing is what a Watch calls once, when it is late. The watch is locked then: Late does not
// block, and does not use it.
type Thing interface{ Late() }

// An Entry is the place of a thing in a watch.
type Entry struct {
	thing      Thing // nil: it is in none
	turn       uint64
	prev, next *Entry
}

// Enter begins to watch a thing.
func (w *Watch) Enter(e *Entry, t Thing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.thing, e.turn = t, w.turn
	e.prev = w.last
	if w.last == nil {
		w.first = e
	} else {
		w.last.next = e
	}
	w.last = e
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
	if e.thing == nil {
		return
	}
	if e.prev == nil {
		w.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		w.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	*e = Entry{}
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
	for e := w.first; e != nil && e.turn < w.turn; e = w.first {
		t := e.thing
		w.remove(e)
		t.Late()
	}
	w.turn++
	if w.running = w.first != nil; w.running {
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

// A LimitKey finds a Limit.
type LimitKey struct{}
