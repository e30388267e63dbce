package main

import (
	"context"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall"
)

// peers are the connections that calls can go both ways over: all but plain
// HTTP.
type peers struct {
	handler farcall.Handler
	opts    farcall.Options

	mu     sync.Mutex
	last   int
	alive  map[int]*farcall.Peer
	closed bool
}

// start serves a connection and returns at once.
func (p *peers) start(t farcall.Transport, transport string) *farcall.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = t.Close()
		return nil
	}
	p.last++
	id := p.last
	opts := p.opts
	opts.Transport, opts.Conn = transport, transport+"-"+strconv.Itoa(id)
	opts.OnClose = func(error) { p.forget(id) }
	peer := farcall.NewPeer(t, p.handler, &opts)
	if p.alive == nil {
		p.alive = make(map[int]*farcall.Peer)
	}
	p.alive[id] = peer // before OnClose can take the lock
	return peer
}

func (p *peers) forget(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, id)
}

// shutdown lets the calls in flight finish and closes every connection, at the
// latest when the context ends.
func (p *peers) shutdown(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	alive := make([]*farcall.Peer, 0, len(p.alive))
	for _, peer := range p.alive {
		alive = append(alive, peer)
	}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, peer := range alive {
		wg.Go(func() { _ = peer.Shutdown(ctx) }) // its error is the context's: time was up
	}
	wg.Wait()
}
