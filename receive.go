package farcall

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall/internal/beginning"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// maxWaiting bounds the handlers that wait for their own calls, so that two
// ends that call each other without end come to one.
const maxWaiting = 10_000

// leastSize is what a message counts at least against MaxInFlightBytes: a
// notification of 31 bytes that waits costs 460.
const leastSize = 512

// receive handles one frame. It reports whether the caller still leads.
func (p *Peer) receive(l *leader, frame []byte) (leads bool) {
	if err := l.dec.Decode(frame, &l.batch); err != nil {
		if !p.lostAnswer(beginning.Of(frame), err) {
			p.refuse(&jsonrpc.Message{Raw: frame}, err)
		}
		return true
	}
	if l.batch.Array {
		p.receiveBatch(l, frame)
		return true
	}
	m := &l.batch.Messages[0]
	switch m.Kind {
	case jsonrpc.Response:
		p.deliver(l, m)
		return true
	case jsonrpc.Notification:
		return p.notified(l, m, len(frame))
	case jsonrpc.Request:
		return p.requested(l, m, len(frame))
	default:
		if !p.broken(m) {
			p.refuse(m, m.Err)
		}
		return true
	}
}

// broken reports whether an invalid message was meant as the answer to a call of
// ours, and fails the call. Some ends leave out a result that is null.
func (p *Peer) broken(m *jsonrpc.Message) bool {
	n, ok := m.ID.Uint()
	if !ok || len(m.Method) > 0 {
		return false
	}
	var c *call
	p.update(func(s *state) {
		c = s.calls[n]
		delete(s.calls, n)
	})
	if c == nil {
		return false
	}
	p.observeBad(m.Raw, problemMessage)
	c.finish(nil, fmt.Errorf("%w: %w", ErrProtocol, m.Err.Cause))
	return true
}

// refuse answers a frame or message that is not valid.
func (p *Peer) refuse(m *jsonrpc.Message, e *jsonrpc.Error) {
	buf := getBuffer()
	*buf = p.refused(p.handling, *buf, m, e, false)
	p.update(func(s *state) { s.counts.refused++ })
	p.reply(nil, buf)
}

// reply queues an answer and ends the call v. It does not write yet. The answer may be that of a
// batch of calls that have ended.
func (p *Peer) reply(v *serving, buf *[]byte, batch ...*serving) {
	taken, stalled := false, false
	var after []func()
	p.update(func(s *state) {
		if v != nil {
			s.leave(v)
			s.running--
		}
		answered := s.err == nil && !s.cut && len(*buf) > 0
		if answered {
			_, owed := s.unread()
			stalled = owed > p.opts.MaxUnsent
			taken = s.answer(*buf)
		}
		if v != nil && v.opens() != nil {
			after = append(after, p.opened(s, v, answered))
		}
		for _, v := range batch {
			if v != nil && v.opens() != nil {
				after = append(after, p.opened(s, v, answered))
			}
		}
		if s.drain {
			s.wake()
		}
	})
	if !taken {
		putBuffer(buf)
	}
	if stalled {
		p.fail(errStalled)
	}
	for _, f := range after {
		f()
	}
}

// newServing begins the call of a message that holds so many bytes.
func (p *Peer) newServing(m *jsonrpc.Message, size int) *serving {
	v := p.core.newServing(p.handling, m)
	v.parent, v.peer, v.size = p.handling, p, max(size, leastSize)
	return v
}

// own copies what v needs of the frame, because the frame will not last.
func (p *Peer) own(l *leader, v *serving) {
	if l.fresh {
		v.req.msg = new(*v.req.msg) // the batch that it is in is reused
		return
	}
	if len(v.req.msg.Raw) >= largeFrame {
		p.keep(l)
		v.req.msg = new(*v.req.msg) // the batch that it is in is reused
		return
	}
	m := v.req.msg.Clone()
	v.req.ID, v.req.Params, v.req.msg = m.ID, m.Params, &m
}

