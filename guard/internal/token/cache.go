package token

import (
	"crypto/sha256"
	"sync"
	"time"
)

const maxCached = 10_000

// A cache has the tokens that were verified, by their SHA-256: a lookup does not tell by its time how much
// of a token is right, and a dump of memory has no tokens.
type cache struct {
	mu      sync.RWMutex
	entries map[[sha256.Size]byte]*entry
}

type entry struct {
	token *Token
	key   *key      // that signed it
	until time.Time // it is not genuine any more: exp, or MaxAge
}

func (e *entry) good(now time.Time) bool { return now.Before(e.until) && !e.key.gone.Load() }

func (c *cache) get(sum *[sha256.Size]byte, now time.Time) *Token {
	c.mu.RLock()
	e := c.entries[*sum]
	c.mu.RUnlock()
	if e == nil || !e.good(now) {
		return nil
	}
	return e.token
}

// put remembers an entry. When there is no room one goes: a bad one among the
// first few that the map gives, in its random order, or else the last of these.
func (c *cache) put(sum *[sha256.Size]byte, e *entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.entries[*sum]; !there && len(c.entries) >= maxCached {
		tries := 8
		for s, old := range c.entries {
			if tries--; tries == 0 || !old.good(now) {
				delete(c.entries, s)
				break
			}
		}
	}
	c.entries[*sum] = e
}
