package upstream

import "slices"

// connState is the state of a connection. Only pool.move changes it.
//
//	 start
//	   │
//	dialing ──── it was not reached, or no call waits  ───┐
//	   │ arrived                                            │
//	 ready ──── retired, with calls ──── draining           │
//	   │                                    │ the last call │
//	   │ retired, unused                    │ has ended     │
//	   └──────────────── closing ◄──────────┴───────────────┘
//	                        │ the client is closed
//	                     closed
type connState uint8

const (
	dialing  connState = iota // calls wait for it
	ready                     // it takes calls
	draining                  // it takes no more calls, and has some
	closing                   // its context has ended
	closed
)

func (s connState) String() string {
	return []string{"dialing", "ready", "draining", "closing", "closed"}[s]
}

// live reports whether a connection takes calls, or will.
func (s connState) live() bool { return s <= ready }

// leadsTo reports whether one state may follow another.
func (s connState) leadsTo(next connState) bool {
	switch next {
	case ready:
		return s == dialing
	case draining:
		return s == ready
	case closing:
		return s < closing
	case closed:
		return s == closing
	}
	return false
}

// move changes the state of a connection, and what follows from it. A change that leadsTo rules out is
// a bug: it fails tests, and is not made.
func (p *pool) move(l *conn, to connState) {
	from := l.state
	if !from.leadsTo(to) {
		p.opts.Logger.Error("a bug of farcall: a connection cannot change its state so", "from", from.String(), "to", to.String())
		return
	}
	l.state = to
	p.counts[from]--
	p.counts[to]++
	if from.live() && !to.live() {
		if from == ready {
			p.lost += l.client.Dropped()
		}
		l.holder.conns = slices.DeleteFunc(l.holder.conns, func(o *conn) bool { return o == l })
		p.tidy(l.holder)
	}
	switch to {
	case closing:
		l.cancel()
	case closed:
		p.counts[closed]--
		if l.holder.single {
			p.singles--
		}
	}
	p.turn()
}

// live is the number of connections that take calls, or will; places that of all that are not closed.
func (p *pool) live() int   { return p.counts[dialing] + p.counts[ready] }
func (p *pool) places() int { return p.live() + p.counts[draining] + p.counts[closing] }

// retire gives no more calls to a connection, and closes it when it has none.
func (p *pool) retire(l *conn) {
	switch {
	case l.state >= closing, l.state == draining && l.pending.n > 0:
	case l.pending.n > 0:
		p.move(l, draining)
	default:
		p.move(l, closing)
	}
}
