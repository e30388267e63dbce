package farcall

import (
	"errors"
	"fmt"
	"sync"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// progressQueue holds the values of a stream that have arrived and were not taken yet.
type progressQueue struct {
	mu       sync.Mutex
	change   sync.Cond
	values   []jsonrpc.Raw
	bytes    int // what values cost
	count    int // values that arrived
	ended    bool
	dropped  bool // nothing is taken any more
	hastened bool // the context of the call has ended: put does not wait
	err      error

	call     *call
	arrived  int64 // what the values of the call have cost
	limit    int64 // what they may cost
	counted  bool  // the producer counts
	released bool  // another call goes first: see Peer.holdBack
}

// progressBytes bounds what a stream holds for a consumer that is slower, where nothing slows the
// producer.
const progressBytes = 64 << 20

var (
	errSlowConsumer = errors.New("farcall: more than 64 MiB of the stream were not taken; take the values faster or ask for fewer")
	errOverrun      = fmt.Errorf("%w: it sent more of the stream than it was given credit for", ErrProtocol)
)

func newProgressQueue() *progressQueue {
	q := &progressQueue{}
	q.change.L = &q.mu
	return q
}

// begin notes by which call the stream comes: one that is made again has another. It returns the
// credit to begin with; 0 for none.
func (q *progressQueue) begin(c *call) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.call, q.arrived, q.counted = c, 0, false
	if q.limit = streamWindow; c.peer.x != nil || c.peer.opts.Dialect.CreditMethod == "" {
		return 0
	}
	return q.limit
}

// put adds a value. Where the transport carries nothing but this call it waits for room.
func (q *progressQueue) put(value jsonrpc.Raw) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.call != nil && q.call.peer.x != nil && q.behindLocked() {
		q.change.Wait()
	}
	q.count++
	if q.dropped || q.hastened {
		return
	}
	cost := len(value) + valueCost
	overrun := q.counted && q.arrived >= q.limit
	q.arrived += int64(cost)
	switch q.bytes += cost; {
	case overrun:
		q.dropped, q.err = true, errOverrun
	case q.bytes > progressBytes:
		q.dropped, q.err = true, errSlowConsumer
	default:
		q.values = append(q.values, append(jsonrpc.Raw(nil), value...))
	}
	q.change.Broadcast()
}

// behindLocked reports whether the consumer has a whole window to take.
func (q *progressQueue) behindLocked() bool {
	return q.bytes >= streamWindow && !q.ended && !q.dropped && !q.hastened
}

// behind is behindLocked where it matters: the producer does not count.
func (q *progressQueue) behind() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.counted && q.behindLocked()
}

// awaitRoom waits until the consumer is not behind, or another call goes first.
func (q *progressQueue) awaitRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.behindLocked() && !q.released {
		q.change.Wait()
	}
	q.released = false
}

// release ends awaitRoom.
func (q *progressQueue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released = true
	q.change.Broadcast()
}

// hasten ends the waiting of put.
func (q *progressQueue) hasten() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hastened = true
	q.change.Broadcast()
}

// first reports whether the next value is the first of its call, which says whether the producer
// counts.
func (q *progressQueue) first() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.arrived == 0
}

// counts notes that the producer counts.
func (q *progressQueue) counts() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted = true
}

// end notes that the call has ended.
func (q *progressQueue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	if q.err == nil {
		q.err = err
	}
	q.change.Broadcast()
}

// next waits for the next value. more is false at the end of the stream.
func (q *progressQueue) next() (value jsonrpc.Raw, err error, more bool) {
	value, grant, err, more := q.take()
	if grant != nil {
		grant()
	}
	return value, err, more
}

func (q *progressQueue) take() (value jsonrpc.Raw, grant func(), err error, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case len(q.values) > 0:
			value, q.values = q.values[0], q.values[1:]
			q.bytes -= len(value) + valueCost
			q.change.Broadcast()
			return value, q.grantLocked(), nil, true
		case q.err != nil:
			return nil, nil, q.err, true
		case q.ended:
			return nil, nil, nil, false
		}
		q.change.Wait()
	}
}

// grantLocked returns what grants more once half of a window is free, else nil.
func (q *progressQueue) grantLocked() func() {
	limit := q.arrived - int64(q.bytes) + streamWindow
	if !q.counted || q.ended || q.dropped || limit < q.limit+streamWindow/2 {
		return nil
	}
	q.limit = limit
	c := q.call
	return func() { c.peer.grant(c, limit) }
}

// drop gives up the rest and waits for the end of the call.
func (q *progressQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped, q.values = true, nil
	q.change.Broadcast()
	for !q.ended {
		q.change.Wait()
	}
}
