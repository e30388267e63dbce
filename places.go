package farcall

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// places bounds the calls that a Responder handles at once. Half of the places are for who comes
// first; of the other half an owner gets no more than its share, so that one that floods leaves
// room for others. Counting owners costs nothing while places are plenty.
type places struct {
	limit   int
	running atomic.Int64 // but for those that wait
	waiting atomic.Int64

	mu     sync.Mutex
	scarce share.Ledger // the second half
}

// scarceRatio lets one owner alone have seven eighths of the second half.
const scarceRatio = 7

func (p *places) init(limit int) {
	p.limit = limit
	p.scarce.SetBounds(share.Bounds{Total: limit - limit/2, Ratio: scarceRatio})
}

// enter takes a place, or reports why there is none. What it returns is for leave: the owner that
// has one of the scarce places, or nil.
func (p *places) enter(ctx context.Context) (scarce *owner.Key, e *jsonrpc.Error) {
	n := p.running.Add(1)
	switch {
	case p.waiting.Load() >= maxWaiting:
		e = overloaded("the limit of %d requests that wait for their own calls is reached", maxWaiting)
	case n > int64(p.limit):
		e = tooMany(p.limit)
	case n <= int64(p.limit/2):
		return nil, nil
	default:
		o := owner.From(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.scarce.Take(o, 1) {
			return &o, nil
		}
		e = overloaded("more than half of the %d places for requests are taken, and this caller has its share of the rest", p.limit)
	}
	p.running.Add(-1)
	return nil, e
}

// leave gives a place back.
func (p *places) leave(scarce *owner.Key) {
	p.running.Add(-1)
	if scarce != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.scarce.Give(*scarce, 1)
	}
}

// pause gives a place back while its call waits for something else.
func (p *places) pause(scarce *owner.Key) {
	p.waiting.Add(1)
	p.leave(scarce)
}

// resume takes the place again, whether there is one or not: the call has begun.
func (p *places) resume() {
	p.running.Add(1)
	p.waiting.Add(-1)
}
