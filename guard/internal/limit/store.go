package limit

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxShards = 64
	minShard  = 64 // buckets, where there are several shards
	sweepSize = 16 // buckets that are looked at to find one that is full again
)

// A store holds buckets under the hash of their owner: what callers send is not kept, however long
// it is. The seed is secret, so a caller cannot choose the shard or the bucket that it gets.
//
// In each shard, one half is for authenticated principals only. The buckets that one caller can
// make many of (one for each call, or for each connection of an address) are its children: they may
// take half of what is free, and after that share the bucket of the caller. So one caller alone
// leaves at least half of the room for others, and the next one half of that.
type store struct {
	seed   maphash.Seed
	clock  *clock
	shards []shard // a power of two

	mu       sync.Mutex         // after those of the shards
	overflow map[uint64]*bucket // of rates
}

type shard struct {
	mu    sync.Mutex
	index map[uint64]*bucket
	ring  []*bucket // those of index, for hand to go round
	hand  int
	max   int
	open  int // of index: those that any caller can make

	_ [16]byte // so that two do not share a cache line
}

// A bucket is one of a rate.
type bucket struct {
	key  uint64
	rate *rate

	// fullAt is when it is full again: the one number that a token bucket
	// needs (it is known as GCRA).
	fullAt int64
	// used is how many of a quota, on the day epoch.
	used  int
	epoch int64

	lease    *lease  // where processes share it; nil: none was needed yet
	parent   *bucket // of a bucket for one call: that of the caller
	children int
	busy     bool // in use under the locks
	open     bool // any caller can make it
}

// A claim is a bucket that a call needs.
type claim struct {
	rate *rate
	key  uint64
	// parent is the bucket of the caller; key, when the caller has one bucket only.
	parent uint64
	// instead is the bucket of an authenticated caller where there is no room for that of its address;
	// 0: none.
	instead  uint64
	overflow uint64 // the bucket that is shared by all that find no room
	open     bool   // any caller can make it
	shard    int
	bucket   *bucket
	shared   bool // it locked store.mu
}

func newStore(size int, now func() time.Time) *store {
	n := 1
	for n < maxShards && size/(2*n) >= minShard {
		n *= 2
	}
	s := &store{
		seed: maphash.MakeSeed(), clock: newClock(now), shards: make([]shard, n),
		overflow: map[uint64]*bucket{},
	}
	for i := range s.shards {
		s.shards[i].index = map[uint64]*bucket{}
	}
	s.resize(size)
	return s
}

func (s *store) resize(size int) {
	for i := range s.shards {
		h := &s.shards[i]
		h.mu.Lock()
		h.max = max(size/len(s.shards), 1)
		h.mu.Unlock()
	}
}

func (s *store) hash(text string) uint64 { return maphash.String(s.seed, text) }

// hashAddress takes an IPv6 /64 for one address: that is what a customer gets.
func (s *store) hashAddress(text string) uint64 {
	a, ok := parseAddress(text)
	if !ok {
		return s.hash(text)
	}
	b := a.As16()
	return maphash.Bytes(s.seed, b[:])
}

func parseAddress(text string) (a netip.Addr, ok bool) {
	// The one that fails costs an allocation: choose by the looks.
	colons, bracket, dots := 0, false, 0
	for i := range len(text) {
		switch text[i] {
		case ':':
			colons++
		case '.':
			dots++
		case '[':
			bracket = true
		}
	}
	if bracket || colons == 1 && dots > 0 {
		p, err := netip.ParseAddrPort(text)
		return network(p.Addr()), err == nil
	}
	if colons == 0 && dots == 0 {
		return a, false
	}
	a, err := netip.ParseAddr(text)
	return network(a), err == nil
}

// network is the address, or the /64 of one of IPv6.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// mix is enough of a hash for what is one already.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	return hi ^ lo
}

func (s *store) shardOf(key uint64) int { return int(key>>32) & (len(s.shards) - 1) }

// lock locks the shards of the claims, which are in order.
func (s *store) lock(claims []claim) {
	last := -1
	for i := range claims {
		if n := claims[i].shard; n != last {
			s.shards[n].mu.Lock()
			last = n
		}
	}
}

