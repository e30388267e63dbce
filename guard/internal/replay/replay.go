// Package replay answers one question: was this nonce used before?
//
// It answers for one process, or for all that share a [Memory]. It errs on the safe side only: it
// may report a nonce as used that is not (a collision of 64 bits of a hash with a random seed),
// never the other way round. An owner has a share of the memory: one that fills its share leaves
// room for others.
package replay

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/share"
)

// The errors of Use.
var (
	// ErrFull reports that there is no room: as many nonces as there may be have not expired.
	ErrFull = errors.New(
		"replay: the memory of nonces is full: signed requests are refused until some expire; " +
			"raise its limit")
	// ErrShare reports that there is no room for the owner: the nonces of its share have not expired.
	ErrShare = errors.New(
		"replay: the memory of nonces has no room for more of this signer until some expire")
	// ErrPast reports that the time is over until which a nonce is to be remembered, so that it may
	// have been used and forgotten.
	ErrPast = errors.New("replay: the nonce is too old to say whether it was used")
)

const (
	least = 1 << 10 // slots of the smallest table
	sweep = 4       // slots that each Use looks at for what has expired
	ratio = 3       // one owner alone gets three quarters
)

// A Memory remembers nonces until a time. Its methods may be called by any number of goroutines at
// once. It has no goroutine: what has expired goes as others come.
type Memory struct {
	bounds share.Bounds
	clock  func() time.Time
	seeds  [2]maphash.Seed // of nonces, and of owners
	epoch  int64           // Unix seconds, before the first Use

	mu sync.Mutex
	// now is the latest second that was ever seen, since epoch. It does not go back with the clock:
	// what was forgotten is refused then, not taken for new.
	now    uint32
	live   int               // nonces that have not expired
	ends   map[uint32]uint32 // how many of them expire in a second
	slots  []slot            // open addressing, linear probing; no pointers
	used   int               // slots that are not empty: live and expired
	hand   int               // where the sweep goes on
	owners owners
}

// A slot has the hash of a nonce, the second it expires in, and its owner. until 0: it is empty.
type slot struct {
	hash         uint64
	until, owner uint32 // owner is in owners; 0: not counted any more
}

// New returns an empty memory for at most most nonces, at about 20 bytes each, and 30 for each
// owner. clock nil is time.Now.
func New(most int, clock func() time.Time) *Memory {
	if clock == nil {
		clock = time.Now
	}
	return &Memory{
		bounds: share.Bounds{Total: max(most, 0), Ratio: ratio}, clock: clock,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, epoch: clock().Unix() - 1,
		ends: map[uint32]uint32{}, slots: make([]slot, least), owners: newOwners(),
	}
}

// Use remembers a nonce until a time, rounded up to a second, and reports whether it is new: a
// nonce is one whichever owner uses it. An error, [ErrFull], [ErrShare] or [ErrPast], means that it
// is not known whether it is new, and that it was not remembered. It never blocks.
func (m *Memory) Use(
	_ context.Context, owner, nonce string, until time.Time,
) (fresh bool, err error) {
	s := slot{hash: m.hash(nonce), until: m.since(until, time.Second-1)}
	tag := maphash.String(m.seeds[1], owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(m.since(m.clock(), 0))
	if s.until <= m.now {
		return false, ErrPast
	}
	i, place := m.find(s.hash)
	if i >= 0 {
		if o := &m.slots[i]; s.until > o.until {
			// what is refused now must not become new before it is stale
			m.forget(o.until)
			m.ends[s.until]++
			o.until = s.until
		}
		return false, nil
	}
	if err := m.fits(tag); err != nil {
		return false, err
	}
	s.owner = m.owners.take(tag)
	if o := &m.slots[place]; o.until == 0 {
		m.used++
	} else {
		m.owners.give(o.owner)
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

// Forget forgets a nonce with a Use that reported that it was new. It may be called once, and only
// when what the nonce was for did not happen.
func (m *Memory) Forget(_ context.Context, nonce string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, _ := m.find(m.hash(nonce)); i >= 0 && m.slots[i].until > m.now {
		m.forget(m.slots[i].until)
		m.live--
		m.remove(i)
	}
}

// find returns the slot of a nonce, -1 when it is not remembered, and then the slot for it.
func (m *Memory) find(hash uint64) (i, place int) {
	place = -1 // of an expired nonce
	for i = m.home(hash); m.slots[i].until != 0; i = m.next(i) {
		switch o := &m.slots[i]; {
		case o.until <= m.now:
			if place < 0 {
				place = i
			}
		case o.hash == hash:
			return i, i
		}
	}
	if place < 0 {
		place = i
	}
	return -1, place
}

// fits reports whether there is room for a nonce of an owner. The counts of owners may have some
// that have expired: before one is refused, all are counted again, once in a second.
func (m *Memory) fits(tag uint64) error {
	if m.live >= m.bounds.Total {
		return ErrFull
	}
	if m.bounds.Allows(m.owners.of(tag), m.live, 1) {
		return nil
	}
	if m.owners.counted != m.now {
		m.owners.counted = m.now
		for i := range m.slots {
			if s := &m.slots[i]; s.owner != 0 && s.until <= m.now {
				m.owners.give(s.owner)
				s.owner = 0
			}
		}
	}
	if m.bounds.Allows(m.owners.of(tag), m.live, 1) {
		return nil
	}
	return ErrShare
}

// Len returns how many nonces it remembers.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(m.since(m.clock(), 0))
	return m.live
}

func (m *Memory) hash(nonce string) uint64 { return maphash.String(m.seeds[0], nonce) }

// since returns the seconds from epoch to t, with up added before what is less than a second goes.
func (m *Memory) since(t time.Time, up time.Duration) uint32 {
	sec := t.Unix()
	if int64(t.Nanosecond())+int64(up) >= int64(time.Second) {
		sec++
	}
	// Before the epoch is over; after 136 years is never.
	return uint32(min(max(sec, m.epoch)-m.epoch, math.MaxUint32))
}

// advance lets time go on to now, in which everything has expired that was to be remembered until
// then.
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
		m.slots, m.used, m.hand, m.owners = make([]slot, least), 0, 0, newOwners()
	}
}

func (m *Memory) forget(end uint32) {
	if m.ends[end]--; m.ends[end] == 0 {
		delete(m.ends, end)
	}
}

func (m *Memory) home(hash uint64) int {
	i, _ := bits.Mul64(hash, uint64(len(m.slots)))
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
		} else {
			m.hand = m.next(m.hand)
		}
	}
}

// remove empties slot i, and moves what would no longer be found back.
func (m *Memory) remove(i int) {
	m.owners.give(m.slots[i].owner)
	m.used--
	size := len(m.slots)
	for j := m.next(i); m.slots[j].until != 0; j = m.next(j) {
		// j may move to i if its home is not after i, on the way from i to j.
		if home := m.home(m.slots[j].hash); (j-home+size)%size >= (j-i+size)%size {
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
	m.slots = make([]slot, max(least, min(2*m.live, m.bounds.Total+m.bounds.Total/4)))
	m.used, m.hand = 0, 0
	for _, s := range old {
		if s.until <= m.now {
			if s.until != 0 {
				m.owners.give(s.owner)
			}
			continue
		}
		i := m.home(s.hash)
		for m.slots[i].until != 0 {
			i = m.next(i)
		}
		m.slots[i] = s
		m.used++
	}
}
