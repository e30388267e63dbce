package raw

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// places bounds the calls of ServeRPC that are under way. Half of the places are for who comes
// first; of the other half one owner alone gets seven eighths, so that it leaves room for others.
// While there are plenty, owners are not counted.
type places struct {
	limit   int64
	running atomic.Int64

	mu     sync.Mutex
	scarce share.Ledger // the second half, by owner
}

func (p *places) init(limit int) {
	p.limit = int64(limit)
	p.scarce.SetBounds(share.Bounds{Total: limit - limit/2, Ratio: 7})
}

// enter takes a place, or reports that there is none for the caller. scarce is for leave.
func (p *places) enter(ctx context.Context) (scarce *owner.Key, ok bool) {
	switch n := p.running.Add(1); {
	case n > p.limit:
	case n <= p.limit/2:
		return nil, true
	default:
		o := owner.From(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.scarce.Take(o, 1) {
			return &o, true
		}
	}
	p.running.Add(-1)
	return nil, false
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

// ownConnections bounds the connections to the upstream that belong to piped ones. One owner alone
// gets seven eighths.
type ownConnections struct {
	mu   sync.Mutex
	held share.Ledger // by owner; without bounds nothing is counted
}

func (c *ownConnections) init(most int) {
	c.held.SetBounds(share.Bounds{Total: most, Ratio: 7})
}

// enter takes a connection for an owner, or reports that there is none for it.
func (c *ownConnections) enter(o owner.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.Bounds().Total == 0 || c.held.Take(o, 1)
}

// leave gives a connection back.
func (c *ownConnections) leave(o owner.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.Bounds().Total > 0 {
		c.held.Give(o, 1)
	}
}
