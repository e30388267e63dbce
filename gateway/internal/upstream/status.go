package upstream

import (
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/latency"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The states of an upstream.
const (
	StateIdle     = "idle"     // it is not needed
	StateStarting = "starting" // the first connection is on its way
	StateUp       = "up"
	StateDown     = "down" // the last attempt has failed
	StateOpen     = "open" // no call is tried for a while: the circuit breaker is open
)

// Status tells how an upstream fares.
type Status struct {
	State            string
	Since            time.Time // it is in that state
	Connections      int
	InFlight, Queued int
	Calls            uint64 // that have ended
	Errors           uint64 // of these, those that the server did not answer or that got no connection
	Dropped          uint64 // messages of the server that belong to no client, and late answers
	Retries          uint64
	Breaker          Breaker
	// LatencyP50 and LatencyP99 are of the calls that were answered, within an
	// eighth. 0: there were none.
	LatencyP50, LatencyP99 time.Duration
	LastError              string
	// Revision, Name and Version are the server's, as it has said last.
	Revision, Name, Version string
}

// stats is what is counted.
type stats struct {
	calls, errors, dropped, retries uint64
	latency                         latency.Histogram
}

// Status returns how the upstream fares now.
func (u *Upstream) Status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := Status{
		State: u.pool.mood, Since: u.pool.since, Connections: u.pool.live(),
		InFlight: u.queue.inFlight.Used(), Queued: u.queue.waiting.Len(),
		Calls: u.calls, Errors: u.errors, Dropped: u.dropped + u.pool.dropped(), Retries: u.retries,
		LatencyP50: u.latency.Quantile(50), LatencyP99: u.latency.Quantile(99),
		LastError: u.pool.lastError,
		Breaker:   u.pool.breaker.state(time.Now()),
	}
	if l := u.pool.slowest(); s.State == StateStarting && l != nil &&
		time.Since(l.begun) >= tellStart {
		s.LastError = u.startStory(l) // what is waited for
	}
	if u.pool.info != nil {
		s.Revision, s.Name, s.Version = u.pool.info.Revision, u.pool.info.Name, u.pool.info.Version
	}
	return s
}

// countLocked notes the end of an attempt.
func (u *Upstream) countLocked(pc *pendingCall, o outcome, again bool) {
	if pc.call.Method == describing || pc.call.Method == spec.MethodPing {
		return
	}
	if again {
		u.retries++
		return
	}
	u.calls++
	if o != answered && o != given {
		u.errors++
	}
}

// rejectedLocked notes the end of a call that has got no connection.
func (u *Upstream) rejectedLocked(pc *pendingCall) {
	if pc.call.Method == describing || pc.call.Method == spec.MethodPing {
		return
	}
	u.calls++
	if pc.ctx.Err() == nil {
		u.errors++
	}
}
