package raw

import (
	"cmp"
	"context"

	"github.com/farcall-dev/farcall"
)

// pipeKey finds the pipe of a call in its context.
type pipeKey struct{}

// calls serves a connection, with h for each message.
func (p *pipe) calls(ctx context.Context, h farcall.Handler, o *farcall.Options) error {
	own := *o
	own.MaxInFlight, own.Budget = p.u.opts.MaxInFlight, cmp.Or(o.Budget, p.u.opts.Budget)
	own.ConnContext = func(ctx context.Context) context.Context {
		if o.ConnContext != nil {
			ctx = o.ConnContext(ctx)
		}
		return context.WithValue(ctx, pipeKey{}, p)
	}
	p.mu.Lock()
	peer := farcall.NewPeer(p.t, h, &own) //nolint:contextcheck // a peer lives until it is closed
	p.peer = peer
	draining := p.draining
	p.mu.Unlock()
	if draining {
		_ = peer.Shutdown(ctx)
	}
	<-peer.Done()
	err := peer.Close()
	if p.conn != nil { // no handler runs any more
		p.conn.close()
	}
	return err
}

// line returns the connection to the upstream that belongs to the pipe. When that ends the pipe
// does, for its client may rely on what the upstream knows of it.
func (p *pipe) line(ctx context.Context) (*line, error) {
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case p.conn != nil:
		return p.conn, nil
	case !p.u.own.enter(p.owner):
		return nil, errCrowded
	}
	client := farcall.CallerFrom(ctx)
	l, err := p.u.open(ctx, func(ctx context.Context, req *farcall.Request) (any, error) {
		return p.u.pass(ctx, client, req)
	})
	if err != nil {
		p.u.own.leave(p.owner)
		return nil, err
	}
	p.conn, p.counted = l, true
	p.mu.Lock()
	peer := p.peer
	p.mu.Unlock()
	p.u.work.Go(func() { // the call is booked, so there is work
		<-l.peer.Done()
		ctx, cancel := context.WithTimeout(p.u.ctx, closeGrace)
		defer cancel()
		_ = peer.Shutdown(ctx)
	})
	return l, nil
}
