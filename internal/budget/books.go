package budget

import (
	"net/netip"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall/internal/chain"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// books say who holds what.
//
//	Begin ──> incomplete ──Grow, Force──> held ──Grow(0), Close──> free
//	              │                                                 ^
//	              └──────── makes room for a newer frame ───────────┘
type books struct {
	mu       sync.Mutex
	all, few *pool
	last     uint64 // of the owners that have no other name
}

// pool is a part of the budget. Its fields are guarded by books.mu.
type pool struct {
	ledger *share.Ledger
	evicts bool             // incomplete frames make room
	begun  chain.List[draw] // the incomplete frames, in the order in which they began
}

// A draw is what a loan holds while it holds something.
type draw struct {
	loan  *Loan
	pool  *pool
	owner owner.Key
	frame Frame // not nil: it is incomplete, and the draw is in the list of its pool
	node  chain.Node[draw]
}

func newBooks(total, few int64) *books {
	return &books{
		all: &pool{ledger: share.NewLedger(share.Bounds{Total: int(total)})},
		// Room is made by eviction there, so an address may hold nearly all of it.
		few: &pool{
			ledger: share.NewLedger(share.Bounds{Total: int(few), Owner: int(few / 2), Ratio: 15}),
			evicts: true,
		},
	}
}

func (s *books) used() (all, few int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.all.ledger.Used()), int64(s.few.ledger.Used())
}

// set makes l hold n bytes, if there is room or it has to be.
func (b *Budget) set(l *Loan, n int, f Frame, force bool) bool {
	var o owner.Key
	few, remote := b.few, ""
	if l.held.Load() == 0 { // without the lock: it is not ours
		if b.by != nil {
			o, few = b.by()
			few = few || b.few
		}
		if q, ok := f.(*request); ok && o.IsZero() {
			o = q.Owner()
		}
		if f != nil {
			if remote = f.Remote(); !isIP(remote) {
				remote = "" // those of a unix socket have nothing in common
			}
		}
	}
	s := b.books
	s.mu.Lock()
	d := l.draw
	switch {
	case l.closed:
		s.mu.Unlock()
		return n == 0
	case d == nil && n == 0: // another was faster
		s.mu.Unlock()
		return true
	case d == nil:
		d = &draw{loan: l, pool: s.all, owner: o}
		if few {
			d.pool = s.few
		}
		if o.IsZero() {
			s.last++
			d.owner = owner.Connection(strconv.FormatUint(s.last, 10), remote)
		}
	}
	evicted, ok := d.pool.set(d, n, f, force)
	s.mu.Unlock()
	for _, old := range evicted { // as above
		old.Evicted()
	}
	return ok
}

func isIP(address string) bool {
	_, err := netip.ParseAddrPort(address)
	return err == nil
}

func (s *books) overdrawn(l *Loan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.draw != nil && l.draw.pool.ledger.Free() < 0
}

// close gives everything back, for good.
func (s *books) close(l *Loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.draw != nil {
		l.draw.pool.end(l.draw)
	}
	l.closed = true
}

// set makes d hold n bytes, if there is room or force is true.
func (p *pool) set(d *draw, n int, f Frame, force bool) (evicted []Frame, ok bool) {
	more := n - int(d.loan.held.Load())
	switch {
	case more <= 0:
		if more < 0 {
			p.ledger.Give(d.owner, -more)
		}
	case force:
		p.ledger.Add(d.owner, more)
	case !p.evicts && p.ledger.OfGroup(d.owner)+more > p.ledger.Free()-more:
		// a ledger lets the first thing of an owner take all; this is too large for that
		return nil, false
	default:
		for !p.ledger.Take(d.owner, more) {
			old := p.victim(d)
			if old == nil || p.ledger.Of(d.owner)+more > p.ledger.Bounds().Owner {
				return evicted, false
			}
			evicted = append(evicted, old.frame)
			p.end(old)
			old.loan.closed = true
			old.loan.evicted.Store(true)
		}
	}
	d.loan.held.Add(int64(more))
	if d.loan.draw = d; n == 0 {
		d.loan.draw = nil
	}
	switch {
	case !p.evicts:
	case f == nil || n == 0:
		p.leave(d)
	case d.frame == nil:
		p.enter(d, f)
	}
	return evicted, true
}

// victim returns the incomplete frame that is to make room for another one: the
// oldest of the address that holds most of those that have any. Nil: there is none.
func (p *pool) victim(d *draw) (victim *draw) {
	most := 0
	for at := p.begun.First; at != nil; at = at.Next {
		old := at.Of
		if old == d {
			continue
		}
		if n := p.ledger.OfGroup(old.owner); n > most {
			victim, most = old, n
		}
	}
	return victim
}

// end gives back what d holds.
func (p *pool) end(d *draw) {
	p.leave(d)
	p.ledger.Give(d.owner, int(d.loan.held.Load()))
	d.loan.held.Store(0)
	d.loan.draw = nil
}

// enter puts d at the end of the incomplete frames.
func (p *pool) enter(d *draw, f Frame) {
	d.frame, d.node.Of = f, d
	p.begun.Push(&d.node)
}

// leave takes d out of them.
func (p *pool) leave(d *draw) {
	if d.frame != nil {
		p.begun.Remove(&d.node)
		d.frame = nil
	}
}
