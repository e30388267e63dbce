package farcall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// partialToken is the member of the params by which LSP asks for progress.
const partialToken = "partialResultToken"

// A report is how a call reports progress to a caller that asked for it.
type report struct {
	token  jsonrpc.Raw // what the caller wants it to be marked with
	credit *credit     // nil: the caller gives none
}

// reporting returns how to report progress, nil when the caller did not ask: with the member
// progressToken of the message or, as MCP has it, of params._meta, or the partialResultToken of the
// params. Nil, too, once the handler has returned: the memory of the message may be in use for
// another.
func (s *serving) reporting() (r *report) {
	s.end.Before(func() {
		if x := s.rare(); x != nil && x.report != nil {
			r = x.report
		} else if r = s.asked(); r != nil {
			s.needRare().report = r
		}
	})
	return r
}

func (s *serving) asked() *report {
	t := extension(s.req.msg, "progressToken")
	if t == nil {
		t = scan.Member(s.req.msg.Params, partialToken)
	}
	if t == nil {
		return nil
	}
	return &report{token: slices.Clone(t), credit: newCredit(s)}
}

// Progress tells the caller how far a call has come. It does nothing when the
// caller did not ask for progress. It waits while the caller does not take what was sent
// before. It fails when the value cannot be marshalled, and when the context, the call or the
// connection has ended.
func Progress(ctx context.Context, value any) error {
	s := servingFrom(ctx)
	if s == nil {
		return nil
	}
	r := s.reporting()
	if r == nil {
		return s.Err()
	}
	raw, err := jsonv2.Append(nil, value)
	if err != nil {
		return err
	}
	counts := false
	if r.credit != nil {
		if counts, err = r.credit.draw(ctx, s, len(raw)+valueCost, s.yield); err != nil {
			return err
		}
	}
	return s.send(ctx, s.core.opts.Dialect.appendProgress(nil, s.req.msg.Version, r.token, raw, counts))
}

// yield lets another goroutine read, if the handler runs in the one that reads.
func (s *serving) yield() {
	if n := s.inline.Load(); n != 0 {
		s.peer.takeOver(n)
	}
}

// progressUnsent bounds what waits to be written before progress waits, too: a stream is longer
// than that.
const progressUnsent = 1 << 20

// send sends a frame to the caller while its call is under way.
func (s *serving) send(ctx context.Context, frame []byte) error {
	if p := s.peer; p != nil {
		return p.submit(ctx, &frame, min(progressUnsent, p.opts.MaxUnsent/4))
	}
	return s.push.send(frame)
}

// Stream calls a streaming method and yields its values as they arrive. When
// the method answers with an array instead, it yields the elements, and any
// other answer but null as the one value. Breaking off cancels the call. The
// last pair holds the error, if there was one.
func Stream[T any](ctx context.Context, c Caller, method string, params any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var zero T
		q := newProgressQueue()
		defer context.AfterFunc(ctx, q.hasten)()
		var result jsonrpc.Raw
		go func() { q.end(c.Call(context.WithValue(ctx, progressKey{}, q), method, params, &result)) }()
		for {
			raw, err, more := q.next()
			if !more {
				break
			}
			var v T
			if err == nil {
				err = decode(raw, &v)
			}
			if !yield(v, err) || err != nil {
				cancel()
				q.drop()
				return
			}
		}
		if q.count > 0 || len(result) == 0 || string(result) == "null" {
			return
		}
		if result[0] != '[' {
			var v T
			err := decode(result, &v)
			yield(v, err)
			return
		}
		var all []T
		if err := decode(result, &all); err != nil {
			yield(zero, err)
			return
		}
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// OnProgress returns a context for one call, which then asks for progress: f is
// called with each value in the order in which they arrive, by the goroutine that
// reads, before the call returns. f must not block, nor keep the value. Only a
// value that is on its way when the context ends may come after the call.
func OnProgress(ctx context.Context, f func(value jsonrpc.Raw)) context.Context {
	return context.WithValue(ctx, progressKey{}, progressFunc(f))
}

type progressKey struct{}

// progressSink takes the progress of a call.
type progressSink interface{ put(value jsonrpc.Raw) }

type progressFunc func(jsonrpc.Raw)

func (f progressFunc) put(value jsonrpc.Raw) { f(value) }

// progressed hands the value of a message to the stream that its token names. It reports
// false when there is none.
func (p *Peer) progressed(m *jsonrpc.Message, token, value jsonrpc.Raw) bool {
	n, work, ok := tokenOf(token)
	if !ok {
		return false
	}
	var c *call
	p.update(func(s *state) { c = s.calls[n] })
	switch {
	case c == nil:
		return false
	case work:
		return c.worked(value)
	case c.extras().queue == nil:
		return false
	}
	q := c.extra.queue
	stream, ok := q.(*progressQueue)
	if ok && stream.first() && string(scan.Member(m.Params, "credit")) == "true" {
		stream.counts()
	}
	q.put(value)
	if ok && stream.behind() {
		p.holdBack(stream)
	}
	return true
}

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
