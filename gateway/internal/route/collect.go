package route

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What one list of a source may have. What is beyond is left out, and a Note says
// so.
const (
	maxPages = 1000
	maxItems = 100_000
	maxBytes = 64 << 20
	maxTTL   = 24 * time.Hour // whatever the source says
)

// Collect reads a list page by page. ask makes the call of the list's method with
// a cursor, "" for the first page, and returns the canonical result, which is
// kept. A list that is larger than a View takes is cut.
func Collect(kind string, ask func(cursor string) (jsonrpc.Raw, error)) (List, error) {
	k, err := kindOf(kind)
	if err != nil {
		return List{}, err
	}
	all := List{Public: true}
	cursor, size := "", 0
	for page := 1; ; page++ {
		result, err := ask(cursor)
		if err != nil {
			return List{}, err
		}
		ttl, public, next, items := pageOf(result, layouts[k].member)
		if page == 1 || ttl < all.TTL {
			all.TTL = ttl
		}
		all.Public = all.Public && public
		if items == nil {
			return List{}, fmt.Errorf("the list of %s has no member %q", kind, layouts[k].member)
		}
		scan.Array(items, func(item []byte) bool {
			if size += len(item); size > maxBytes || len(all.Items) >= maxItems {
				all.Note = fmt.Sprintf("the list is cut after %d items: it has too many, or they are too large", len(all.Items))
				return false
			}
			all.Items = append(all.Items, item)
			return true
		})
		switch {
		case next == "" || all.Note != "":
			return all, nil
		case next == cursor:
			return List{}, errors.New("the list has no end: the cursor of its next page is that of the page itself")
		case page == maxPages:
			all.Note = fmt.Sprintf("the list is cut after %d pages", page)
			return all, nil
		}
		cursor = next
	}
}

// pageOf reads a result: its items, nil when there are none, and what it says
// about itself.
func pageOf(result jsonrpc.Raw, member string) (ttl time.Duration, public bool, next string, items []byte) {
	scan.Object(result, func(key, value []byte) bool {
		switch string(key) {
		case member:
			items = value
		case "ttlMs":
			if ms, err := strconv.ParseFloat(string(value), 64); err == nil && ms > 0 {
				ttl = time.Duration(min(ms, float64(maxTTL/time.Millisecond))) * time.Millisecond
			}
		case "cacheScope":
			public = string(value) == `"public"`
		case "nextCursor":
			if value[0] == '"' {
				next = string(scan.Unquote(value))
			}
		}
		return true
	})
	return ttl, public, next, items
}
