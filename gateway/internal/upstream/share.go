package upstream

import (
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The queue and the calls in flight are shared by owner and group, see [share.Queue] and
// [share.Places]: when the queue is full, the newest call of the owner with the most queued calls is
// rejected, and one owner alone leaves a sixteenth of MaxInFlight to others.
const reserved = 16

// queued puts a pending call into the queue.
func (u *Upstream) queued(pc *pendingCall) {
	pc.item = u.queue.Push(pc.who.owner(), pc)
	pc.holder.waiting++
}

// unqueue takes a pending call from the queue.
func (u *Upstream) unqueue(pc *pendingCall) {
	u.queue.Remove(pc.item)
	pc.item = nil
	pc.holder.waiting--
}

// full reports whether there is no place in the queue for pc, and none that an owner with more calls in
// it can give.
func (u *Upstream) full(pc *pendingCall) bool {
	if u.queue.Len() < u.opts.MaxQueue {
		return false
	}
	item := u.queue.Displace(pc.who.owner())
	if item == nil {
		return true
	}
	last := item.Value
	if last.holder.single {
		u.pool.release(last.holder) // no other call waits for that connection
	}
	u.refuse(last, u.refusal(jsonrpc.Overloaded, "Overloaded: %d calls wait for %s already, and %d of them are yours; try again later",
		u.queue.Len(), u.opts.Name, u.queue.Of(last.who.owner())))
	return false
}

// room reports whether pc can be in flight. Of fewer than sixteen places none is left free: the turns of the
// queue are fair.
func (u *Upstream) room(pc *pendingCall) bool {
	switch most := u.opts.MaxInFlight; {
	case u.inFlight.Used() >= most:
		return false
	case most < reserved:
		return true
	default:
		return u.inFlight.Fits(share.Bounds{Total: most, Ratio: reserved - 1}, pc.who.owner(), 0)
	}
}

// started counts a pending call, for which there is room.
func (u *Upstream) started(pc *pendingCall) {
	pc.place, _ = u.inFlight.Take(share.Bounds{}, pc.who.owner(), 0)
}

// finished counts a pending call that is over.
func (u *Upstream) finished(pc *pendingCall) { u.inFlight.Give(pc.place, 0) }
