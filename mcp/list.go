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
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An offer is what a registry holds: a tool, a resource, a template or a prompt. T is itself.
type offer[T any] interface { //nolint:interfacebloat // what is listed, called and mounted does all of it
	key() string
	kind() string // as ServerOptions.Visible has it
	// shown returns how lists show it, in each era, both in canonical form.
	shown() (modern, legacy any)
	// mount returns the server that it is of, and nil when it is of the registry's own.
	mount() *mounted
	// under returns it as the server shows it that its own server is mounted in.
	under(m *mounted) T
	// origin is the key that it was added by, and arranged is it as the server shows it: see
	// Server.Transform.
	origin() string
	arranged(s *Server) T
	// visible reports whether the caller may see it in a server.
	visible(ctx context.Context, s *Server) bool
}

// registry holds what a server offers of one kind, its own and that of the servers mounted in it, in
// the order in which it was added. Reading takes no lock; Server.offering is held to change it.
type registry[T offer[T]] struct {
	list   listKind
	member string                     // of the result that lists it
	in     func(*Server) *registry[T] // finds this registry in another server
	ever   atomic.Bool
	now    atomic.Pointer[catalog[T]]
}

// catalog is the state of a registry. It is not changed.
type catalog[T offer[T]] struct {
	items []item[T]
	index map[string]T
	last  uint64 // the number that was given last
}

type item[T offer[T]] struct {
	value  T
	number uint64      // ascending; it stays when a value is replaced
	raw    jsonrpc.Raw // in canonical form, as lists show it
	legacy jsonrpc.Raw // as lists of revisions with LegacyTasks show it
}

func (r *registry[T]) init(list listKind, member string, in func(*Server) *registry[T]) {
	r.list, r.member, r.in = list, member, in
	r.now.Store(&catalog[T]{index: map[string]T{}})
}

// used reports whether there was ever something in the registry.
func (r *registry[T]) used() bool { return r.ever.Load() }

// add adds a value of the server's own, in the place of one with its key if there is one.
func (r *registry[T]) add(s *Server, value T) {
	s.checkMade()
	if s.relays() {
		misuse("the %s %q cannot be added: the server has a Relay, and nothing of its own", value.kind(), value.key())
	}
	s.offer(r.list, func() { r.setLocked(s, value.key(), nil, &value) })
}

func (r *registry[T]) remove(s *Server, key string) {
	s.offer(r.list, func() { r.setLocked(s, key, nil, nil) })
}

// setLocked puts a value in the place of the one that was added by the key and is of m (nil: the server's own), or
// at the end, and, without a value, removes that one. The outer servers are changed first, so that
// nothing is changed when one of them refuses. The locks of all of them are held in the end.
func (r *registry[T]) setLocked(s *Server, key string, m *mounted, value *T) {
	old := r.now.Load()
	at := slices.IndexFunc(old.items, func(i item[T]) bool { return i.value.origin() == key && i.value.mount() == m })
	if at < 0 && value == nil {
		return
	}
	c := &catalog[T]{items: slices.Clone(old.items), index: maps.Clone(old.index), last: old.last}
	if at >= 0 {
		delete(c.index, c.items[at].value.key())
	}
	if value != nil {
		arranged := (*value).arranged(s)
		value = &arranged
	}
	if value == nil {
		c.items = slices.Delete(c.items, at, at+1)
	} else {
		c.put(s, at, *value)
	}
	if outer := s.outer.Load(); outer != nil {
		outer.server.offering.Lock()
		defer outer.server.offering.Unlock()
		r.liftLocked(outer, old.at(at), value)
	}
	r.now.Store(c)
	r.ever.Store(r.ever.Load() || len(c.items) > 0)
}

// liftLocked makes a change of a mounted server in the outer one: from old, if there is one, to value, if
// there is one.
func (r *registry[T]) liftLocked(outer *mounted, old, value *T) {
	key := ""
	if value != nil {
		lifted := (*value).under(outer)
		key, value = lifted.key(), &lifted
	}
	if old != nil {
		key = (*old).under(outer).key()
	}
	r.in(outer.server).setLocked(outer.server, key, outer, value)
}

// at returns the value at a place, nil when there is none.
func (c *catalog[T]) at(i int) *T {
	if i < 0 {
		return nil
	}
	return &c.items[i].value
}

// put puts a value at a place, or at the end.
func (c *catalog[T]) put(s *Server, at int, value T) {
	if other, taken := c.index[value.key()]; taken {
		misuse("the %s %q of %s is one of %s as well: rename or remove one of them, or mount only one of the servers",
			value.kind(), value.key(), ownerName(s, value.mount()), ownerName(s, other.mount()))
	}
	modern, legacy := value.shown()
	raw, err := jsonv2.Append(nil, modern)
	old, oldErr := jsonv2.Append(nil, legacy)
	if err = errors.Join(err, oldErr); err != nil {
		misuse("the %s %q cannot be marshalled: %v", value.kind(), value.key(), err)
	}
	c.index[value.key()] = value
	if at >= 0 {
		c.items[at] = item[T]{value, c.items[at].number, raw, old}
		return
	}
	c.last++
	c.items = append(c.items, item[T]{value, c.last, raw, old})
}

// find returns what the caller may see under a key.
func (r *registry[T]) find(ctx context.Context, s *Server, key []byte) (value T, ok bool) {
	value, ok = r.now.Load().index[string(key)]
	return value, ok && value.visible(ctx, s)
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
		if !it.value.visible(c, s) {
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
	invalid := invalidParams("invalid cursor: use nextCursor from the previous page, or omit it")
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