// requested handles a request. It reports whether the caller still leads.
func (p *Peer) requested(l *leader, m *jsonrpc.Message, size int) (leads bool) {
	v := p.newServing(m, size)
	inline := p.runsInline(v)
	if !inline || size > budget.Free { // from now on the peer holds what it takes of the budget
		p.own(l, v)
	}
	var refusal *jsonrpc.Error
	ended := false
	p.update(func(s *state) {
		s.counts.requests++
		if ended = s.err != nil; ended {
			return
		}
		if refusal = p.admit(s, v.size); refusal != nil {
			return
		}
		if !s.enter(v) {
			refusal = duplicate()
			s.counts.refused++
			return
		}
		s.running++
	})
	switch {
	case ended:
		return true
	case refusal != nil:
		buf := getBuffer()
		*buf = p.refused(p.handling, *buf, m, refusal, false)
		p.reply(nil, buf)
		return true
	case inline:
		return p.inline(v)
	default:
		return p.elsewhere(v, func() { p.serve(v); p.flush() })
	}
}

// admit decides whether there is room for a request of that size.
func (p *Peer) admit(s *state, size int) *jsonrpc.Error {
	answers, owed := s.unread()
	o := p.opts
	var refusal *jsonrpc.Error
	switch {
	case s.drain:
		refusal = &jsonrpc.Error{
			Code: jsonrpc.Overloaded, Message: "Shutting down",
			Data:  jsonrpc.Raw(`{"reason":"the peer is shutting down","sent":"no","retryable":true}`),
			Cause: errShutdown,
		}
	case s.running-s.waiting >= o.MaxInFlight:
		refusal = tooMany(o.MaxInFlight)
	case s.waiting >= maxWaiting:
		refusal = overloaded("the limit of %d requests that wait for their own calls is reached",
			maxWaiting)
	case s.bytes > 0 && s.bytes+size > o.MaxInFlightBytes:
		refusal = overloaded("the requests in flight would exceed the limit of %d bytes",
			o.MaxInFlightBytes)
	case owed > o.MaxUnsent/4:
		refusal = overloaded("more than %d bytes of answers are unread: read them first", o.MaxUnsent/4)
	case answers > 16*o.MaxInFlight:
		refusal = overloaded("more than %d answers are unread: read them first", 16*o.MaxInFlight)
	case heavy(size) > 0 && !p.loan.Grow(s.held()+size), s.heldUnsent() > 0 && p.loan.Overdrawn():
		refusal = budget.Overloaded()
	default:
		return nil
	}
	s.counts.overloaded++
	return refusal
}

// overloaded refuses a request because of a limit.
func overloaded(format string, limit int) *jsonrpc.Error {
	return jsonrpc.Refusal(jsonrpc.Overloaded, fmt.Sprintf(format, limit))
}

func tooMany(limit int) *jsonrpc.Error {
	return overloaded("the limit of %d requests in flight is reached", limit)
}

// serve runs the handler of a request and queues the answer.
func (p *Peer) serve(v *serving) {
	ended := false
	defer func() {
		if !ended { // the handler ended its goroutine (runtime.Goexit)
			buf := getBuffer()
			*buf = v.goexit(*buf)
			p.reply(v, buf)
			v.cancel(context.Canceled)
			p.flush()
			p.takeOver(v.inline.Load())
		}
	}()
	buf := getBuffer()
	*buf = v.call(*buf)
	p.reply(v, buf)
	v.cancel(context.Canceled)
	ended = true
}