// unlock undoes lock and find.
func (s *store) unlock(claims []claim) {
	last, shared := -1, false
	for i := range claims {
		if b := claims[i].bucket; b != nil {
			b.busy = false
		}
		shared = shared || claims[i].shared
	}
	if shared {
		s.mu.Unlock()
	}
	for i := range claims {
		if n := claims[i].shard; n != last {
			s.shards[n].mu.Unlock()
			last = n
		}
	}
}

// find finds the buckets of the claims. Their shards are locked. It returns the rate that lets the
// call wait longest, nil when there is room in all.
func (s *store) find(claims []claim, now instant) (worst *rate, wait time.Duration) {
	locked := false
	for i := range claims {
		k := &claims[i]
		k.bucket = s.shards[k.shard].bucket(k, now)
		if k.bucket == nil {
			if k.shared = !locked; k.shared {
				s.mu.Lock()
				locked = true
			}
			k.bucket = s.overflow[k.overflow]
			if k.bucket == nil {
				k.bucket = &bucket{rate: k.rate}
				s.overflow[k.overflow] = k.bucket
			}
		}
		k.bucket.busy = true
		if w := k.bucket.wait(now); w > wait {
			worst, wait = k.rate, w
		}
	}
	return worst, wait
}

// wait is how long a call waits for room in the bucket of a claim.
func (s *store) wait(k *claim, now instant) time.Duration {
	h := &s.shards[k.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.index[k.key]; b != nil {
		return b.wait(now)
	}
	return 0
}

// left is how many calls the bucket of a claim has room for.
func (s *store) left(k *claim, now instant) int {
	h := &s.shards[k.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.index[k.key]
	if b == nil {
		b = h.index[k.instead]
	}
	if b == nil && h.room(k.open) <= 0 { // it would get that of all that find no room
		s.mu.Lock()
		defer s.mu.Unlock()
		b = s.overflow[k.overflow]
	}
	if b == nil {
		b = &bucket{rate: k.rate}
	}
	return b.left(now)
}

// keep forgets the overflow of rates that are no more.
func (s *store) keep(rates []*rate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.read()
	for key, b := range s.overflow {
		if b.idle(now) && !slices.ContainsFunc(rates, func(r *rate) bool { return r.id == b.rate.id }) {
			delete(s.overflow, key)
		}
	}
}

// bucket finds the bucket of a claim or makes it. Nil: there is no room for one.
func (h *shard) bucket(k *claim, now instant) *bucket {
	if b := h.index[k.key]; b != nil {
		return b
	}
	if b := h.add(k, now); b != nil {
		return b
	}
	if k.instead == 0 {
		return nil
	}
	if b := h.index[k.instead]; b != nil {
		return b
	}
	return h.make(k.instead, k.rate, false, now)
}

// add makes the bucket of a claim, and that of its caller first.
func (h *shard) add(k *claim, now instant) *bucket {
	if k.key == k.parent {
		return h.make(k.key, k.rate, k.open, now)
	}
	parent := h.index[k.parent]
	if parent == nil {
		open := k.open && k.rate.per != perAll
		if parent = h.make(k.parent, k.rate, open, now); parent == nil {
			return nil
		}
	}
	wasBusy := parent.busy
	parent.busy = true
	defer func() { parent.busy = wasBusy }()
	if parent.children >= h.room(k.open) {
		h.sweep(now)
	}
	if parent.children >= h.room(k.open) {
		return parent
	}
	b := h.make(k.key, k.rate, k.open, now)
	if b == nil {
		return parent
	}
	b.parent = parent
	parent.children++
	return b
}

// make makes a bucket, in the place of one that is full again if need be.
func (h *shard) make(key uint64, r *rate, open bool, now instant) *bucket {
	if h.room(open) <= 0 {
		h.sweep(now)
	}
	if h.room(open) <= 0 {
		return nil
	}
	b := &bucket{key: key, rate: r, open: open}
	h.index[key] = b
	h.ring = append(h.ring, b)
	if open {
		h.open++
	}
	return b
}

// room is how many buckets may be made: of those that any caller can make, half of all.
func (h *shard) room(open bool) int {
	free := h.max - len(h.ring)
	if open {
		free = min(free, max(h.max/2, 1)-h.open)
	}
	return free
}

// sweep looks at some buckets and forgets those that are full again.
func (h *shard) sweep(now instant) {
	for n := 0; n < sweepSize && len(h.ring) > 0; n++ {
		if h.hand >= len(h.ring) {
			h.hand = 0
		}
		b := h.ring[h.hand]
		if b.busy || b.children > 0 || !b.idle(now) {
			h.hand++
			continue
		}
		if b.parent != nil {
			b.parent.children--
		}
		if b.open {
			h.open--
		}
		delete(h.index, b.key)
		last := len(h.ring) - 1
		h.ring[h.hand] = h.ring[last]
		h.ring[last] = nil
		h.ring = h.ring[:last]
	}
}

// wait is how long until there is room, 0 when there is.
func (b *bucket) wait(now instant) time.Duration {
	r := b.rate
	switch {
	case r.limit < 1:
		return time.Duration(r.interval)
	case r.quota:
		if b.epoch == now.epoch && b.used >= r.limit {
			return now.left
		}
		return 0
	}
	return time.Duration(max(0, b.fullAt-now.at-r.depth))
}

func (b *bucket) take(now instant) {
	r := b.rate
	if !r.quota {
		b.fullAt = max(b.fullAt, now.at) + r.interval
		return
	}
	if b.epoch != now.epoch {
		b.epoch, b.used = now.epoch, 0
	}
	b.used++
}

// idle reports whether it is as good as a new one.
func (b *bucket) idle(now instant) bool {
	if b.rate.quota {
		return b.used == 0 || b.epoch != now.epoch
	}
	return b.fullAt <= now.at
}

// left is how many calls there is room for.
func (b *bucket) left(now instant) int {
	r := b.rate
	switch {
	case r.limit < 1:
		return 0
	case r.quota && b.epoch == now.epoch:
		return max(0, r.limit-b.used)
	case r.quota:
		return r.limit
	}
	ahead := max(0, b.fullAt-now.at)
	if ahead > r.depth {
		return 0
	}
	return int((r.depth-ahead)/r.interval) + 1
}

const (
	// slack is how far the clock may be behind what was seen of it: goroutines read it
	// and are overtaken.
	slack = int64(time.Second)
	// backDays is how far back across midnight a clock may go that is taken for a
	// correction: midnight comes again and is no new day.
	backDays = int64(3600)

	secondsOfDay = int64(86400)
)

// An instant is a time of a clock.
type instant struct {
	at    int64         // ns since the clock began; stands still rather than going back
	epoch int64         // the day, counted
	left  time.Duration // of the day
}

// A clock makes time that does not go back of one that may.
type clock struct {
	now  func() time.Time
	from atomic.Pointer[origin]
	last atomic.Int64 // the latest instant, or up to a millisecond before

	day   atomic.Int64 // since 1970, as the clock says
	epoch atomic.Int64

	mu sync.Mutex // for from, day and epoch to change
}

// An origin relates the two.
type origin struct {
	wall time.Time
	at   int64
}

func newClock(now func() time.Time) *clock {
	c := &clock{now: now}
	t := now()
	c.from.Store(&origin{wall: t})
	c.day.Store(t.Unix() / secondsOfDay)
	return c
}

func (c *clock) read() instant {
	from := c.from.Load() // before the clock is read: anyone who reads it later knows of its steps
	t := c.now()
	at := from.at + int64(t.Sub(from.wall))
	switch last := c.last.Load(); {
	case at < last-slack:
		at = c.stepBack(t)
	case at > last+int64(time.Millisecond):
		c.last.CompareAndSwap(last, at) // another's will do
	}
	seconds := t.Unix()
	if seconds/secondsOfDay != c.day.Load() {
		c.turn(seconds)
	}
	of := time.Duration(seconds%secondsOfDay)*time.Second + time.Duration(t.Nanosecond())
	return instant{at: at, epoch: c.epoch.Load(), left: day - of}
}

// stepBack lets time go on from where it was.
func (c *clock) stepBack(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, last := c.from.Load(), c.last.Load()
	at := from.at + int64(t.Sub(from.wall))
	if at < last-slack {
		c.from.Store(&origin{wall: t, at: last})
		return last
	}
	return at // another goroutine has done it
}

// turn counts a new day. One that was there already is not new: a clock that goes
// back across midnight gives no second quota. One that was far ahead and
// is set right does not make today last until then.
func (c *clock) turn(seconds int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch today, known := seconds/secondsOfDay, c.day.Load(); {
	case today > known:
		c.day.Store(today)
		c.epoch.Add(1)
	case known*secondsOfDay-seconds > backDays:
		c.day.Store(today)
	}
}
