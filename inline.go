package farcall

import (
	"sync"
	"sync/atomic"
	"time"
)

// Inline execution: the goroutine that reads a connection, its leader, runs the handlers of fast
// methods itself, so that a call crosses no goroutine. No handler delays another for longer than a
// tick, and only once:
//
//	               seen fast, often enough
//	┌───────────┐ ────────────────────────→ ┌──────────┐
//	│ elsewhere │                           │  inline  │
//	└───────────┘ ←──────────────────────── └──────────┘
//	  a method        timed slow twice, outlives the tick,
//	  begins here     or calls back and waits
//
// Elsewhere, each call has its own goroutine, and the leader reads on at once. A method that was
// never timed begins there, on trial: for its first few calls the leader waits a tick at most, so
// that answers of fast methods come in order from the first (initialize before what follows it);
// one that blocks ends its trial. A handler that outlives the tick inline loses the lead: another
// goroutine reads on from then, its method is elsewhere before it returns, and each time this
// happens it takes twice as many fast calls to come back.
//
// The turn tells who leads. It is odd while a handler runs inline; the goroutine that moves it from
// odd to even has the say:
//
//	even ── begin ──→ odd ── end: the handler has returned, and its goroutine reads on ──→ even
//	                   └──── take: the tick, or a call back; a new goroutine reads on ────→ even
//
// Each peer has its own tick. One for the process would save at most 3 % of a call where one
// connection is busy and 12 % where a thousand take turns (measured without any tick), and a timer
// that all peers share cannot be in two bubbles of testing/synctest, in which users test their
// servers.
const (
	// inlineTick is how often it is looked whether a handler is still the one that ran inline before.
	inlineTick = time.Millisecond
	// fastCall is how long the handler of a method may take to be inline. It is some ten times what
	// starting a goroutine costs.
	fastCall = 20 * time.Microsecond
	// sampleCalls: of a method that is inline, one call in so many is timed.
	sampleCalls = 64
	// mostTrials is how many calls a method has to show that it is fast.
	mostTrials = 8
	// mostRelapses bounds how often the way back to inline doubles.
	mostRelapses = 16
)

// load is where the calls of a method run, and what is known of how long they take.
type load struct {
	calls    atomic.Uint32
	inline   atomic.Bool
	trials   atomic.Int32 // calls that the leader has waited for
	fast     atomic.Int32 // timings in a row that were fast, elsewhere
	slow     atomic.Int32 // timings in a row that were slow, inline
	relapses atomic.Int32 // how often it outlived the tick
}

// sample counts a call and reports whether it is to be timed.
func (l *load) sample() bool {
	n := l.calls.Add(1)
	return !l.inline.Load() || n%sampleCalls == 1
}

// onTrial reports whether the leader is to wait for a call elsewhere, and counts it.
func (l *load) onTrial() bool {
	return l.trials.Load() < mostTrials && l.trials.Add(1) <= mostTrials
}

// timed takes a timing. One that is slow says little of a method that is inline: the machine was
// busy.
func (l *load) timed(took time.Duration) {
	switch inline := l.inline.Load(); {
	case took > fastCall && inline:
		if l.slow.Add(1) > 1 {
			l.inline.Store(false)
			l.slow.Store(0)
		}
		l.fast.Store(0)
	case took > fastCall:
		l.fast.Store(0)
	case inline:
		l.slow.Store(0)
	case l.fast.Add(1) >= 1<<l.relapses.Load():
		l.inline.Store(true)
	}
}

// blocked notes that a call has outlived the tick, or waits.
func (l *load) blocked() {
	l.fast.Store(0)
	l.trials.Store(mostTrials)
	if l.inline.CompareAndSwap(true, false) && l.relapses.Load() < mostRelapses {
		l.relapses.Add(1)
	}
}

// turns is who leads a connection.
type turns struct {
	n       atomic.Uint64 // odd while a handler runs inline
	running atomic.Pointer[load]
	armed   atomic.Bool
	seen    uint64 // by the previous tick
	mu      sync.Mutex
	timer   *time.Timer
	off     bool
}

// begin begins a handler inline. Only the leader calls it.
func (t *turns) begin(l *load, tick func()) uint64 {
	if t.running.Load() != l {
		t.running.Store(l)
	}
	n := t.n.Add(1)
	if !t.armed.Load() {
		t.arm(tick)
	}
	return n
}

// end reports whether the caller still leads.
func (t *turns) end(n uint64) bool { return t.n.CompareAndSwap(n, n+1) }

// take takes over the lead from the handler that runs in turn n.
func (t *turns) take(n uint64) bool { return n%2 == 1 && t.n.CompareAndSwap(n, n+1) }

func (t *turns) arm(tick func()) {
	if !t.armed.CompareAndSwap(false, true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.off:
	case t.timer == nil:
		t.timer = time.AfterFunc(inlineTick, tick)
	default:
		t.timer.Reset(inlineTick)
	}
}

// halt ends the ticks.
func (t *turns) halt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// onTick runs every inlineTick while handlers run inline. A handler that was there at the tick
// before has used up its time.
func (p *Peer) onTick() {
	t := &p.turns
	n := t.n.Load()
	if n != t.seen {
		t.seen = n
		t.mu.Lock()
		if !t.off {
			t.timer.Reset(inlineTick)
		}
		t.mu.Unlock()
		return
	}
	p.takeOver(n)
	t.armed.Store(false)
	if now := t.n.Load(); now != n && now%2 == 1 {
		t.arm(p.tick)
	}
}

// takeOver makes a new goroutine lead when the handler of turn n is still running.
func (p *Peer) takeOver(n uint64) {
	l := p.turns.running.Load() // that of n, if take succeeds: the next turn begins after n has ended
	// The place is reserved first: once the turn is taken, the goroutine of the handler may end at any
	// moment, and with it the last of the peer's.
	if !p.acquire() {
		return
	}
	if !p.turns.take(n) {
		p.exit()
		return
	}
	l.blocked()
	if p.keeper != nil {
		p.keeper.Keep()
	}
	p.launch(p.lead)
}

// runsInline reports whether the next call of a method is to run in the goroutine that reads.
func (p *Peer) runsInline(v *serving) bool { return !p.opts.NoInline && v.load.inline.Load() }

// elsewhere runs f, which handles v, in its own goroutine, and waits for it a little while the
// method is on trial. It reports true: the caller leads on.
func (p *Peer) elsewhere(v *serving, f func()) bool {
	if p.opts.NoInline || !v.load.onTrial() {
		p.start(f)
		return true
	}
	p.flush() // what is answered so far does not wait
	ended := make(chan struct{})
	p.start(func() {
		defer close(ended)
		f()
	})
	tick := time.NewTimer(inlineTick)
	defer tick.Stop()
	select {
	case <-ended:
	case <-tick.C:
		v.load.blocked()
	case <-p.ctx.Done():
	}
	return true
}

// inline runs a handler in the goroutine that reads. It reports whether the caller still leads.
func (p *Peer) inline(v *serving) (leads bool) {
	n := p.turns.begin(v.load, p.tick)
	v.inline.Store(n)
	if v.req.IsNotification() {
		p.notice(v)
	} else {
		p.serve(v)
	}
	return p.turns.end(n)
}
