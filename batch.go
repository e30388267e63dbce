package farcall

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// BatchCall is one call of a batch. See [Peer.Batch].
type BatchCall struct {
	Method string
	Params any
	Result any   // as in Caller.Call
	Notify bool  // send a notification: no answer comes
	Err    error // set by Batch, as Caller.Call returns it
}

// Batch sends calls in one frame and waits for the answers, which it matches by
// their ids. What becomes of a call is in its Err; Batch itself fails when none
// of them could be sent, and when the context ends first.
func (p *Peer) Batch(ctx context.Context, calls ...*BatchCall) error {
	if len(calls) == 0 {
		return errors.New("farcall: a batch must have at least one call") // JSON-RPC 2.0 §6
	}
	if p.outgoing != nil {
		return p.interceptBatch(ctx, calls)
	}
	return p.batch(ctx, calls)
}

func (p *Peer) batch(ctx context.Context, calls []*BatchCall) error {
	buf := getBuffer()
	*buf = append(*buf, '[')
	waits := make([]*call, 0, len(calls))
	observed := p.observeBatch(len(calls))
	defer observed.done(p, calls)
	for i, b := range calls {
		var id jsonrpc.ID
		var c *call
		if !b.Notify {
			var err error
			if c, err = p.newCall(ctx); err != nil {
				putBuffer(buf)
				return fmt.Errorf("farcall: batch: %w", err)
			}
			if len(waits) > 0 {
				c.batch = waits[0].batch
			}
			waits = append(waits, c)
			_, c.raw = b.Result.(*jsonrpc.Raw)
			id = c.wire()
		}
		if i > 0 {
			*buf = append(*buf, ',')
		}
		var err error
		at := len(*buf)
		ctx, seen := observed.begin(ctx, p, b, c)
		if *buf, err = p.appendRequest(ctx, *buf, id, b.Method, b.Params, asking{}); err != nil {
			putBuffer(buf)
			observed.unsent(err)
			return fmt.Errorf("farcall: call %d of the batch, %q: %w", i, b.Method, err)
		}
		seen.sent(p, (*buf)[at:])
	}
	*buf = append(*buf, ']')
	if err := p.sendBatch(ctx, buf, waits); err != nil {
		for _, b := range calls {
			b.Err = callError(b.Method, err)
		}
		return fmt.Errorf("farcall: batch: %w", err)
	}
	return p.awaitBatch(ctx, calls, waits)
}

func (p *Peer) sendBatch(ctx context.Context, buf *[]byte, waits []*call) error {
	if p.x != nil {
		defer putBuffer(buf)
		return p.exchange(ctx, *buf, waits)
	}
	return p.submit(ctx, buf, p.opts.MaxUnsent/4, waits...)
}

func (p *Peer) awaitBatch(ctx context.Context, calls []*BatchCall, waits []*call) (err error) {
	for _, b := range calls {
		b.Err = nil
		if b.Notify {
			continue
		}
		c := waits[0]
		waits = waits[1:]
		if b.Err = p.await(ctx, c); b.Err != nil {
			err = fmt.Errorf("farcall: batch: %w", b.Err)
			continue
		}
		b.Err = callError(b.Method, p.outcome(c, b.Result))
	}
	return err
}

const (
	// fewWorkers is how many goroutines share the elements of a batch of fast methods.
	fewWorkers = 16
	// batchTick is how often it is looked whether they get on.
	batchTick = time.Millisecond
)

// batchWork is a batch that arrived and is being handled: its elements
// concurrently, its answers in their order.
type batchWork struct {
	calls   []*serving // nil where there is nothing to run
	answers [][]byte   // by element; empty where there is none
	workers int        // that may run at once; one that waits for its own call does not count
	next    atomic.Int64
	left    atomic.Int64 // calls that have not ended
	spawn   func(f func())
	enter   func(v *serving) *jsonrpc.Error // admits an element, or refuses it
	leave   func(v *serving)
	done    func()
	earlier *batchWork // the state's: the one before it in state.batches

	mu      sync.Mutex // of what follows
	started int        // workers so far, without those for elements that wait
	seen    int64      // next, at the tick before
	timer   *time.Timer
	over    bool

	// Where places are shared with other callers (waits), elements that find none wait for those of
	// the batch that have one: running counts these, postponed has the others.
	waits     bool
	running   int
	postponed []int
}

func (s *serving) inBatch(b *batchWork) { s.batch, s.req.batch = b, true }

