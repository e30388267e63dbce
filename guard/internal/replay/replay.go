// Package replay answers one question: was this nonce used before?
//
// It answers for one process, or for all that share a [Memory]. It errs on the
// safe side only: it may take a nonce for used that is not (a collision of 96 bits of
// a hash whose key nobody knows), never the other way round.
package replay

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"
)

// The errors of Use.
var (
	// ErrFull says that there is no room: as many nonces as there may be are
	// still to be remembered.
	ErrFull = errors.New("replay: the memory of nonces is full: what is signed is refused until some expire; raise its limit")
	// ErrPast says that the time until which a nonce is to be remembered is over, so
	// that it may have been used and forgotten.
	ErrPast = errors.New("replay: the nonce is too old to say whether it was used")
)

const (
	least = 1 << 10 // slots of the smallest table
	sweep = 4       // slots that each Use looks at for what has expired
)

// A Memory remembers nonces until a time. Its methods may be called by any number of
// goroutines at once. It has no goroutine: what has expired goes as others come.
type Memory struct {
	most  int
	clock func() time.Time
	seeds [2]maphash.Seed
	epoch int64 // Unix seconds, before the first Use

	mu sync.Mutex
	// now is the latest second that was ever seen, since epoch. It does not go back with the clock:
	// what was forgotten is refused then, not taken for new.
	now   uint32
	live  int               // nonces that have not expired
	ends  map[uint32]uint32 // how many of them expire in a second
	slots []slot            // open addressing, linear probing; no pointers
	used  int               // slots that are not empty: live and expired
	hand  int               // where the sweep goes on
}

// A slot has 96 bits of a nonce's hash and the second it expires in. until 0: it is empty.
type slot struct {
	high       uint64
	low, until uint32
}

// New returns an empty memory for at most most nonces, at about 20 bytes each. clock nil is time.Now.
func New(most int, clock func() time.Time) *Memory {
	if clock == nil {
		clock = time.Now
	}
	return &Memory{
		most:  max(most, 0),
		clock: clock,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		epoch: clock().Unix() - 1,
		ends:  map[uint32]uint32{},
		slots: make([]slot, least),
	}
}

// Use remembers a nonce until a time, rounded up to a second, and reports whether it is new. An error,
// [ErrFull] or [ErrPast], means that nobody knows, and that it was not remembered. It never blocks.
func (m *Memory) Use(_ context.Context, nonce string, until time.Time) (fresh bool, err error) {
	s := slot{
		high:  maphash.String(m.seeds[0], nonce),
		low:   uint32(maphash.String(m.seeds[1], nonce)),
		until: m.since(until, time.Second-1),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(m.since(m.clock(), 0))
	if s.until <= m.now {
		return false, ErrPast
	}
	place := -1 // of an expired nonce
	i := m.home(s.high)
	for ; m.slots[i].until != 0; i = m.next(i) {
		switch o := &m.slots[i]; {
		case o.until <= m.now:
			if place < 0 {
				place = i
			}
		case o.high == s.high && o.low == s.low:
			if s.until > o.until { // what is refused now must not become new before it is stale
				m.forget(o.until)
				m.ends[s.until]++
				o.until = s.until
			}
			return false, nil
		}
	}
	if m.live >= m.most {
		return false, ErrFull
	}
	if place < 0 {
		place = i
		m.used++
	}
	m.slots[place] = s
	m.live++
	m.ends[s.until]++
	if m.used > len(m.slots)/8*7 {
		m.rebuild()
	} else {
		m.sweep()
	}
	return true, nil
}

// Len returns how many nonces it remembers.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(m.since(m.clock(), 0))
	return m.live
}

// since returns the seconds from epoch to t, with up added before what is less than a second goes.
func (m *Memory) since(t time.Time, up time.Duration) uint32 {
	sec := t.Unix()
	if int64(t.Nanosecond())+int64(up) >= int64(time.Second) {
		sec++
	}
	// Before the epoch is over; after 136 years is never.
	return uint32(min(max(sec, m.epoch)-m.epoch, math.MaxUint32))
}

// advance lets time go on to now, in which everything has expired that was to be remembered until then.
func (m *Memory) advance(now uint32) {
	if now <= m.now {
		return
	}
	if int(now-m.now) <= len(m.ends) {
		for m.now < now {
			m.now++
			m.live -= int(m.ends[m.now])
			delete(m.ends, m.now)
		}
	} else {
		m.now = now
		for end, n := range m.ends {
			if end <= now {
				m.live -= int(n)
				delete(m.ends, end)
			}
		}
	}
	if m.live == 0 && m.used > 0 && len(m.slots) > least {
		m.slots, m.used, m.hand = make([]slot, least), 0, 0
	}
}

func (m *Memory) forget(end uint32) {
	if m.ends[end]--; m.ends[end] == 0 {
		delete(m.ends, end)
	}
}

func (m *Memory) home(high uint64) int {
	i, _ := bits.Mul64(high, uint64(len(m.slots)))
	return int(i)
}

func (m *Memory) next(i int) int {
	if i++; i == len(m.slots) {
		return 0
	}
	return i
}

// sweep removes what has expired from the next few slots.
func (m *Memory) sweep() {
	for range sweep {
		if s := &m.slots[m.hand]; s.until != 0 && s.until <= m.now {
			m.remove(m.hand)
			m.used--
		} else {
			m.hand = m.next(m.hand)
		}
	}
}

// remove empties slot i, and moves what would no longer be found back.
func (m *Memory) remove(i int) {
	size := len(m.slots)
	for j := m.next(i); m.slots[j].until != 0; j = m.next(j) {
		// j may move to i if its home is not after i, on the way from i to j.
		if home := m.home(m.slots[j].high); (j-home+size)%size >= (j-i+size)%size {
			m.slots[i] = m.slots[j]
			i = j
		}
	}
	m.slots[i] = slot{}
}

// rebuild makes a table of the right size for what has not expired.
func (m *Memory) rebuild() {
	old := m.slots
	// A quarter more than there can be nonces, so that a search stays short.
	m.slots = make([]slot, max(least, min(2*m.live, m.most+m.most/4)))
	m.used, m.hand = 0, 0
	for _, s := range old {
		if s.until <= m.now {
			continue
		}
		i := m.home(s.high)
		for m.slots[i].until != 0 {
			i = m.next(i)
		}
		m.slots[i] = s
		m.used++
	}
}
