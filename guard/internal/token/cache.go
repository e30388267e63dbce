package token

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	maxCached  = 10_000
	hashedTail = 43 // characters: 32 bytes, which the shortest signature has
)

// A cache has the tokens that were verified, by a hash with a secret seed. An entry is compared in
// full, and the time of that tells nothing: an attacker cannot make a token that gets there without
// knowing the seed, or the token.
type cache struct {
	seed    maphash.Seed
	mu      sync.RWMutex
	entries map[uint64]*entry
}

func newCache() cache { return cache{seed: maphash.MakeSeed(), entries: map[uint64]*entry{}} }

// hash is that of the end of a token, which is its signature: two genuine tokens have different
// ones.
func (c *cache) hash(raw string) uint64 {
	return maphash.String(c.seed, raw[max(0, len(raw)-hashedTail):])
}

type entry struct {
	raw   *string // a pointer: it is not printed
	token *Token
	key   *key      // that signed it
	until time.Time // it is not genuine any more: exp, or MaxAge
}

func (e *entry) good(now time.Time) bool { return now.Before(e.until) && !e.key.gone.Load() }

func (c *cache) get(hash uint64, raw string, now time.Time) *Token {
	c.mu.RLock()
	e := c.entries[hash]
	c.mu.RUnlock()
	if e == nil || *e.raw != raw || !e.good(now) {
		return nil
	}
	return e.token
}

// put remembers an entry. When there is no room one goes: a bad one among the
// first few that the map gives, in its random order, or else the last of these.
func (c *cache) put(hash uint64, e *entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.entries[hash]; !there && len(c.entries) >= maxCached {
		tries := 8
		for s, old := range c.entries {
			if tries--; tries == 0 || !old.good(now) {
				delete(c.entries, s)
				break
			}
		}
	}
	c.entries[hash] = e
}
