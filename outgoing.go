package farcall

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// intercepted returns Options.CallInterceptors around send, or nil.
func (p *Peer) intercepted() Handler {
	all := p.opts.CallInterceptors
	if len(all) == 0 {
		return nil
	}
	var h Handler = HandlerFunc(p.send)
	for _, around := range slices.Backward(all) {
		h = around(h)
	}
	return h
}

// send is what the interceptors of calls have inside.
func (p *Peer) send(ctx context.Context, req *Request) (any, error) {
	if more := req.more; more != nil && more.part != nil {
		if result, err, joined := more.part.join(ctx, req); joined {
			return result, err
		}
	}
	if req.IsNotification() {
		return nil, p.notify(ctx, req.Method, req.Params)
	}
	var result jsonrpc.Raw
	if err := p.call(ctx, req.Method, req.Params, &result); err != nil {
		return nil, err
	}
	return result, nil
}

// intercept makes a call through the interceptors.
func (p *Peer) intercept(ctx context.Context, method string, params, result any) error {
	raw, err := appendParams(nil, params)
	if err != nil {
		return callError(method, err)
	}
	got, err := p.outgoing.ServeRPC(ctx, &Request{Method: method, ID: jsonrpc.NullID(), Params: raw})
	if err != nil {
		return err
	}
	return callError(method, take(got, result))
}

func (p *Peer) interceptNote(ctx context.Context, method string, params any) error {
	raw, err := appendParams(nil, params)
	if err != nil {
		return fmt.Errorf("farcall: notify %q: %w", method, err)
	}
	_, err = p.outgoing.ServeRPC(ctx, &Request{Method: method, Params: raw})
	return err
}

// take stores what interceptors returned, which may be their own, in what result points to.
func take(got, result any) error {
	raw, ok := got.(jsonrpc.Raw)
	if !ok && result != nil {
		var err error
		if raw, err = jsonv2.Append(nil, got); err != nil {
			return fmt.Errorf("the result of an interceptor cannot be marshalled: %w", err)
		}
	}
	if raw == nil {
		raw = jsonrpc.Raw("null")
	}
	return decode(raw, result)
}

// batchParts is a batch on its way through the interceptors, each element in its own goroutine. The
// frame is sent when all have come to send, or have ended.
type batchParts struct {
	mu    sync.Mutex
	left  int           // elements that have come to neither
	ready chan struct{} // closed when left is 0
	done  chan struct{} // closed when the frame is answered, or could not be sent
}

type batchPart struct {
	all     *batchParts
	settled bool       // all.mu's: it has come to send, or has ended
	sent    *BatchCall // as it came to send; nil: it has not
	result  jsonrpc.Raw
}

// settle counts the part, once.
func (b *batchPart) settle(as *BatchCall) (first bool) {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	if b.settled {
		return false
	}
	b.settled, b.sent = true, as
	if b.all.left--; b.all.left == 0 {
		close(b.all.ready)
	}
	return true
}

// join makes the part an element of the frame and waits for its answer. It reports false when the
// part was one already: it is sent again, alone.
func (b *batchPart) join(ctx context.Context, req *Request) (result any, err error, joined bool) {
	c := &BatchCall{
		Method: req.Method, Params: req.Params, Result: &b.result,
		Notify: req.IsNotification(),
	}
	if !b.settle(c) {
		return nil, nil, false
	}
	select {
	case <-b.all.done:
	case <-ctx.Done():
		return nil, callError(req.Method, ctx.Err()), true
	}
	if c.Err != nil || c.Notify {
		return nil, c.Err, true
	}
	return b.result, nil, true
}

// interceptBatch sends a batch through the interceptors.
func (p *Peer) interceptBatch(ctx context.Context, calls []*BatchCall) error {
	all := &batchParts{left: len(calls), ready: make(chan struct{}), done: make(chan struct{})}
	parts, requests := make([]*batchPart, len(calls)), make([]*Request, len(calls))
	for i, b := range calls {
		raw, err := appendParams(nil, b.Params)
		if err != nil {
			return fmt.Errorf("farcall: call %d of the batch, %q: %w", i, b.Method, err)
		}
		parts[i] = &batchPart{all: all}
		requests[i] = &Request{
			Method: b.Method, Params: raw, batch: true,
			more: &requestMore{part: parts[i]},
		}
		if !b.Notify {
			requests[i].ID = jsonrpc.NullID()
		}
	}
	var wg sync.WaitGroup
	panics := make(chan any, len(calls))
	for i, b := range calls {
		wg.Go(func() {
			defer parts[i].settle(nil)
			defer func() {
				if r := recover(); r != nil {
					panics <- r
				}
			}()
			var got any
			if got, b.Err = p.outgoing.ServeRPC(ctx, requests[i]); b.Err == nil && !b.Notify {
				b.Err = callError(b.Method, take(got, b.Result))
			}
		})
	}
	err := p.sendParts(ctx, parts)
	close(all.done)
	wg.Wait()
	select {
	case r := <-panics:
		panic(r) //nolint:forbidigo // an interceptor's, in the goroutine that made the batch
	default:
	}
	for _, b := range calls {
		if b.Err != nil {
			return err
		}
	}
	return nil // what failed was made good by an interceptor
}

// sendParts sends the frame once it is known what is in it.
func (p *Peer) sendParts(ctx context.Context, parts []*batchPart) error {
	select {
	case <-parts[0].all.ready:
	case <-ctx.Done():
	}
	var frame []*BatchCall
	all := parts[0].all
	all.mu.Lock()
	for _, part := range parts {
		part.settled = true // one that comes late is sent alone
		if part.sent != nil {
			frame = append(frame, part.sent)
		}
	}
	all.mu.Unlock()
	if len(frame) == 0 {
		return ctx.Err()
	}
	err := ctx.Err()
	if err == nil {
		err = p.batch(ctx, frame)
	} else {
		err = fmt.Errorf("farcall: batch: %w", err)
	}
	for _, b := range frame {
		if raw, ok := b.Result.(*jsonrpc.Raw); err != nil && b.Err == nil && ok && *raw == nil {
			// it was not sent
			b.Err = err
		}
	}
	return err
}
