// Package limit answers one question: is there room for this call, and for this
// connection?
//
// A [Limiter] has token buckets, quotas of the day and places for calls that
// are under way. What it remembers is bounded, no matter who calls: see
// [Options.MaxBuckets]. It fails closed: what finds no room to be counted on its own is
// counted together with others.
package limit

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	defaultBuckets = 100_000
	day            = 24 * time.Hour
)

// A Rate is a token bucket for each of those that it is for.
type Rate struct {
	// Per is what has a bucket: "principal" (also ""), "address" or "all".
	Per string
	// Calls are patterns for Options.Match, all calls by default. Each has a bucket for
	// every call that differs.
	Calls []string
	Each  bool
	// Roles are those that it is for: callers with one of them. Default: all.
	Roles []string
	// Limit calls fit into Every (1 s by default), and Burst at once (Limit by default). Less
	// than 1 lets no call through. Every of 24 hours is a quota: the day begins at
	// midnight UTC, and Burst means nothing.
	Limit int
	Every time.Duration
	Burst int
}

// Options adjust a Limiter. The zero value, and nil, mean no limits.
type Options struct {
	Rates []Rate
	// Concurrent bounds the calls of a principal that are under way, Total those of
	// all. 0: no bound. Of a Total of 4 and up an eighth is kept for those who have less than their
	// fair share, which is what is left divided by those who have calls under way or had
	// within a second; and up to a half, a place for each who called within a second and
	// does not now. So one alone gets seven eighths, and one who floods leaves room for the others.
	Concurrent, Total int
	// Match reports whether a call is one of a pattern. Default: it is the pattern, or that is "*".
	Match func(pattern, call string) bool
	// Now is the clock, time.Now by default. When it goes back, time goes on from where it was.
	Now func() time.Time
	// MaxBuckets bounds what is remembered, 100,000 by default, of less than 200 bytes each.
	// Only a bucket that is full again is forgotten. Half of them are for authenticated principals
	// only. When there is none, newcomers share one bucket for each Rate, the authenticated ones
	// another than the others. What one caller can make many of takes no more than half of what is
	// free of a shard (780 by default): buckets for each call, and for each connection of an address.
	// Its further calls share one.
	MaxBuckets int
	// Shared counts the rates for several processes together, for TakeShared. Nil: this one counts
	// for itself.
	Shared *Shared
}

// A Caller makes a call.
type Caller struct {
	// Owner has the buckets and places of the caller.
	Owner owner.Key
	// Address is an IP address, with a port or without; all of an IPv6 /64 count as one. A text that
	// is no IP address counts as it is.
	Address string
	Roles   []string
}

// Exceeded says that there is no room.
type Exceeded struct { //nolint:errname // a caller reads limit.Exceeded
	// Which is the limit, for operator and caller: "10 in 1s of tools/call github/* for each
	// principal".
	Which string
	// RetryAfter is when there may be room: whole milliseconds, at least one.
	RetryAfter time.Duration
}

// Error names the limit and when to try again.
func (e *Exceeded) Error() string {
	return "limit: no room for the call: " + e.Which + "; try again in " + e.RetryAfter.String()
}

// Limiter bounds calls. Its methods may be called by any number of goroutines at
// once, but Adopt.
type Limiter struct {
	rates    []*rate
	match    func(pattern, call string) bool
	max      int
	bounds   share.Bounds // of running calls
	store    *store
	places   *places
	byPeer   bool // some rate goes by address
	needsAny bool // there is some limit
	shared   *Shared
}

// New returns a limiter.
func New(o *Options) *Limiter {
	o = cmp.Or(o, new(Options))
	l := &Limiter{
		match: o.Match, max: o.MaxBuckets, bounds: newBounds(o.Concurrent, o.Total),
		shared: o.Shared,
	}
	if l.match == nil {
		l.match = func(pattern, call string) bool { return pattern == "*" || pattern == call }
	}
	l.max = cmp.Or(max(l.max, 0), defaultBuckets)
	now := o.Now
	if now == nil {
		now = time.Now
	}
	same := map[string]int{}
	for i := range o.Rates {
		r := newRate(&o.Rates[i], i)
		// Two that are equal are two buckets all the same.
		same[r.definition]++
		r.definition += "\x00" + strconv.Itoa(same[r.definition])
		l.rates = append(l.rates, r)
		l.byPeer = l.byPeer || r.per == perAddress
	}
	l.needsAny = len(l.rates) > 0 || l.bounded()
	l.store = newStore(l.max, now)
	l.places = newPlaces()
	l.name()
	return l
}

// name tells the rates apart in the store.
func (l *Limiter) name() {
	for _, r := range l.rates {
		r.id = l.store.hash(r.definition)
		if r.ofAddress != nil {
			r.ofAddress.id = mix(r.id, 1)
		}
	}
}

