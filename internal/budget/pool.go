package budget

import "sync"

// pool is the bytes of a budget and who holds them.
//
//	Begin ──> incomplete ──Grow, Force──> held ──Grow(0), Close──> free
//	              │                                                ^
//	              └──────────── evicted by a newer frame ──────────┘
type pool struct {
	total  int64
	evicts bool // an incomplete frame makes room for a newer one
	mu     sync.Mutex
	used   int64
	owners map[string]int64 // what each holds; only those that hold something
	oldest *Loan            // incomplete frames, in the order in which they began
	newest *Loan
}

func newPool(total int64, evicts bool) *pool {
	return &pool{total: total, evicts: evicts, owners: map[string]int64{}}
}

func (p *pool) usedNow() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// set makes l hold n bytes, if there is room.
func (p *pool) set(l *Loan, n int64, evict func()) bool {
	p.mu.Lock()
	evicted, ok := p.setLocked(l, n, evict)
	p.mu.Unlock()
	for _, f := range evicted { // without the lock: it is not ours
		f()
	}
	return ok
}

func (p *pool) setLocked(l *Loan, n int64, evict func()) (evicted []func(), ok bool) {
	if l.closed {
		return nil, n == 0
	}
	more := n - l.held.Load()
	if more > 0 && !p.fitsLocked(l, more) {
		for p.evicts && n <= p.total/2 {
			old := p.oldest
			if old == l {
				old = old.next
			}
			if old == nil {
				break
			}
			evicted = append(evicted, old.evict)
			p.closeLocked(old)
			if ok = p.fitsLocked(l, more); ok {
				break
			}
		}
		if !ok {
			return evicted, false
		}
	}
	p.addLocked(l, more)
	switch {
	case !p.evicts:
	case evict == nil || n == 0:
		p.leaveLocked(l)
	case l.evict == nil:
		p.enterLocked(l, evict)
	}
	return evicted, true
}

// fitsLocked reports whether l may hold more: when its owner leaves as much free
// as it has then. In a pool that makes room by eviction it has a half at most.
func (p *pool) fitsLocked(l *Loan, more int64) bool {
	free := p.total - p.used - more
	mine := p.mineLocked(l) + more
	if p.evicts {
		return free >= 0 && mine <= p.total/2
	}
	return free >= 0 && mine <= free
}

func (p *pool) mineLocked(l *Loan) int64 {
	if key := l.b.owner; key != "" {
		return p.owners[key]
	}
	return l.held.Load()
}

func (p *pool) addLocked(l *Loan, n int64) {
	l.held.Add(n)
	p.used += n
	if key := l.b.owner; key != "" {
		if p.owners[key] += n; p.owners[key] == 0 {
			delete(p.owners, key)
		}
	}
}

func (p *pool) enterLocked(l *Loan, evict func()) {
	l.evict, l.prev = evict, p.newest
	if p.newest == nil {
		p.oldest = l
	} else {
		p.newest.next = l
	}
	p.newest = l
}

func (p *pool) leaveLocked(l *Loan) {
	if l.evict == nil {
		return
	}
	if l.prev == nil {
		p.oldest = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		p.newest = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.evict, l.prev, l.next = nil, nil, nil
}

func (p *pool) force(l *Loan, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(l)
	if !l.closed {
		p.addLocked(l, n-l.held.Load())
	}
}

func (p *pool) close(l *Loan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(l)
}

func (p *pool) closeLocked(l *Loan) {
	p.leaveLocked(l)
	p.addLocked(l, -l.held.Load())
	l.closed = true
}
