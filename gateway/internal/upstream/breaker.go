package upstream

import "time"

// maxBreak bounds the pause that a server can ask for.
const maxBreak = time.Minute

// A breaker keeps calls from a server that cannot be reached. It is part of the
// state.
type breaker struct {
	after int
	pause time.Duration

	failures int
	age      uint64    // failures in all
	until    time.Time // zero: closed. Past: one call may try
	trial    time.Time // when the last one to try began
}

// admit reports whether a call may be made, and otherwise when to come back. A
// trial decides for the others.
func (b *breaker) admit(now time.Time) (trial, ok bool, wait time.Duration) {
	if trial, ok, wait = b.peek(now); trial {
		b.trial = now
	}
	return trial, ok, wait
}

// peek says what admit would.
func (b *breaker) peek(now time.Time) (trial, ok bool, wait time.Duration) {
	switch {
	case b.until.IsZero():
		return false, true, 0
	case now.Before(b.until):
		return false, false, b.until.Sub(now)
	case !b.trial.IsZero() && now.Sub(b.trial) < b.pause:
		// One that takes longer, because its user is asked for example, says nothing.
		return false, false, max(b.pause-now.Sub(b.trial), time.Millisecond)
	}
	return true, true, 0
}

// Breaker is the state of a circuit breaker.
type Breaker uint8

// The states of a breaker.
const (
	BreakerClosed Breaker = iota // calls are made
	BreakerTrial                 // one call may try, or tries
	BreakerOpen                  // calls are refused
)

func (b *breaker) state(now time.Time) Breaker {
	switch {
	case b.until.IsZero():
		return BreakerClosed
	case now.Before(b.until):
		return BreakerOpen
	}
	return BreakerTrial
}

// succeeded notes that the server has answered. It reports whether it could not
// be called before.
func (b *breaker) succeeded() (closed bool) {
	closed = !b.until.IsZero()
	b.failures, b.until, b.trial = 0, time.Time{}, time.Time{}
	return closed
}

// fail notes a failure of what began at an age. Those that fail together count
// once. after is when the server wants to be called again, which may lengthen the pause.
func (b *breaker) fail(now time.Time, begun uint64, after time.Duration) {
	if begun != b.age {
		return
	}
	b.age++
	b.failures++
	if b.after > 0 && b.failures >= b.after {
		b.until, b.trial = now.Add(max(b.pause, min(after, maxBreak))), time.Time{}
	}
}

// forgo: a trial has ended without an outcome.
func (b *breaker) forgo() { b.trial = time.Time{} }

func (b *breaker) open() bool { return !b.until.IsZero() }