// Adopt goes on where old is: with the buckets of the rates that both have, the quotas and the
// calls under way, which go on to end in both. The clock is that of old. It
// must be called before anything else; old may be in use meanwhile.
func (l *Limiter) Adopt(old *Limiter) {
	if old == nil {
		return
	}
	l.store, l.places = old.store, old.places
	l.store.resize(l.max)
	l.name()
	l.store.keep(l.rates)
}

// Take finds room for a call in every limit that is for it, or takes from none and returns an
// *Exceeded. release is to be called when the call has ended; the second time it does
// nothing.
func (l *Limiter) Take(c *Caller, call string) (release func(), err error) {
	release, _, err = l.take(c, call, false)
	return release, err
}

// take is Take; with shared it also takes from the leases, or returns the one that is to be fetched
// first.
func (l *Limiter) take(c *Caller, call string, shared bool) (release func(), w *want, err error) {
	if !l.needsAny {
		return nothing, nil, nil
	}
	var array [4]claim // more are allocated; a larger array makes the stack of each connection grow
	claims := l.claims(array[:0], c, call)
	now := l.store.clock.read()
	l.store.lock(claims)
	defer l.store.unlock(claims)
	if r, wait := l.store.find(claims, now); r != nil {
		return nil, nil, exceeded(r.text, wait)
	}
	release = nothing
	if l.bounded() {
		var refused *Exceeded
		if release, refused = l.places.take(l.bounds, c.Owner, l.store.clock, now.at); refused != nil {
			return nil, nil, refused
		}
	}
	if shared {
		w, refused := l.leased(claims, c, call, now)
		if w != nil || refused != nil {
			release()
		}
		switch {
		case w != nil:
			return nil, w, nil
		case refused != nil:
			return nil, nil, refused
		}
	}
	for i := range claims {
		claims[i].bucket.take(now)
	}
	return release, nil, nil
}

func nothing() {}

// exceeded rounds up to milliseconds.
func exceeded(which string, wait time.Duration) *Exceeded {
	const ms = time.Millisecond
	return &Exceeded{Which: which, RetryAfter: (max(wait, 1) + ms - 1).Truncate(ms)}
}

// Wait returns how long a call would have to wait for room in the rates; 0 when there is some. It
// counts nothing.
func (l *Limiter) Wait(c *Caller, call string) (longest time.Duration) {
	now := l.store.clock.read()
	claims := l.claims(nil, c, call)
	for i := range claims {
		longest = max(longest, l.store.wait(&claims[i], now))
	}
	return longest
}

// Explain names the limits that would count the call, with what is left. It
// counts nothing.
func (l *Limiter) Explain(c *Caller, call string) (lines []string) {
	now := l.store.clock.read()
	claims := l.claims(nil, c, call)
	slices.SortStableFunc(claims, func(a, b claim) int { return a.rate.index - b.rate.index })
	for i := range claims {
		left := l.store.left(&claims[i], now)
		lines = append(lines, claims[i].rate.text+": "+strconv.Itoa(left)+" left")
	}
	mine, group, all := l.places.counts(c.Owner)
	left := func(text string, n, used int) {
		lines = append(lines, text+": "+strconv.Itoa(max(0, n-used))+" left")
	}
	if n := l.bounds.Owner; n > 0 {
		left(concurrentText(n), n, mine)
		if many(c.Owner) {
			left(addressText(l.bounds.Group), l.bounds.Group, group)
		}
	}
	if n := l.bounds.Total; n > 0 {
		left(totalText(n), n, all)
	}
	return lines
}

// bounded reports whether there is a bound of running calls.
func (l *Limiter) bounded() bool { return l.bounds.Owner > 0 || l.bounds.Total > 0 }

// many reports whether a caller can become many owners, by opening more connections from its
// address.
func many(o owner.Key) bool { return o.Group() != o }

// A subject is a caller as the store knows it.
type subject struct {
	owner, group, address, call uint64
	many, authenticated         bool
}

// claims returns the buckets that the call needs, in the order of their locks.
func (l *Limiter) claims(claims []claim, c *Caller, call string) []claim {
	if len(l.rates) == 0 {
		return claims
	}
	s := subject{
		owner: l.store.hash(c.Owner.Text()), call: l.store.hash(call) | 1,
		many: many(c.Owner), authenticated: c.Owner.Authenticated(),
	}
	if s.many {
		s.group = l.store.hash(c.Owner.Group().Text())
	}
	if l.byPeer {
		s.address = l.store.hashAddress(c.Address)
	}
	for _, r := range l.rates {
		if !r.isFor(c, call, l.match) {
			continue
		}
		claims = l.insert(claims, r.claim(&s))
		if r.ofAddress != nil && s.many {
			claims = l.insert(claims, r.ofAddress.claim(&s))
		}
	}
	return claims
}

// insert keeps claims in the order of their shards.
func (l *Limiter) insert(claims []claim, k claim) []claim {
	k.shard = l.store.shardOf(k.parent) // the buckets of a caller are in one shard, with their sum
	i := len(claims)
	for ; i > 0 && claims[i-1].shard > k.shard; i-- {
	}
	return slices.Insert(claims, i, k)
}