// notified handles a notification. It reports whether the caller still leads.
func (p *Peer) notified(l *leader, m *jsonrpc.Message, size int) (leads bool) {
	if p.control(m) {
		return true
	}
	v := p.newServing(m, size)
	inline := p.runsInline(v)
	if size > budget.Free { // as in requested
		p.own(l, v)
	}
	mine, ended := false, false
	p.update(func(s *state) {
		s.counts.notifications++
		if ended = s.err != nil; ended {
			return
		}
		if s.note == nil {
			s.handle(v)
			mine = true
		}
	})
	switch {
	case ended:
		return true
	case !mine:
		p.own(l, v)
		p.later(v)
		return true
	case !inline:
		p.own(l, v)
		return p.elsewhere(v, func() { p.notice(v); p.nextNotes() })
	}
	if p.inline(v) {
		// Only the leader adds to the queue, so it is empty.
		p.update(func(s *state) {
			s.handle(nil)
			if s.drain {
				s.wake()
			}
		})
		return true
	}
	p.nextNotes()
	return false
}

// later queues a notification behind the one that is being handled. It takes
// the turn when that one has just ended.
func (p *Peer) later(v *serving) {
	mine, flooded := false, false
	p.update(func(s *state) {
		switch {
		case s.err != nil:
		case s.note == nil:
			s.handle(v)
			mine = true
		case s.bytes+v.size > p.opts.MaxInFlightBytes:
			flooded = true
		default:
			s.notes = append(s.notes, v)
			s.book(v.size)
		}
	})
	if flooded {
		p.fail(errFlooded)
	}
	if mine {
		p.start(func() { p.notice(v); p.nextNotes() })
	}
}

// notice runs the handler of a notification.
func (p *Peer) notice(v *serving) {
	ended := false
	defer func() {
		if !ended { // the handler ended its goroutine (runtime.Goexit)
			v.goexit(nil)
			v.cancel(context.Canceled)
			p.takeOver(v.inline.Load())
			p.start(p.nextNotes)
		}
	}()
	v.call(nil)
	v.cancel(context.Canceled)
	ended = true
}

// nextNotes handles the notifications that wait, in order, until none is left.
func (p *Peer) nextNotes() {
	for {
		var v *serving
		p.update(func(s *state) {
			if len(s.notes) == 0 {
				s.handle(nil)
				if s.drain {
					s.wake()
				}
				return
			}
			v = s.notes[0]
			s.notes[0] = nil
			s.notes = s.notes[1:]
			s.unbook(v.size)
			s.handle(v)
		})
		if v == nil {
			return
		}
		p.notice(v)
	}
}

// control handles what the peer itself understands: cancellation, progress, credit and events.
// These never wait behind anything.
func (p *Peer) control(m *jsonrpc.Message) bool {
	if id, reason, ok := p.opts.Dialect.cancelled(m); ok {
		var v *serving
		if parsed, err := jsonrpc.ParseID(id); err == nil {
			p.update(func(s *state) { v = s.served.find(parsed) })
		}
		if v != nil {
			v.silent.Store(p.opts.Dialect.CancelSilent)
			if reason == "" {
				v.cancel(context.Canceled)
			} else {
				v.end.CancelCause(v.Parent(), &CancelError{Reason: reason})
			}
		}
		// A handler of the same name hears of it too, where there is one.
		return p.mux == nil || p.mux.find(m.Method) == nil
	}
	if token, value, ok := p.opts.Dialect.progress(m); ok {
		return p.progressed(m, token, value)
	}
	if id, limit, ok := p.opts.Dialect.granted(m); ok {
		p.raiseCredit(id, limit)
		return true
	}
	return p.event(m)
}

// park notes that the handler v waits for its own call: it no longer counts
// as running, and another goroutine reads if v ran in the goroutine that reads.
func (p *Peer) park(v *serving) {
	if n := v.inline.Load(); n != 0 {
		p.takeOver(n)
	}
	if v.parked.Add(1) == 1 && !v.req.IsNotification() {
		p.update(func(s *state) { s.waiting++ })
	}
	if v.batch != nil {
		v.batch.another()
	}
}

func (p *Peer) unpark(v *serving) {
	if v.parked.Add(-1) == 0 && !v.req.IsNotification() {
		p.update(func(s *state) { s.waiting-- })
	}
}

func duplicate() *jsonrpc.Error {
	return jsonrpc.Refusal(jsonrpc.InvalidRequest, "the id is in use by a request in flight")
}
