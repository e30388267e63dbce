package farcall

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// partialToken is the member of the params by which LSP asks for progress.
const partialToken = "partialResultToken"

// token returns what the caller wants progress to be marked with: the member
// progressToken of the message or, as MCP has it, of params._meta, or the partialResultToken of the params. Nil when the
// caller did not ask, and once the handler has returned: the memory of the message
// may be in use for another.
func (s *serving) token() (t jsonrpc.Raw) {
	s.end.Before(func() {
		if t = s.req.msg.Member("progressToken"); t == nil {
			t = scan.Member(scan.Member(s.req.msg.Params, "_meta"), "progressToken")
		}
		if t == nil {
			t = scan.Member(s.req.msg.Params, partialToken)
		}
		t = slices.Clone(t)
	})
	return t
}

// Progress tells the caller how far a call has come. It does nothing when the
// caller did not ask for progress. It fails when the value cannot be marshalled
// and when the connection has ended.
func Progress(ctx context.Context, value any) error {
	s := servingFrom(ctx)
	if s == nil {
		return nil
	}
	token := s.token()
	if token == nil {
		return nil
	}
	raw, err := jsonv2.Append(nil, value)
	if err != nil {
		return err
	}
	return s.send(ctx, s.core.opts.Dialect.appendProgress(nil, s.req.msg.Version, token, raw))
}

// send sends a frame to the caller while its call is under way.
func (s *serving) send(ctx context.Context, frame []byte) error {
	if s.peer != nil {
		return s.peer.sendFrame(ctx, frame)
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

// progressQueue holds the values of a call that have arrived and have not been
// taken yet.
type progressQueue struct {
	mu      sync.Mutex
	change  sync.Cond
	values  []jsonrpc.Raw
	bytes   int
	count   int // values that arrived
	ended   bool
	dropped bool // nobody takes any more
	err     error
}

// progressBytes bounds what a stream holds for a consumer that is slower.
const progressBytes = 64 << 20

// valueCost is what a value costs beside its bytes.
const valueCost = 64

var errSlowConsumer = errors.New("farcall: more than 64 MiB of the stream were not taken; take the values faster or ask for fewer")

func newProgressQueue() *progressQueue {
	q := &progressQueue{}
	q.change.L = &q.mu
	return q
}

func (q *progressQueue) put(value jsonrpc.Raw) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	if q.dropped {
		return
	}
	if q.bytes += len(value) + valueCost; q.bytes > progressBytes {
		q.dropped, q.err = true, errSlowConsumer
	} else {
		q.values = append(q.values, append(jsonrpc.Raw(nil), value...))
	}
	q.change.Broadcast()
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
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case len(q.values) > 0:
			value, q.values = q.values[0], q.values[1:]
			q.bytes -= len(value) + valueCost
			return value, nil, true
		case q.err != nil:
			return nil, q.err, true
		case q.ended:
			return nil, nil, false
		}
		q.change.Wait()
	}
}

// drop gives up the rest and waits for the end of the call.
func (q *progressQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped, q.values = true, nil
	for !q.ended {
		q.change.Wait()
	}
}

// progressed hands a value to the stream that its token names. It reports false
// when there is none.
func (p *Peer) progressed(token, value jsonrpc.Raw) bool {
	id, err := jsonrpc.ParseID(token)
	if err != nil {
		return false
	}
	n, ok := id.Uint()
	if !ok {
		return false
	}
	var q progressSink
	p.update(func(s *state) {
		if c := s.calls[n]; c != nil {
			q = c.queue
		}
	})
	if q == nil {
		return false
	}
	q.put(value)
	return true
}
