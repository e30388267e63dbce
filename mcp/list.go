package mcp

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/trie"
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

// registry holds what a server offers of one kind, its own and that of the servers mounted in it,
// in the order in which it was added. Reading takes no lock; Server.offering is held to change it.
// A change costs the same however much there is.
type registry[T offer[T]] struct {
	list   listKind
	member string                     // of the result that lists it
	in     func(*Server) *registry[T] // finds this registry in another server
	ever   atomic.Bool
	now    atomic.Pointer[catalog[T]]

	places map[place]uint64 // the numbers of the values; Server.offering is held
	last   uint64           // the number that was given last; Server.offering is held
}

// place is what a value is added by, and replaced and removed: see offer.origin.
type place struct {
	origin string
	of     *mounted // nil: the server itself
}

// catalog is the state of a registry. It is not changed.
type catalog[T offer[T]] struct {
	items trie.Ordered[*item[T]] // by their numbers
	index trie.Named[T]          // by their keys
}

// item is a value, as lists show it. Its number is higher than those of what was added before, and
// stays when a value is replaced.
type item[T offer[T]] struct {
	value  T
	raw    jsonrpc.Raw // in canonical form, as lists show it
	legacy jsonrpc.Raw // as lists of revisions with LegacyTasks show it
}

func (r *registry[T]) init(list listKind, member string, in func(*Server) *registry[T]) {
	r.list, r.member, r.in = list, member, in
	r.places = map[place]uint64{}
	r.now.Store(&catalog[T]{index: trie.NewNamed[T]()})
}

// used reports whether there was ever something in the registry.
func (r *registry[T]) used() bool { return r.ever.Load() }

// add adds a value of the server's own, in the place of one with its key if there is one.
func (r *registry[T]) add(s *Server, value T) {
	s.checkMade()
	if s.relays() {
		misuse("the %s %q cannot be added: the server has a Relay, and serves nothing itself",
			value.kind(), value.key())
	}
	s.offer(r.list, func() { r.setLocked(s, value.key(), nil, &value) })
}

func (r *registry[T]) remove(s *Server, key string) {
	s.offer(r.list, func() { r.setLocked(s, key, nil, nil) })
}

// setLocked puts a value in the place of the one that was added by the key and is of m (nil: the
// server's own), or at the end, and, without a value, removes that one. The outer servers are
// changed first, so that nothing is changed when one of them refuses. The locks of all of them are
// held in the end.
func (r *registry[T]) setLocked(s *Server, key string, m *mounted, value *T) {
	number, had := r.places[place{key, m}]
	if !had && value == nil {
		return
	}
	c := *r.now.Load()
	var old *T
	if had {
		it, _ := c.items.Get(number)
		old = &it.value
		c.index = c.index.Without((*old).key())
	} else {
		r.last++
		number = r.last
	}
	if value == nil {
		c.items = c.items.Without(number)
	} else {
		arranged := (*value).arranged(s)
		value = &arranged
		c.put(s, number, *value)
	}
	if outer := s.outer.Load(); outer != nil {
		outer.server.offering.Lock()
		defer outer.server.offering.Unlock()
		r.liftLocked(outer, old, value)
	}
	delete(r.places, place{key, m})
	if value != nil {
		r.places[place{(*value).origin(), m}] = number
		r.ever.Store(true)
	}
	r.now.Store(&c)
}

// liftLocked makes a change of a mounted server in the outer one: from old, if there is one, to
// value, if there is one.
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

// addedLocked returns the first value that was added by the key, to the server or to one that is
// mounted in it.
func (r *registry[T]) addedLocked(s *Server, key string) (value T, ok bool) {
	number, ok := r.places[place{key, nil}]
	if all := s.inner.Load(); all != nil {
		for _, m := range *all {
			if n, has := r.places[place{key, m}]; has && (!ok || n < number) {
				number, ok = n, true
			}
		}
	}
	if !ok {
		return value, false
	}
	it, _ := r.now.Load().items.Get(number)
	return it.value, true
}

// put puts a value at a place.
func (c *catalog[T]) put(s *Server, number uint64, value T) {
	if other, taken := c.index.Get([]byte(value.key())); taken {
		misuse("the %s %q of %s is one of %s as well: rename or remove one of them, or mount only one "+
			"of the servers",
			value.kind(), value.key(), ownerName(s, value.mount()), ownerName(s, other.mount()))
	}
	modern, legacy := value.shown()
	raw, err := jsonv2.Append(nil, modern)
	old, oldErr := jsonv2.Append(nil, legacy)
	if err = errors.Join(err, oldErr); err != nil {
		misuse("the %s %q cannot be marshalled: %v", value.kind(), value.key(), err)
	}
	c.index = c.index.With(value.key(), value)
	c.items = c.items.With(number, &item[T]{value, raw, old})
}

// values yields all values, in the order in which they were added.
func (r *registry[T]) values() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, it := range r.now.Load().items.From(0) {
			if !yield(it.value) {
				return
			}
		}
	}
}

// get returns what there is under a key.
func (r *registry[T]) get(key []byte) (value T, ok bool) { return r.now.Load().index.Get(key) }

// find returns what the caller may see under a key.
func (r *registry[T]) find(ctx context.Context, s *Server, key []byte) (value T, ok bool) {
	value, ok = r.get(key)
	return value, ok && value.visible(ctx, s)
}

// interned returns the key of what there is under a key, without an allocation, or "".
func (r *registry[T]) interned(key []byte) string {
	if value, ok := r.get(key); ok {
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
	out := append(jsonrpc.AppendString([]byte{'{'}, r.member), ':', '[')
	n, last := 0, uint64(0)
	for number, it := range r.now.Load().items.From(after) {
		if number == after || !it.value.visible(c, s) {
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
		n, last = n+1, number
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
