package gateway

import "github.com/farcall-dev/farcall/gateway/internal/toolsearch"

// maxSeen bounds the callers for which an index knows the tools.
const maxSeen = 64

// search searches the tools that the caller may call.
func (c *catalogue) search(q *toolsearch.Query) toolsearch.Result {
	if c.e.g.shield == nil && c.hidden == nil {
		return c.index.Search(q, nil)
	}
	var standing any
	if c.hidden == nil {
		standing = c.e.g.shield.Standing(c.ctx)
	}
	if standing == nil {
		return c.index.Search(q, c.allows)
	}
	x := c.index
	x.mu.Lock()
	seen := x.seen[standing]
	x.mu.Unlock()
	if seen == nil {
		seen = make([]bool, x.Len())
		for i := range seen {
			seen[i] = c.allows(i)
		}
		x.mu.Lock()
		if x.seen == nil || len(x.seen) >= maxSeen {
			x.seen = map[any][]bool{}
		}
		x.seen[standing] = seen
		x.mu.Unlock()
	}
	return x.Search(q, func(i int) bool { return seen[i] })
}
