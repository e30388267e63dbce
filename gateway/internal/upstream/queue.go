package upstream

import (
	"iter"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// A queue answers which call is next. It has the calls that wait for a connection and counts those
// in flight, both shared by owner and group, see [share.Queue] and [share.Places]: when the queue
// is full, the newest call of the owner with the most queued calls is rejected, and one owner alone
// leaves a sixteenth of MaxInFlight to others.
//
// The lock of the upstream guards all of it, as for a [pool].
type queue struct {
	opts     *Options
	waiting  share.Queue[*pendingCall] // that have no connection yet
	inFlight *share.Places
}

// reserved is the part of MaxInFlight that one owner alone leaves to others: one of so many.
const reserved = 16

func newQueue(o *Options) queue { return queue{opts: o, inFlight: share.NewPlaces(0)} }

// all returns the waiting calls in the order of their turns. They may be removed meanwhile.
func (q *queue) all() iter.Seq[*share.Item[*pendingCall]] { return q.waiting.All() }

// push adds a call that waits.
func (q *queue) push(pc *pendingCall) {
	pc.item = q.waiting.Push(pc.who.owner(), pc)
	pc.holder.waiting++
}

// remove takes out a call that waits no more, and has had no turn.
func (q *queue) remove(pc *pendingCall) {
	q.waiting.Remove(pc.item)
	pc.item = nil
	pc.holder.waiting--
}

// serve takes out a call that has its turn.
func (q *queue) serve(pc *pendingCall) {
	q.waiting.Serve(pc.item)
	pc.item = nil
	pc.holder.waiting--
}

// makeRoom returns the waiting call to reject so that there is room for one of an owner. Nil: there
// is room, or, when full, there is none that an owner with more calls can give.
func (q *queue) makeRoom(of owner.Key) (reject *pendingCall, full bool) {
	if q.waiting.Len() < q.opts.MaxQueue {
		return nil, false
	}
	if item := q.waiting.Displace(of); item != nil {
		return item.Value, false
	}
	return nil, true
}

// open reports whether any call can be in flight.
func (q *queue) open() bool { return q.inFlight.Used() < q.opts.MaxInFlight }

// room reports whether pc can be in flight. Of fewer than sixteen places none is left free: the
// turns of the queue are fair.
func (q *queue) room(pc *pendingCall) bool {
	switch most := q.opts.MaxInFlight; {
	case !q.open():
		return false
	case most < reserved:
		return true
	default:
		return q.inFlight.Fits(share.Bounds{Total: most, Ratio: reserved - 1}, pc.who.owner(), 0)
	}
}

// begin counts a call in flight, for which there is room.
func (q *queue) begin(pc *pendingCall) {
	pc.place, _ = q.inFlight.Take(share.Bounds{}, pc.who.owner(), 0)
}

// end counts a call that is over.
func (q *queue) end(pc *pendingCall) { q.inFlight.Give(pc.place, 0) }

// idle reports whether no call waits or is in flight.
func (q *queue) idle() bool { return q.inFlight.Used() == 0 && q.waiting.Len() == 0 }