// claim returns the bucket of a subject.
func (r *rate) claim(s *subject) claim {
	k := claim{rate: r, overflow: r.id, open: !s.authenticated}
	if k.open && r.per != perAll {
		k.overflow = mix(r.id, 2)
	}
	switch r.per {
	case perAll:
		k.parent, k.open = r.id, k.open && r.each
	case perAddress:
		k.parent, k.open = mix(r.id, s.address), true
		if s.authenticated {
			k.instead = mix(mix(r.id, 3), s.owner)
		}
	case perGroup:
		k.parent = mix(r.id, s.group)
	default:
		k.parent = mix(r.id, s.owner)
		if s.many {
			k.parent = mix(mix(r.id, 4), s.group)
		}
	}
	k.key = k.parent
	if r.per == perPrincipal && s.many {
		k.key = mix(k.key, s.owner)
	}
	if r.each {
		k.key = mix(k.key, s.call)
	}
	return k
}

const (
	perPrincipal = iota
	perAddress
	perAll
	perGroup // the anonymous sessions and connections of an address together
)

// addressFactor is how many times the limit of one anonymous session or connection those of its
// address have together: callers behind one address each get something, and a caller that connects
// again and again does not get the limit again and again.
const addressFactor = 8

// A rate is a Rate that is ready to use.
type rate struct {
	definition string
	text       string // Exceeded.Which
	id         uint64
	index      int   // in the order of Options.Rates
	ofAddress  *rate // for all anonymous connections of an address; nil: it is not per principal

	per   int
	each  bool
	calls []string // nil: all
	roles []string // nil: all

	limit    int
	quota    bool
	interval int64 // ns for one token
	depth    int64 // ns that a bucket may be ahead: Burst-1 tokens
}

func newRate(o *Rate, index int) *rate {
	switch o.Per {
	case "address":
		return newRatePer(o, perAddress, 2*index)
	case "all":
		return newRatePer(o, perAll, 2*index)
	}
	r := newRatePer(o, perPrincipal, 2*index)
	more := *o
	more.Limit, more.Burst = timesFactor(o.Limit), timesFactor(o.Burst)
	r.ofAddress = newRatePer(&more, perGroup, 2*index+1)
	return r
}

func timesFactor(n int) int { return min(max(n, 0), math.MaxInt/addressFactor) * addressFactor }

func newRatePer(o *Rate, per, index int) *rate {
	r := &rate{
		per: per, index: index, each: o.Each, limit: max(o.Limit, 0),
		calls: slices.Clone(o.Calls), roles: slices.Clone(o.Roles),
	}
	if slices.Contains(r.calls, "*") {
		r.calls = nil
	}
	every := o.Every
	every = cmp.Or(max(every, 0), time.Second)
	burst := o.Burst
	burst = cmp.Or(max(burst, 0), r.limit)
	if r.quota = every == day; r.quota {
		burst = r.limit
	}
	r.interval = int64(every)
	if r.limit > 0 {
		r.interval = (int64(every) + int64(r.limit) - 1) / int64(r.limit)
	}
	const most = int64(1) << 60
	r.depth = most
	if n := int64(burst - 1); n <= 0 || r.interval < most/n {
		r.depth = max(n, 0) * r.interval
	}
	r.text = r.describe(every, burst)
	r.definition = strings.Join([]string{
		strconv.Itoa(r.per), strconv.FormatBool(r.each), strings.Join(r.calls, "\x01"),
		strings.Join(r.roles, "\x01"),
		strconv.Itoa(r.limit), every.String(), strconv.Itoa(burst),
	}, "\x00")
	return r
}

func (r *rate) describe(every time.Duration, burst int) string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(r.limit))
	if r.quota {
		b.WriteString(" a day (UTC)")
	} else {
		b.WriteString(" in " + short(every))
	}
	if burst != r.limit {
		b.WriteString(", " + strconv.Itoa(burst) + " at once,")
	}
	if r.calls != nil {
		b.WriteString(" of " + strings.Join(r.calls, ", "))
	}
	if r.each {
		b.WriteString(", each on its own,")
	}
	b.WriteString(
		[...]string{" for each principal", " for each address", " for all", " for the anonymous sessions and connections of an address"}[r.per])
	if r.roles != nil {
		b.WriteString(" with the role " + strings.Join(r.roles, " or "))
	}
	return b.String()
}

// short is d without zeros at its end: 1m, not 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (r *rate) isFor(c *Caller, call string, match func(pattern, call string) bool) bool {
	if r.roles != nil && !slices.ContainsFunc(r.roles, func(role string) bool {
		return slices.Contains(c.Roles, role)
	}) {
		return false
	}
	return r.calls == nil || slices.ContainsFunc(r.calls, func(p string) bool {
		return match(p, call)
	})
}
