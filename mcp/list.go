package mcp

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An offer is what a registry holds: a tool, a resource, a template or a prompt.
type offer interface {
	key() string
	kind() string // as ServerOptions.Visible has it
}

// registry holds what a server offers of one kind, in the order in which it was
// added. Reading takes no lock.
type registry[T offer] struct {
	list   listKind
	member string // of the result that lists it
	ever   atomic.Bool
	mu     sync.Mutex
	now    atomic.Pointer[catalog[T]]
}

// catalog is the state of a registry. It is not changed.
type catalog[T offer] struct {
	items []item[T]
	index map[string]T
	last  uint64 // the number that was given last
}

type item[T offer] struct {
	value  T
	number uint64      // ascending; it stays when a value is replaced
	raw    jsonrpc.Raw // in canonical form, as lists show it
	legacy jsonrpc.Raw // as lists of revisions with LegacyTasks show it
}

func (r *registry[T]) init(list listKind, member string) {
	r.list, r.member = list, member
	r.now.Store(&catalog[T]{index: map[string]T{}})
}

// used reports whether there was ever something in the registry.
func (r *registry[T]) used() bool { return r.ever.Load() }

// add adds a value, in the place of one with its key if there is one. modern and
// legacy are how lists show it, both in canonical form.
func (r *registry[T]) add(s *Server, value T, modern, legacy any) {
	s.checkMade()
	if s.relays() {
		misuse("the %s %q cannot be added: the server has a Relay, and nothing of its own", value.kind(), value.key())
	}
	raw, err := jsonv2.Append(nil, modern)
	old, oldErr := jsonv2.Append(nil, legacy)
	if err = errors.Join(err, oldErr); err != nil {
		misuse("the %s %q cannot be marshalled: %v", value.kind(), value.key(), err)
	}
	r.change(s, value.key(), func(c *catalog[T], at int) {
		if at >= 0 {
			c.items[at] = item[T]{value, c.items[at].number, raw, old}
		} else {
			c.last++
			c.items = append(c.items, item[T]{value, c.last, raw, old})
		}
		c.index[value.key()] = value
	})
}

func (r *registry[T]) remove(s *Server, key string) {
	r.change(s, key, func(c *catalog[T], at int) {
		if at >= 0 {
			c.items = slices.Delete(c.items, at, at+1)
			delete(c.index, key)
		}
	})
}

func (r *registry[T]) change(s *Server, key string, f func(c *catalog[T], at int)) {
	r.mu.Lock()
	old := r.now.Load()
	c := &catalog[T]{items: slices.Clone(old.items), index: maps.Clone(old.index), last: old.last}
	f(c, slices.IndexFunc(c.items, func(i item[T]) bool { return i.value.key() == key }))
	r.now.Store(c)
	r.ever.Store(r.ever.Load() || len(c.items) > 0)
	r.mu.Unlock()
	s.listChanged(r.list)
}

// find returns what the caller may see under a key.
func (r *registry[T]) find(ctx context.Context, s *Server, key []byte) (value T, ok bool) {
	value, ok = r.now.Load().index[string(key)]
	return value, ok && s.visible(ctx, value.kind(), value.key())
}

// interned returns the key of what there is under a key, without an allocation, or "".
func (r *registry[T]) interned(key []byte) string {
	if value, ok := r.now.Load().index[string(key)]; ok {
		return value.key()
	}
	return ""
}

// page serves a method that lists the registry.
func (r *registry[T]) page(s *Server, c *call) (answer, error) {
	after, err := cursorNumber(r.member, c.in.cursor)
	if err != nil {
		return answer{}, err
	}
	items := r.now.Load().items
	items = items[sort.Search(len(items), func(i int) bool { return items[i].number > after }):]
	out := append(jsonrpc.AppendString([]byte{'{'}, r.member), ':', '[')
	n, last := 0, uint64(0)
	for _, it := range items {
		if !s.visible(c, it.value.kind(), it.value.key()) {
			continue
		}
		if n == s.opts.PageSize {
			out = append(out, `],"nextCursor":`...)
			out = jsonrpc.AppendString(out, newCursor(r.member, last))
			return answer{raw: append(out, '}'), plain: true}, nil
		}
		if n > 0 {
			out = append(out, ',')
		}
		if c.rev.LegacyTasks {
			out = append(out, it.legacy...)
		} else {
			out = append(out, it.raw...)
		}
		n, last = n+1, it.number
	}
	return answer{raw: append(out, "]}"...), plain: true}, nil
}

// A cursor is the number of the last value of a page, with a check sum of it and
// of what is listed: so it stays valid when something is added or removed, and
// that of one list is none of another.
func newCursor(list string, number uint64) string {
	b := binary.AppendUvarint(nil, number)
	b = binary.BigEndian.AppendUint32(b, cursorSum(list, b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func cursorSum(list string, number []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(list)), crc32.IEEETable, number)
}

// cursorNumber reads the member cursor; without one it returns 0.
func cursorNumber(list string, raw jsonrpc.Raw) (uint64, error) {
	if raw == nil || string(raw) == "null" {
		return 0, nil
	}
	invalid := invalidParams("the cursor is none of this list; take nextCursor of the page before, or start anew without one")
	if raw[0] != '"' {
		return 0, invalid
	}
	b, err := base64.RawURLEncoding.AppendDecode(nil, scan.Unquote(raw))
	if err != nil || len(b) < 5 {
		return 0, invalid
	}
	number, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	n, size := binary.Uvarint(number)
	if size != len(number) || sum != cursorSum(list, number) {
		return 0, invalid
	}
	return n, nil
}
