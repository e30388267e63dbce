package upstream

import (
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Nobody takes a server for himself. The places of the queue are in rounds, in each
// of which everybody has one, and when it is full the last call of him who has the
// most makes room. Of the places in flight the last few are for those who have taken
// few when they became scarce: calls may take long, and nobody who has come
// meanwhile is to wait for their end.

// A share is what a party has of the queue.
type share struct {
	waiting int
	round   uint64 // of the last of its calls
}

// queued puts a flight into the queue, after those of its round.
func (u *Upstream) queued(f *flight) {
	party := f.who.owner()
	s := u.shares[party]
	if s == nil {
		s = &share{round: u.round}
		if u.shares == nil {
			u.shares = map[owner.Key]*share{}
		}
		u.shares[party] = s
	} else {
		s.round = max(s.round+1, u.round)
	}
	s.waiting++
	f.round = s.round
	f.holder.waiting++
	before := u.queue.last
	for before != nil && before.round > f.round {
		before = before.prev
	}
	u.queue.insert(f, before)
}

// unqueue takes a flight from the queue.
func (u *Upstream) unqueue(f *flight) {
	u.queue.remove(f)
	f.holder.waiting--
	party := f.who.owner()
	if s := u.shares[party]; s.waiting > 1 {
		s.waiting--
	} else {
		delete(u.shares, party)
	}
}

// full reports whether there is no place in the queue for f, and none that somebody
// who has more of them can be expected to give.
func (u *Upstream) full(f *flight) bool {
	if u.queue.n < u.opts.MaxQueue {
		return false
	}
	mine, most, party := 0, 0, owner.Key{}
	for p, s := range u.shares {
		if s.waiting > most {
			most, party = s.waiting, p
		}
	}
	if s := u.shares[f.who.owner()]; s != nil {
		mine = s.waiting
	}
	if most < mine+2 {
		return true
	}
	last := u.queue.last
	for last.who.owner() != party {
		last = last.prev
	}
	if last.holder.single {
		u.release(last.holder) // nobody else waits for that lane
	}
	u.refuse(last, u.refusal(jsonrpc.Overloaded, "Overloaded: %d calls wait for %s already, and %d of them are yours; try again later", u.queue.n, u.opts.Name, most))
	return false
}

// reserved is the part of the places in flight that are for those who have few.
const reserved = 16

// room reports whether f can be in flight.
func (u *Upstream) room(f *flight) bool {
	switch most := u.opts.MaxInFlight; {
	case u.inFlight >= most:
		return false
	case u.inFlight >= most-most/reserved:
		return u.taken[f.who.owner()] < most/4
	}
	return true
}

// started counts a flight, and who has it when places are scarce.
func (u *Upstream) started(f *flight) {
	if u.inFlight++; u.inFlight <= u.opts.MaxInFlight/2 {
		return
	}
	if u.taken == nil {
		u.taken = map[owner.Key]int{}
	}
	u.taken[f.who.owner()]++
	f.scarce = true
}

// landed counts a flight that is over.
func (u *Upstream) landed(f *flight) {
	u.inFlight--
	if !f.scarce {
		return
	}
	f.scarce = false
	party := f.who.owner()
	if u.taken[party]--; u.taken[party] == 0 {
		delete(u.taken, party)
	}
}
