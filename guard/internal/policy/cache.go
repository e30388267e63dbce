package policy

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
)

// Decisions are remembered up to a number, and of calls that are not long.
const (
	cacheEntries = 10_000
	cacheShards  = 16
	cacheLength  = 1024
)

// A cache remembers decisions, or what they need, by who calls and what. Entries are compared in
// full: the hash only finds them.
type cache[V any] struct {
	seed   maphash.Seed
	room   int // of a shard
	shards [cacheShards]shard[V]
}

type shard[V any] struct {
	mu      sync.RWMutex
	entries map[uint64]*entry[V]
}

type entry[V any] struct {
	subject                Subject // without claims
	method, upstream, name string
	transport, annotations string
	local                  bool
	value                  V
}

func newCache[V any](size int) *cache[V] {
	c := &cache[V]{seed: maphash.MakeSeed(), room: size / cacheShards}
	for i := range c.shards {
		c.shards[i].entries = map[uint64]*entry[V]{}
	}
	return c
}

// hash is over what a decision can depend on.
func (c *cache[V]) hash(q *Query, u *uses) uint64 {
	h := q.Subject.digest()
	for _, s := range [...]string{q.Method, q.Upstream, q.Name} {
		h = (h ^ maphash.String(c.seed, s)) * 0x9e3779b97f4a7c15
	}
	if u.transport {
		h = (h ^ maphash.String(c.seed, q.Transport)) * 0x9e3779b97f4a7c15
	}
	if u.annotations {
		h = (h ^ maphash.Bytes(c.seed, q.Annotations)) * 0x9e3779b97f4a7c15
	}
	if q.Local {
		h++
	}
	return h ^ h>>32
}

// subjectSeed is that of the hashes of subjects, which outlive a cache.
var subjectSeed = maphash.MakeSeed()

// digest is a hash of everything but the claims. It is computed once: a subject calls again and
// again.
func (p *Subject) digest() uint64 {
	if h := p.hash.Load(); h != 0 {
		return h
	}
	h := uint64(1)
	for _, s := range [...]string{p.ID, p.Name, p.Kind, p.Method, p.Issuer} {
		h = (h ^ maphash.String(subjectSeed, s)) * 0x9e3779b97f4a7c15
	}
	for _, s := range p.Roles {
		h = (h ^ maphash.String(subjectSeed, s)) * 0x9e3779b97f4a7c15
	}
	for _, s := range p.Scopes {
		h = (h ^ maphash.String(subjectSeed, s)) * 0xc2b2ae3d27d4eb4f
	}
	p.hash.Store(h)
	return h
}

func (e *entry[V]) is(q *Query, u *uses) bool {
	p, k := q.Subject, &e.subject
	return e.method == q.Method && e.name == q.Name && e.upstream == q.Upstream && e.local == q.Local &&
		p.Name == k.Name && p.ID == k.ID && p.Kind == k.Kind && p.Method == k.Method && p.Issuer == k.Issuer &&
		slices.Equal(p.Roles, k.Roles) && slices.Equal(p.Scopes, k.Scopes) &&
		(!u.transport || e.transport == q.Transport) &&
		(!u.annotations || e.annotations == string(q.Annotations))
}

// get returns what is known of a query.
func (c *cache[V]) get(h uint64, q *Query, u *uses) (v V, ok bool) {
	s := &c.shards[h%cacheShards]
	s.mu.RLock()
	e := s.entries[h]
	s.mu.RUnlock()
	if e == nil || !e.is(q, u) {
		return v, false
	}
	return e.value, true
}

// put remembers what is known of a query; any other makes room for it. Strings are copied: those of
// a call are often parts of its message.
func (c *cache[V]) put(h uint64, q *Query, u *uses, v V) {
	if len(q.Method)+len(q.Upstream)+len(q.Name)+len(q.Annotations) > cacheLength {
		return
	}
	p := q.Subject
	e := &entry[V]{
		subject: Subject{
			ID: strings.Clone(p.ID), Name: strings.Clone(p.Name), Kind: strings.Clone(p.Kind), Method: strings.Clone(p.Method),
			Issuer: strings.Clone(p.Issuer), Roles: slices.Clone(p.Roles), Scopes: slices.Clone(p.Scopes),
		},
		method: strings.Clone(q.Method), upstream: strings.Clone(q.Upstream), name: strings.Clone(q.Name),
		local: q.Local, value: v,
	}
	if u.transport {
		e.transport = strings.Clone(q.Transport)
	}
	if u.annotations {
		e.annotations = string(q.Annotations)
	}
	s := &c.shards[h%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.entries[h]; !found && len(s.entries) >= c.room {
		for old := range s.entries {
			delete(s.entries, old)
			break
		}
	}
	s.entries[h] = e
}
