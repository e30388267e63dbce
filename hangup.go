package farcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// defaultLinger is Options.Linger where the other end may be gone altogether.
const defaultLinger = 10 * time.Second

// hangUp handles the end of what the other end sends. It may still read: the calls in flight are
// answered before the connection is closed (a client may close its sending half and wait:
// printf … | nc).
func (p *Peer) hangUp(err error) {
	var gone interface{ BothEnds() bool } // the other end reads no more either, see Transport
	if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &gone) && gone.BothEnds() {
		p.fail(err)
		return
	}
	var calls map[uint64]*call
	p.update(func(s *state) {
		s.reading, s.drain = false, true
		calls, s.calls = s.calls, nil
	})
	for _, c := range calls {
		c.finish(nil, closedError(err))
	}
	p.endCredit()
	p.flush()
	ctx, cancel := p.ctx, context.CancelFunc(func() {})
	limit := p.linger(err)
	if limit >= 0 {
		ctx, cancel = context.WithTimeout(p.ctx, limit)
	}
	defer cancel()
	if p.quiesce(ctx, false) != nil {
		p.cutOff(fmt.Sprintf("the input ended, and the call took more than %v after that", limit),
			"input ended")
	}
	p.fail(err)
}

// linger returns how long calls in flight may take after the end of the input; less than 0: as long
// as they take.
func (p *Peer) linger(end error) time.Duration {
	var half interface{ HalfClosed() bool }
	switch {
	case p.opts.Linger != 0:
		return p.opts.Linger
	case errors.As(end, &half) && half.HalfClosed():
		return -1
	}
	return defaultLinger
}

// cutOff answers the calls that have taken too long, those of a batch together with its others.
// What their handlers still return is dropped.
func (p *Peer) cutOff(message, reason string) {
	e := &jsonrpc.Error{
		Code: jsonrpc.Timeout, Message: "Timeout: " + message,
		Data: jsonrpc.Raw(`{"sent":"yes","reason":"` + reason + `"}`),
	}
	p.update(func(s *state) {
		again := s.cut // by Shutdown, and at the end of the input
		if s.cut = true; again || s.err != nil {
			return
		}
		handled := map[*serving]bool{}
		for _, v := range s.served.all() {
			if handled[v] = true; v.batch == nil {
				s.answer(v.req.version.AppendError(nil, v.req.ID, e))
			}
		}
		for w := s.batches; w != nil; w = w.earlier {
			if answers := w.cutOff(nil, handled, e); len(answers) > 0 {
				s.answer(answers)
			}
		}
	})
	p.flush()
	p.writeOut()
}

// cancelCalls gives up the calls in flight because this end closes the connection.
func (p *Peer) cancelCalls() {
	if p.t == nil {
		return // an exchange ends with its call
	}
	var calls map[uint64]*call
	p.update(func(s *state) {
		if s.err != nil || len(s.calls) == 0 {
			return
		}
		calls, s.calls = s.calls, map[uint64]*call{}
		for _, c := range calls {
			s.gaveUp(c.id)
			if c.extras().opens != nil {
				s.abandonSubscription(c)
			}
			s.queue(p.opts.Dialect.appendCancel(nil, p.version(p.ctx), c.wire(), ""))
		}
	})
	if len(calls) == 0 {
		return
	}
	p.flush()
	for _, c := range calls {
		c.finish(nil, ErrClosed)
	}
}
