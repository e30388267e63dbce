package farcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
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
	return s.send(ctx,
		s.core.opts.Dialect.appendProgress(nil, s.req.msg.Version, r.token, raw, counts))
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
	errSlowConsumer = errors.New(
		"farcall: more than 64 MiB of the stream were not taken; take the values faster or ask for fewer")
	errOverrun = fmt.Errorf("%w: it sent more of the stream than it was given credit for",
		ErrProtocol)
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

const (
	// workToken is the member of the params by which LSP asks how far a call has come.
	workToken = "workDoneToken"
	// maxWorkToken bounds a token in bytes: it is repeated in each report.
	maxWorkToken = 1 << 10
	// workPrefix begins our own tokens, before the id of the call. Those of partial results are the
	// id.
	workPrefix = "work-"
)

// A WorkDone says how far a call has come (LSP 3.17, "Work Done Progress").
type WorkDone struct {
	// Kind is "begin", "report" or "end". A handler sets it for an early end only.
	Kind string `json:"kind"`
	// Title is that of the begin, "Indexing" for example. Default: the name of the method.
	Title string `json:"title,omitzero"`
	// Cancellable says that a user may cancel the call. The end has none.
	Cancellable bool `json:"cancellable,omitzero"`
	// Message has details, "3/25 files" for example.
	Message string `json:"message,omitzero"`
	// Percentage is from 0 to 100; nil: not known. The end has none.
	Percentage *int `json:"percentage,omitzero"`
}

// ReportWorkDone tells the caller how far a call has come, where it asked with the member
// workDoneToken of its params, as clients of LSP do. The first value is the begin, others are
// reports, and the end is sent when the handler returns, or with a Kind of "end" before. It does
// nothing when the caller did not ask, after the end, and in dialects without a ProgressValue; what
// [Progress] sends is apart from it.
//
// On a connection it does not wait: while the caller does not read what was sent before, the begin
// and reports are dropped. It fails when the context, the call or the connection has ended. It may
// be called concurrently.
func ReportWorkDone(ctx context.Context, w WorkDone) error {
	s := servingFrom(ctx)
	if s == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r := s.working(); r != nil {
		return r.report(s, w)
	}
	return s.Err()
}

// OnWorkDone returns a context for one call, which then asks how far it has come: f is called with
// each value in the order in which they arrive, by the goroutine that reads, before the call
// returns. f must not block. A call with an array as params, one of a batch, and one in a dialect
// without a ProgressValue does not ask.
func OnWorkDone(ctx context.Context, f func(WorkDone)) context.Context {
	return context.WithValue(ctx, workKey{}, workFunc(f))
}

type workKey struct{}

type workFunc func(WorkDone)

// workDone is the progress that one call reports.
type workDone struct {
	token jsonrpc.Raw

	mu           sync.Mutex // held while a value is queued, so that they are in order
	begun, ended bool
}

// working returns where to report, nil when the caller did not ask. Nil, too, once the handler has
// returned: the memory of the message may be in use for another.
func (s *serving) working() (r *workDone) {
	if s.core.opts.Dialect.ProgressValue == "" {
		return nil
	}
	s.end.Before(func() {
		if r = s.worked(); r != nil {
			return
		}
		if token := scan.Member(s.req.msg.Params, workToken); isWorkToken(token) {
			r = &workDone{token: slices.Clone(token)}
			s.needRare().work.Store(r)
		}
	})
	return r
}

// worked returns what the handler has reported; nil: nothing so far.
func (s *serving) worked() *workDone {
	if x := s.rare(); x != nil {
		return x.work.Load()
	}
	return nil
}

// isWorkToken reports whether a token is a string or a number, and not too long to be repeated.
func isWorkToken(token jsonrpc.Raw) bool {
	return len(token) > 0 && len(token) <= maxWorkToken &&
		(token[0] == '"' || token[0] == '-' || '0' <= token[0] && token[0] <= '9')
}

func (r *workDone) report(s *serving, w WorkDone) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := w.Kind == "end"
	switch {
	case r.ended:
		return nil
	case last && !r.begun:
		r.ended = true
		return nil
	case last:
		w = WorkDone{Kind: "end", Message: w.Message}
	case r.begun:
		w.Kind, w.Title = "report", ""
	default:
		w.Kind = "begin"
		if w.Title == "" {
			w.Title = s.req.Method
		}
	}
	value, err := jsonv2.Append(nil, w)
	if err != nil {
		return err
	}
	sent, err := s.tell(s.core.opts.Dialect.appendProgress(nil, s.req.msg.Version, r.token, value,
		false), last)
	r.begun = r.begun || sent
	r.ended = last
	return err
}

// workEnded ends what the handler has begun to report.
func (s *serving) workEnded() {
	if r := s.worked(); r != nil {
		_ = r.report(s, WorkDone{Kind: "end"}) // it fails only when the caller has gone
	}
}

// tell queues a frame for the caller. It does not wait: unless the caller must have it, the
// frame is dropped when too much waits to be written.
func (s *serving) tell(frame []byte, must bool) (sent bool, err error) {
	p := s.peer
	if p == nil {
		err = s.push.send(frame)
		if sent = err == nil; errors.Is(err, ErrNoCallback) {
			err = nil // this transport carries the answer only
		}
		return sent, err
	}
	p.update(func(st *state) {
		switch {
		case st.err != nil:
			err = closedError(st.err)
		case must || st.unsent() <= min(progressUnsent, p.opts.MaxUnsent/4):
			st.queue(frame)
			sent = true
		}
	})
	p.flush()
	return sent, err
}

// appendWorkToken appends the workDoneToken of the call with an id.
func appendWorkToken(dst []byte, id jsonrpc.ID) []byte {
	dst = append(append(dst, '"'), workPrefix...)
	return append(append(dst, id.Raw()...), '"')
}

// tokenOf returns the id of the call that a token names, and whether it is its workDoneToken.
func tokenOf(token jsonrpc.Raw) (n uint64, work, ok bool) {
	if len(token) > 0 && token[0] == '"' {
		digits, ours := bytes.CutPrefix(scan.Unquote(token), []byte(workPrefix))
		n, err := strconv.ParseUint(string(digits), 10, 64)
		return n, true, ours && err == nil
	}
	id, err := jsonrpc.ParseID(token)
	if err != nil {
		return 0, false, false
	}
	n, ok = id.Uint()
	return n, false, ok
}

// worked takes what arrives for the workDoneToken of a call. It reports false when the call has not
// asked. What is no value of LSP is dropped.
func (c *call) worked(value jsonrpc.Raw) bool {
	f := c.extras().work
	if f == nil {
		return false
	}
	var w WorkDone
	if err := jsonv2.Unmarshal(value, &w); err == nil &&
		(w.Kind == "begin" || w.Kind == "report" || w.Kind == "end") {
		f(w)
	}
	return true
}