// start runs the calls and then done, as they would run if each had come alone: each one that may
// take long has a goroutine at once, up to the bound, and those that are fast share a few.
func (b *batchWork) start() {
	n, fast := 0, 0
	for _, v := range b.calls {
		if v == nil {
			continue
		}
		if n++; v.load.inline.Load() {
			fast++
		}
	}
	b.left.Store(int64(n))
	if n == 0 {
		b.done()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started = min(n-fast+min(fast, fewWorkers), b.workers)
	for range b.started {
		b.another()
	}
	if b.started < min(n, b.workers) {
		b.timer = time.AfterFunc(batchTick, b.tick)
	}
}

// tick starts more workers when those that there are have not got on: a fast method blocks.
func (b *batchWork) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.next.Load()
	if b.over || int(next) >= len(b.calls) {
		return
	}
	if next == b.seen {
		more := min(b.started, b.workers-b.started)
		for range more {
			b.another()
		}
		b.started += more
	}
	b.seen = next
	if b.started < b.workers {
		b.timer.Reset(batchTick)
	}
}

// ended ends the ticks, while a worker is still there.
func (b *batchWork) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// another adds a worker, when there is work for it.
func (b *batchWork) another() {
	if int(b.next.Load()) < len(b.calls) {
		b.spawn(b.work)
	}
}

func (b *batchWork) work() {
	for {
		i, ok := b.take()
		if !ok {
			return
		}
		if b.calls[i] == nil {
			continue
		}
		refusal, postponed := b.admit(i, b.calls[i])
		if postponed {
			return
		}
		b.serve(i, b.calls[i], refusal)
	}
}

// take returns the next element to run.
func (b *batchWork) take() (i int, ok bool) {
	if i = int(b.next.Add(1)) - 1; i < len(b.calls) {
		return i, true
	}
	if !b.waits {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.postponed) == 0 {
		return 0, false
	}
	i, b.postponed = b.postponed[0], b.postponed[1:]
	return i, true
}

// admit finds a place for an element, or refuses it, or postpones it.
func (b *batchWork) admit(i int, v *serving) (refusal *jsonrpc.Error, postponed bool) {
	if !b.waits {
		return b.enter(v), false
	}
	b.mu.Lock() // around enter, so that running has each element that has a place
	defer b.mu.Unlock()
	refusal = b.enter(v)
	switch {
	case refusal == nil:
		b.running++
	case b.running > 0: // one of those takes it when it has ended
		b.postponed = append(b.postponed, i)
		return nil, true
	}
	return refusal, false
}

// release gives the place of an element back.
func (b *batchWork) release(v *serving) {
	b.leave(v)
	if b.waits {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.running--
	}
}

func (b *batchWork) serve(i int, v *serving, refusal *jsonrpc.Error) {
	defer func() {
		if b.left.Add(-1) == 0 {
			b.ended()
			b.done()
		}
	}()
	if refusal != nil {
		if !v.req.IsNotification() {
			b.answers[i] = v.core.refused(v, nil, v.req.msg, refusal, true)
		}
		return
	}
	ended := false
	defer func() {
		if !ended {
			b.answers[i] = v.goexit(nil)
		}
		b.release(v)
		v.cancel(context.Canceled)
		if !ended { // the handler ended its goroutine (runtime.Goexit), and so this worker
			b.spawn(b.work)
		}
	}()
	b.answers[i] = v.call(nil)
	ended = true
}

// reply appends the answers as one array, or nothing when there are none
// (JSON-RPC 2.0 §6).
func (b *batchWork) reply(dst []byte) []byte {
	at := len(dst)
	for _, a := range b.answers {
		if len(a) == 0 {
			continue
		}
		if len(dst) == at {
			dst = append(dst, '[')
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, a...)
	}
	if len(dst) > at {
		dst = append(dst, ']')
	}
	return dst
}

// cutOff appends the answers that there are, and e for the requests that are still handled.
func (b *batchWork) cutOff(dst []byte, handled map[*serving]bool, e *jsonrpc.Error) []byte {
	so := batchWork{answers: make([][]byte, len(b.answers))}
	for i, v := range b.calls {
		if handled[v] { // its answer is not there yet, or not for others to read
			so.answers[i] = v.req.version.AppendError(nil, v.req.ID, e)
		} else {
			so.answers[i] = b.answers[i]
		}
	}
	return so.reply(dst)
}

// answeredBatch removes a batch.
func (s *state) answeredBatch(w *batchWork) {
	at := &s.batches
	for *at != w {
		at = &(*at).earlier
	}
	*at, w.earlier = w.earlier, nil
}

