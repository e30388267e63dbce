package mcp

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What one list may have.
const (
	maxPages = 10_000
	maxItems = 100_000
	maxList  = 256 << 20 // bytes
)

// Resources returns what can be read.
func (c *Client) Resources(ctx context.Context) ([]spec.Resource, error) {
	return allPages(ctx, c, spec.MethodResourcesList, "resources", false,
		func(r *spec.ListResourcesResult) ([]spec.Resource, string) {
			return r.Resources, r.NextCursor
		})
}

// Templates returns the templates of what can be read.
func (c *Client) Templates(ctx context.Context) ([]spec.ResourceTemplate, error) {
	return allPages(ctx, c, spec.MethodResourcesTemplatesList, "resourceTemplates", false,
		func(r *spec.ListResourceTemplatesResult) ([]spec.ResourceTemplate, string) {
			return r.ResourceTemplates, r.NextCursor
		})
}

// Prompts returns the prompts.
func (c *Client) Prompts(ctx context.Context) ([]spec.Prompt, error) {
	return allPages(ctx, c, spec.MethodPromptsList, "prompts", false,
		func(r *spec.ListPromptsResult) ([]spec.Prompt, string) {
			return r.Prompts, r.NextCursor
		})
}

// allPages gets all pages of a list, fresh ones or what the cache has. The items
// of a page are in that member of the result.
func allPages[R, T any](
	ctx context.Context, c *Client, method, member string, fresh bool, page func(*R) ([]T, string),
) ([]T, error) {
	all := []T{}
	seen := map[string]bool{}
	cursor, size := "", listSize{}
	for range maxPages {
		var params jsonrpc.Raw
		if cursor != "" {
			o := object.New(nil)
			o.Add("cursor", jsonrpc.AppendString(nil, cursor))
			params = o.End()
		}
		raw, err := c.call(ctx, &outgoing{method: method, params: params, fresh: fresh})
		if err != nil {
			return nil, err
		}
		if err := size.add(raw, member); err != nil {
			return nil, fmt.Errorf("mcp: %q: %w", method, err)
		}
		r := new(R)
		if err := decodeResult(method, raw, r); err != nil {
			return nil, err
		}
		items, next := page(r)
		all = append(all, items...)
		if next == "" {
			return all, nil
		}
		if seen[next] {
			return nil,
				fmt.Errorf(
					"mcp: %q: %w: the pages of the list go round in circles: the cursor %.40q came twice", method,
					farcall.ErrProtocol, next)
		}
		seen[next], cursor = true, next
	}
	return nil, fmt.Errorf("mcp: %q: %w: the list has more than %d pages", method, farcall.ErrProtocol,
		maxPages)
}

// listSize says how much a list has so far.
type listSize struct{ items, bytes int }

// add counts a page before it is decoded, for in memory it is far larger.
func (s *listSize) add(page jsonrpc.Raw, member string) error {
	s.bytes += len(page)
	for range scan.Elements(scan.Member(page, member)) {
		s.items++
	}
	if s.items > maxItems || s.bytes > maxList {
		return fmt.Errorf("the list is too long: it has more than %d items or %d MiB", maxItems,
			maxList>>20)
	}
	return nil
}

// requested makes a request and returns its result, which is an R.
func requested[R any](ctx context.Context, c *Client, method string, params any) (*R, error) {
	r := new(R)
	if err := c.Request(ctx, method, params, r); err != nil {
		return nil, err
	}
	return r, nil
}

// Read reads a resource.
func (c *Client) Read(ctx context.Context, uri string) (*spec.ReadResourceResult, error) {
	return requested[spec.ReadResourceResult](ctx, c, spec.MethodResourcesRead,
		&spec.ReadResourceRequestParams{URI: uri})
}

// Prompt returns a prompt, filled in with arguments.
func (c *Client) Prompt(
	ctx context.Context, name string, args map[string]string,
) (*spec.GetPromptResult, error) {
	return requested[spec.GetPromptResult](ctx, c, spec.MethodPromptsGet,
		&spec.GetPromptRequestParams{Name: name, Arguments: args})
}

// Complete returns what an argument of a prompt or a resource template may
// become.
func (c *Client) Complete(
	ctx context.Context, p *spec.CompleteRequestParams,
) (*spec.CompleteResult, error) {
	return requested[spec.CompleteResult](ctx, c, spec.MethodCompletionComplete, p)
}

// Ping asks for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	l, err := c.link(ctx)
	if err != nil {
		return fmt.Errorf("mcp: ping: %w", err)
	}
	method := spec.MethodPing
	if !l.rev.PingAllowed {
		method = spec.MethodServerDiscover
	}
	_, err = c.call(ctx, &outgoing{method: method, fresh: true})
	return err
}

// SetLogLevel says from which level on the server shall log, from now on.
func (c *Client) SetLogLevel(ctx context.Context, level string) error {
	if spec.LogSeverity(level) < 0 {
		return fmt.Errorf("mcp: there is no log level %q; the levels are %q", level, spec.LogLevels())
	}
	c.mu.Lock()
	c.level = level
	c.meta.Store(nil)
	c.mu.Unlock()
	l, err := c.link(ctx)
	if err != nil || l.rev.MetaLogLevel {
		return err
	}
	return c.setLevel(ctx, l)
}

// setLevel tells a legacy server the level. One at a time does, so that the
// server ends up with the last one.
func (c *Client) setLevel(ctx context.Context, l *link) error {
	select {
	case c.leveling <- struct{}{}:
		defer func() { <-c.leveling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	params, err := jsonv2.Append(nil, &spec.SetLevelParams{Level: c.logLevel()})
	if err != nil {
		return err
	}
	q := &outgoing{method: spec.MethodLoggingSetLevel, params: params}
	if _, err = c.exchange(ctx, l, q); err != nil {
		return c.failure(l, q.method, err)
	}
	return nil
}

// RootsChanged tells the server that the roots have changed. In revisions in
// which a server asks for them whenever it needs them it does nothing.
func (c *Client) RootsChanged(ctx context.Context) error {
	l, err := c.link(ctx)
	if err != nil || !l.rev.RootsChanged {
		return err
	}
	if err := l.peer.Notify(ctx, spec.NotificationRootsListChanged, nil); err != nil {
		return fmt.Errorf("mcp: %w", err)
	}
	return nil
}

// closeTimeout bounds what is still told to the server when something ends.
const closeTimeout = 2 * time.Second

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
	case spec.MethodServerDiscover, spec.MethodToolsList, spec.MethodPromptsList,
		spec.MethodResourcesList,
		spec.MethodResourcesTemplatesList, spec.MethodResourcesRead:
	default:
		return nil
	}
	e := &cacheEntry{method: method}
	for key, value := range scan.Members(params) {
		switch string(key) {
		case "uri":
			if value[0] == '"' {
				e.uri = string(scan.Unquote(value))
			}
		case "cursor":
		default:
			return nil
		}
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
