package limit

import (
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	// A refused caller is asked to come back in about as long as a call takes.
	firstHint = 100 * time.Millisecond
	leastHint = 10 * time.Millisecond
	mostHint  = 10 * time.Second

	hintWeight = 16 // calls that the mean goes over, about

	// lately is for how long an owner that does not call any more still has a place.
	lately = time.Second

	// reserve is the part of all places that one owner alone leaves free: an eighth.
	reserve = 8
)

// newBounds returns the bounds of running calls: of one owner, and of all.
func newBounds(concurrent, total int) share.Bounds {
	return share.Bounds{
		Total: max(total, 0), Owner: max(concurrent, 0),
		Group: timesFactor(concurrent), Ratio: reserve - 1,
	}
}

func concurrentText(n int) string { return strconv.Itoa(n) + " at once for each principal" }

func addressText(n int) string {
	return strconv.Itoa(n) + " at once for the anonymous sessions and connections of an address"
}

func totalText(n int) string { return strconv.Itoa(n) + " at once for all" }

// places are those of the running calls.
type places struct {
	mu    sync.Mutex
	held  *share.Places
	mean  time.Duration // of the calls that ended
	spare []*place
}

// A place is that of a call. Calls use it one after the other: turn says which.
type place struct {
	turn   uint64
	holder *share.Holder
	since  int64
}

func newPlaces() *places { return &places{held: share.NewPlaces(int64(lately)), mean: firstHint} }

// take finds a place.
func (p *places) take(
	b share.Bounds, o owner.Key, c *clock, now int64,
) (release func(), refused *Exceeded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, denied := p.held.Take(b, o, now)
	switch denied {
	case share.Granted:
	case share.OverOwner:
		return nil, exceeded(concurrentText(b.Owner), clampHint(p.mean))
	case share.OverGroup:
		return nil, exceeded(addressText(b.Group), clampHint(p.mean))
	case share.Full: // the next place that becomes free is for this owner
		return nil, exceeded(totalText(b.Total), clampHint(p.mean/time.Duration(b.Total)))
	default:
		return nil, exceeded(totalText(b.Total), clampHint(p.mean))
	}
	t := p.placeLocked()
	t.holder, t.since = h, now
	turn := t.turn
	return func() { p.release(t, turn, c) }, nil
}

func clampHint(d time.Duration) time.Duration { return min(max(d, leastHint), mostHint) }

func (p *places) placeLocked() *place {
	n := len(p.spare)
	if n == 0 {
		return new(place)
	}
	t := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return t
}

// release gives a place back. The second time it does nothing.
func (p *places) release(t *place, turn uint64, c *clock) {
	now := c.read().at
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.turn != turn {
		return
	}
	t.turn++
	p.mean += (time.Duration(max(0, now-t.since)) - p.mean) / hintWeight
	p.held.Give(t.holder, now)
	t.holder = nil
	p.spare = append(p.spare, t)
}

// counts returns the running calls of an owner, of its group, and of all.
func (p *places) counts(o owner.Key) (mine, group, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held.Count(o)
}
