package upstream

import (
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The queue and the calls in flight are shared by owner and group, see [share.Queue] and
// [share.Places]: when the queue is full, the newest call of the owner with the most queued calls is
// rejected, and one owner alone leaves a sixteenth of MaxInFlight to others.
const reserved = 16

// queued puts a flight into the queue.
func (u *Upstream) queued(f *flight) {
	f.item = u.queue.Push(f.who.owner(), f)
	f.holder.waiting++
}

// unqueue takes a flight from the queue.
func (u *Upstream) unqueue(f *flight) {
	u.queue.Remove(f.item)
	f.item = nil
	f.holder.waiting--
}

// full reports whether there is no place in the queue for f, and none that an owner with more calls in
// it can give.
func (u *Upstream) full(f *flight) bool {
	if u.queue.Len() < u.opts.MaxQueue {
		return false
	}
	item := u.queue.Displace(f.who.owner())
	if item == nil {
		return true
	}
	last := item.Value
	if last.holder.single {
		u.release(last.holder) // no other call waits for that connection
	}
	u.refuse(last, u.refusal(jsonrpc.Overloaded, "Overloaded: %d calls wait for %s already, and %d of them are yours; try again later",
		u.queue.Len(), u.opts.Name, u.queue.Of(last.who.owner())))
	return false
}

// room reports whether f can be in flight. Of fewer than sixteen places none is left free: the turns of the
// queue are fair.
func (u *Upstream) room(f *flight) bool {
	switch most := u.opts.MaxInFlight; {
	case u.inFlight.Used() >= most:
		return false
	case most < reserved:
		return true
	default:
		return u.inFlight.Fits(share.Bounds{Total: most, Ratio: reserved - 1}, f.who.owner(), 0)
	}
}

// started counts a flight, for which there is room.
func (u *Upstream) started(f *flight) {
	f.place, _ = u.inFlight.Take(share.Bounds{}, f.who.owner(), 0)
}

// landed counts a flight that is over.
func (u *Upstream) landed(f *flight) { u.inFlight.Give(f.place, 0) }
