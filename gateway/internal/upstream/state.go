package upstream

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
