package farcall

import "github.com/farcall-dev/farcall/jsonrpc"

// SetLastID makes the next id of p n+1.
func SetLastID(p *Peer, n uint64) { p.ids.Store(n) }

// UntakenValues is how many of n values a stream holds for who takes none.
func UntakenValues(n int, value jsonrpc.Raw) int {
	q := newProgressQueue()
	for range n {
		q.put(value)
	}
	return len(q.values)
}