// receiveBatch handles a batch. Its notifications take their turn with the
// others; its requests run concurrently.
func (p *Peer) receiveBatch(l *leader, frame []byte) {
	// The batch outlives the frame. Copying a small one is cheaper than leaving
	// the reader's memory to it.
	if !l.fresh && len(frame) < largeFrame {
		frame = append([]byte(nil), frame...)
		if err := l.dec.Decode(frame, &l.batch); err != nil {
			p.refuse(&jsonrpc.Message{Raw: frame}, err)
			return
		}
	} else {
		p.keep(l)
	}
	messages := l.batch.Messages
	l.batch = jsonrpc.Batch{}
	l2 := *l
	l2.fresh = true // the parts of this frame are ours now
	w := &batchWork{
		calls: make([]*serving, len(messages)), answers: make([][]byte, len(messages)),
		workers: p.opts.MaxInFlight, spawn: p.start,
	}
	requests := 0
	for i := range messages {
		switch m := &messages[i]; m.Kind {
		case jsonrpc.Response:
			p.deliver(&l2, m)
		case jsonrpc.Notification:
			p.notifiedInBatch(m, len(frame))
		case jsonrpc.Request:
			w.calls[i] = p.newServing(m, 0)
			w.calls[i].inBatch(w)
			w.calls[i].size = 0 // the frame is booked as a whole
			requests++
		default:
			w.answers[i] = p.refused(p.handling, nil, m, m.Err, true)
			p.update(func(s *state) { s.counts.refused++ })
		}
	}
	p.serveBatch(w, max(len(frame), requests*leastSize))
}

// notifiedInBatch handles a notification in a frame of so many bytes. It waits
// its turn without the rest of them.
func (p *Peer) notifiedInBatch(m *jsonrpc.Message, frame int) {
	if p.control(m) {
		return
	}
	p.update(func(s *state) { s.counts.notifications++ })
	alone := *m
	if len(m.Raw) < frame/2 {
		alone = m.Clone()
	}
	v := p.newServing(&alone, len(m.Raw))
	v.req.batch = true
	p.later(v)
}

// serveBatch books the requests of a batch, or refuses them, and starts them.
func (p *Peer) serveBatch(w *batchWork, size int) {
	refusals := make(map[int]*jsonrpc.Error)
	ended, refused := false, false
	p.update(func(s *state) {
		if ended = s.err != nil; ended {
			return
		}
		w.earlier, s.batches = s.batches, w
		full := p.admit(s, size)
		refused = full != nil
		for i, v := range w.calls {
			switch {
			case v == nil:
				continue
			case full != nil:
				refusals[i] = full
			case !s.enter(v):
				refusals[i] = duplicate()
			}
			s.counts.requests++
		}
		if !refused {
			s.book(size)
		}
	})
	if ended {
		return
	}
	for i, e := range refusals {
		w.answers[i] = p.refused(p.handling, nil, w.calls[i].req.msg, e, true)
		w.calls[i] = nil
	}
	w.enter = func(*serving) *jsonrpc.Error {
		p.update(func(s *state) { s.running++ })
		return nil
	}
	w.leave = func(v *serving) {
		p.update(func(s *state) {
			s.leave(v)
			s.running--
		})
	}
	w.done = func() {
		p.update(func(s *state) {
			if !refused {
				s.unbook(size)
			}
		})
		buf := getBuffer()
		*buf = w.reply(*buf)
		p.reply(nil, buf, w.calls...)
		p.update(func(s *state) {
			s.answeredBatch(w)
			if s.drain {
				s.wake()
			}
		})
		p.flush()
	}
	w.start()
}

// respondBatch handles a batch for a Responder, which waits for it.
func (r *Responder) respondBatch(
	ctx context.Context, messages []jsonrpc.Message, push *pusher,
) []byte {
	var wg sync.WaitGroup
	w := &batchWork{
		calls: make([]*serving, len(messages)), answers: make([][]byte, len(messages)),
		workers: r.opts.MaxInFlight, spawn: func(f func()) { wg.Go(f) }, waits: true,
		enter: r.enter, leave: r.leave, done: func() {},
	}
	for i := range messages {
		switch m := &messages[i]; m.Kind {
		case jsonrpc.Request, jsonrpc.Notification:
			w.calls[i] = r.newServing(ctx, m, push)
			w.calls[i].inBatch(w)
		case jsonrpc.Response: // no call waits for it here
		default:
			w.answers[i] = r.refused(ctx, nil, m, m.Err, true)
		}
	}
	w.start()
	wg.Wait()
	return w.reply(nil)
}
