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

// CreditAfter is the limit of a stream that has sent 130 of 100, and what it has sent, after a
// grant and a value of 65.
func CreditAfter(params jsonrpc.Raw) (limit, sent int64) {
	d, c := lspDialect(), credit{limit: 100, sent: 130}
	m := jsonrpc.Message{Method: []byte(d.CreditMethod), Params: params}
	if id, limit, ok := d.granted(&m); ok && string(id) == "1" {
		c.raise(limit)
	}
	c.take(65)
	return c.limit, c.sent
}

// SubscriptionsInTurn is how many subscriptions p holds because events of them wait.
func SubscriptionsInTurn(p *Peer) (n int) {
	p.update(func(s *state) {
		if s.subs != nil {
			n = len(s.subs.ready)
		}
	})
	return n
}
