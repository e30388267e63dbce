package farcall

// SetLastID makes the next id of p n+1.
func SetLastID(p *Peer, n uint64) { p.ids.Store(n) }
