package mcp

import (
	"bytes"
	"container/list"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What a client keeps at most.
const (
	cacheEntries = 1024
	cacheBytes   = 16 << 20
	cacheTTL     = 24 * time.Hour // whatever the server says
)

// A resultCache keeps results as long as the server said they may be kept
// (server/utilities/caching). It is one client's, and so may hold what is
// private to its user.
type resultCache struct {
	off bool

	mu      sync.Mutex
	results map[string]*list.Element // of *cacheEntry, by key
	recent  list.List                // the one used last is in front
	bytes   int
	drops   map[string]uint64 // by method: how often its results were dropped
	clears  uint64
}

// A cacheEntry is a result, or the place for one.
type cacheEntry struct {
	key, method, uri string
	drops, clears    uint64 // when the call was made
	raw              jsonrpc.Raw
	until            time.Time
}

func newResultCache(off bool) *resultCache {
	return &resultCache{off: off, results: map[string]*list.Element{}, drops: map[string]uint64{}}
}

// entry returns the place for the result of a call, or nil when that is not
// kept: its method has no such results, or it carries more than its method's own
// params.
func (c *resultCache) entry(method string, params jsonrpc.Raw) *cacheEntry {
	if c.off {
		return nil
	}
	switch method {
	case spec.MethodServerDiscover, spec.MethodToolsList, spec.MethodPromptsList, spec.MethodResourcesList,
		spec.MethodResourcesTemplatesList, spec.MethodResourcesRead:
	default:
		return nil
	}
	e := &cacheEntry{method: method}
	plain := true
	scan.Object(params, func(key, value []byte) bool {
		switch string(key) {
		case "uri":
			if value[0] == '"' {
				e.uri = string(scan.Unquote(value))
			}
		case "cursor":
		default:
			plain = false
		}
		return plain
	})
	if !plain {
		return nil
	}
	e.key = method + " " + string(params)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.drops, e.clears = c.drops[method], c.clears
	return e
}

// get returns the result that is kept for a call, if it is fresh.
func (c *resultCache) get(e *cacheEntry) jsonrpc.Raw {
	if e == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.results[e.key]
	if at == nil {
		return nil
	}
	kept := at.Value.(*cacheEntry) //nolint:errcheck // only those are in it
	if !time.Now().Before(kept.until) {
		c.removeLocked(at)
		return nil
	}
	c.recent.MoveToFront(at)
	return bytes.Clone(kept.raw)
}

// put keeps a result, unless what it shows may have changed since the call was
// made.
func (c *resultCache) put(e *cacheEntry, raw, ttl jsonrpc.Raw) {
	keep := keepFor(ttl)
	if e == nil || len(raw) > cacheBytes/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.results[e.key]; at != nil {
		c.removeLocked(at)
	}
	if keep <= 0 || e.clears != c.clears || e.drops != c.drops[e.method] {
		return
	}
	e.raw, e.until = bytes.Clone(raw), time.Now().Add(keep)
	c.results[e.key] = c.recent.PushFront(e)
	c.bytes += len(e.raw) + len(e.key)
	for c.bytes > cacheBytes || len(c.results) > cacheEntries {
		c.removeLocked(c.recent.Back())
	}
}

// keepFor reads a ttlMs. What is absent, negative or no number is 0.
func keepFor(ttl jsonrpc.Raw) time.Duration {
	ms, err := strconv.ParseFloat(string(ttl), 64)
	if err != nil && !math.IsInf(ms, 1) || !(ms > 0) {
		return 0
	}
	if ms >= float64(cacheTTL.Milliseconds()) {
		return cacheTTL
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// drop drops the results of a method, or those about one URI.
func (c *resultCache) drop(method, uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops[method]++
	for _, at := range c.results {
		if e := at.Value.(*cacheEntry); e.method == method && (uri == "" || e.uri == uri) { //nolint:errcheck // only those are in it
			c.removeLocked(at)
		}
	}
}

// clear drops everything.
func (c *resultCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clears++
	for _, at := range c.results {
		c.removeLocked(at)
	}
}

func (c *resultCache) removeLocked(at *list.Element) {
	e := c.recent.Remove(at).(*cacheEntry) //nolint:errcheck // only those are in it
	delete(c.results, e.key)
	c.bytes -= len(e.raw) + len(e.key)
}
