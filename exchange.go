package farcall

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// NewClient returns a peer that calls over an Exchanger, which it closes in the
// end. The handler, which may be nil, takes what the other end sends along with
// its answers.
func NewClient(x Exchanger, h Handler, o *Options) *Peer {
	p := newPeer(h, o)
	p.x = x
	p.st.reading = true
	close(p.gone) // it starts no goroutines
	return p
}

func (p *Peer) exchangeOne(
	ctx context.Context, c *call, method string, params, result any,
) (err error) {
	buf := getBuffer()
	defer putBuffer(buf)
	if *buf, err = p.appendRequest(ctx, *buf, c.wire(), method, params, c.asking()); err != nil {
		return err
	}
	c.extras().seen.sent(p, *buf)
	if err := p.exchange(ctx, *buf, []*call{c}); err != nil {
		return err
	}
	<-c.done
	return p.outcome(c, result)
}

// exchange sends a frame and waits for the answers to its calls.
func (p *Peer) exchange(ctx context.Context, frame []byte, calls []*call) error {
	if err := p.Err(); err != nil {
		return closedError(err)
	}
	e := &exchanging{p: p, ctx: ctx, calls: make(map[uint64]*call, len(calls)), open: len(calls)}
	for _, c := range calls {
		e.calls[c.id] = c
	}
	e.l.dec = jsonrpc.Decoder{
		MaxDepth: p.opts.MaxDepth, MaxBatch: p.opts.MaxBatch,
		AcceptV1: p.opts.V1, StrictAnswers: p.opts.StrictAnswers,
	}
	e.l.fresh = true
	p.observeFrame(frame, true)
	err := p.x.Exchange(ctx, frame, e.reply)
	if e.open == 0 {
		return nil // all is answered; how the exchange ended does not matter
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	for id, c := range e.calls {
		if c == nil {
			continue
		}
		c.finish(nil,
			fmt.Errorf("%w: the answer has no response to the request with id %d", ErrProtocol, id))
	}
	return nil
}

// exchanging is one exchange.
type exchanging struct {
	p     *Peer
	ctx   context.Context //nolint:containedctx // lives as long as its call
	l     leader
	calls map[uint64]*call // nil: it has been answered
	open  int              // calls that are not answered yet
}

// reply handles one frame of the answer.
func (e *exchanging) reply(frame []byte) error {
	e.p.observeFrame(frame, false)
	if err := e.l.dec.Decode(frame, &e.l.batch); err != nil {
		e.p.observeBad(frame, problemKind(err.Code))
		return fmt.Errorf("%w: %w", ErrProtocol, err.Cause)
	}
	messages := e.l.batch.Messages
	e.l.batch = jsonrpc.Batch{}
	for i := range messages {
		switch m := &messages[i]; m.Kind {
		case jsonrpc.Response:
			e.answered(m)
		case jsonrpc.Notification:
			e.notified(m)
		case jsonrpc.Request:
			if err := e.requested(m); err != nil {
				return err
			}
		default:
			e.p.observeBad(m.Raw, problemMessage)
			return fmt.Errorf("%w: %w", ErrProtocol, m.Err.Cause)
		}
	}
	return nil
}

func (e *exchanging) answered(m *jsonrpc.Message) {
	if m.ID.IsNull() && m.Error != nil {
		// The other end could not read the request; it is the answer to all of it.
		for id, c := range e.calls {
			if c == nil {
				continue
			}
			e.calls[id] = nil
			e.open--
			c.answeredBy(m)
			c.finish(nil, &remote.Error{Wire: m.Failure()})
		}
		return
	}
	n, _ := m.ID.Uint()
	c, asked := e.calls[n]
	if c == nil {
		e.p.update(func(s *state) { s.counts.dropped++ })
		problem := problemUnknown
		if asked {
			problem = problemDuplicate
		}
		e.p.observeBad(m.Raw, problem)
		return
	}
	e.calls[n] = nil
	e.open--
	c.answeredBy(m)
	switch {
	case m.Err != nil:
		c.finish(nil, fmt.Errorf("%w: %w", ErrProtocol, m.Err.Cause))
	case m.Error != nil:
		c.finish(nil, &remote.Error{Wire: m.Failure()})
	default:
		c.finish(m.Result, nil)
	}
}

func (e *exchanging) notified(m *jsonrpc.Message) {
	if token, value, ok := e.p.opts.Dialect.progress(m); ok {
		n, work, ok := tokenOf(token)
		switch c := e.calls[n]; {
		case !ok || c == nil:
		case work:
			if c.worked(value) {
				return
			}
		case c.extras().queue != nil:
			c.extra.queue.put(value)
			return
		}
	}
	e.serving(m).call(nil)
}

// requested answers a request of the other end with its own exchange.
func (e *exchanging) requested(m *jsonrpc.Message) error {
	answer := e.serving(m).call(nil)
	e.p.observeFrame(answer, true)
	return e.p.x.Exchange(e.ctx, answer, func([]byte) error { return nil })
}

func (e *exchanging) serving(m *jsonrpc.Message) *serving {
	v := e.p.core.newServing(e.ctx, m)
	v.push = &pusher{}
	return v
}
