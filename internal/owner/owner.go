// Package owner answers one question: who owns this state?
//
// Everything that the process keeps for a caller (sessions, tasks, sealed states, suspended calls,
// connections to upstreams, event tails, buckets, nonces, cached private lists) is kept under a
// [Key]. A name that people read is never a key: two callers may have the same one.
package owner

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
)

// A Key is the owner of state. It is comparable and opaque. The zero Key owns nothing: state
// cannot be kept for it.
//
// The owner of an authenticated caller is its principal. The owner of any other caller is its
// session, without a session its connection, and without its own connection (stateless HTTP)
// its address: unauthenticated callers own nothing in common but what comes from one address.
type Key struct {
	id    string // its first byte is the kind; the parts that follow have their lengths before them
	group string // the id of the group; "" when the key is its own group
}

// The kinds, as the first byte of an id.
const (
	kindPrincipal  = 'p'
	kindSession    = 's'
	kindConnection = 'c'
	kindAddress    = 'a'
)

var names = map[byte]string{
	kindPrincipal: "principal", kindSession: "session",
	kindConnection: "connection", kindAddress: "address",
}

// Principal returns the owner that stands for an authenticated caller: who vouches for it (issuer,
// "" for the configuration), how it was authenticated, its kind, and its id among those of the
// kind.
func Principal(method, kind, issuer, id string) Key {
	return Key{id: join(kindPrincipal, method, kind, issuer, id)}
}

// Named returns the owner of a caller that a program authenticates in its own way and names by a
// unique text. The empty text is no owner.
func Named(text string) Key {
	if text == "" {
		return Key{}
	}
	return Key{id: join(kindPrincipal, text)}
}

// Session returns the owner that stands for a session of an unauthenticated caller at an address,
// "" when the transport has none. The id must be unique in the process.
func Session(id, address string) Key {
	return Key{id: join(kindSession, id), group: Address(address).id}
}

// Connection returns the owner that stands for the unauthenticated caller at the other end of a
// connection that is its alone, from an address, "" when the transport has none. The id must be
// unique in the process.
func Connection(id, address string) Key {
	return Key{id: join(kindConnection, id), group: Address(address).id}
}

// Address returns the owner that stands for all callers of an IP address, given with a port or
// without: all of an IPv6 /64 count as one. A text that is no IP address counts as it is, and the
// empty one is no owner.
func Address(text string) Key {
	if text == "" {
		return Key{}
	}
	if a, ok := parse(text); ok {
		text = a.String()
	}
	return Key{id: join(kindAddress, text)}
}

// IsZero reports whether k is no owner.
func (k Key) IsZero() bool { return k.id == "" }

// Exclusive reports whether k stands for one caller. An address does not: what an address owns is
// reached by a secret id only, and never listed.
func (k Key) Exclusive() bool { return k.id != "" && k.id[0] != kindAddress }

// Authenticated reports whether k stands for a principal.
func (k Key) Authenticated() bool { return k.id != "" && k.id[0] == kindPrincipal }

// Group returns the key under which shares are counted as a whole: the address of an
// unauthenticated session or connection, so that opening more of them wins nothing; else k.
func (k Key) Group() Key {
	if k.group == "" {
		return k
	}
	return Key{id: k.group}
}

// In returns k as a member of a group: a session of a principal, for example, where each of its
// sessions has its own bound.
func (k Key) In(group Key) Key {
	if k.group = group.Group().id; k.group == k.id {
		k.group = ""
	}
	return k
}

// Text returns the id of k, equal for equal owners only. It is for seals, digests and stores, never
// for the wire or people: it has the parts as they were given.
func (k Key) Text() string { return k.id }

// Stored returns the owner from the Text of it and of its group, as a store has kept them. The zero
// Key: they name none.
func Stored(text, group string) Key {
	if text == "" || names[text[0]] == "" || group != "" && names[group[0]] == "" {
		return Key{}
	}
	return Key{id: text}.In(Key{id: group})
}

// Returns reports whether the owner can come back when the process has ended: a connection cannot.
func (k Key) Returns() bool { return k.id != "" && k.id[0] != kindConnection }

// String returns a short name of k for logs, which does not reveal ids of sessions.
func (k Key) String() string {
	if k.id == "" {
		return "none"
	}
	sum := sha256.Sum256([]byte(k.id))
	return names[k.id[0]] + "-" + hex.EncodeToString(sum[:4])
}

// join writes the parts so that no two lists of parts give the same text.
func join(kind byte, parts ...string) string {
	n := 1
	for _, p := range parts {
		n += binary.MaxVarintLen32 + len(p)
	}
	b := append(make([]byte, 0, n), kind)
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return string(b)
}

// parse reads an IP address with or without a port, and returns the /64 of one of IPv6.
func parse(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		p, err := netip.ParseAddrPort(text)
		if err != nil {
			return a, false
		}
		a = p.Addr()
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr(), true
		}
	}
	return a, true
}

// Or returns the first key that is an owner.
func Or(keys ...Key) Key {
	for _, k := range keys {
		if !k.IsZero() {
			return k
		}
	}
	return Key{}
}

// ContextKey is the key under which the context of a call has its owner: a Key, or a *Key where
// that saves an allocation. What a *Key points to does not change. From reads both.
type ContextKey struct{}

// From returns the owner of the call with the context ctx, the zero Key when there is none.
func From(ctx interface{ Value(key any) any }) Key {
	switch k := ctx.Value(ContextKey{}).(type) {
	case Key:
		return k
	case *Key:
		return *k
	}
	return Key{}
}

// SessionKey is the key under which the context of a call has the owner of the session that it is
// made in, a *Key, where a transport has issued that session.
type SessionKey struct{}

// SessionFrom returns the owner of the session of the call with the context ctx, the zero
// Key when there is none. It does not allocate.
func SessionFrom(ctx interface{ Value(key any) any }) Key {
	if k, _ := ctx.Value(SessionKey{}).(*Key); k != nil {
		return *k
	}
	return Key{}
}

// ConnKey is the key under which a context has the connection that a call came over, a *Conn.
type ConnKey struct{}

// A Conn names a connection: its name in records, the address of its other end, "" when the
// transport has none, the owner that stands for an unauthenticated caller there, and the address of
// this end, nil when the transport has none.
type Conn struct {
	Name, Remote string
	Owner        Key
	At           interface { // a net.Addr
		Network() string
		String() string
	}
}

// ConnFrom returns the connection of the call with the context ctx, the zero Conn when it is not
// known.
func ConnFrom(ctx interface{ Value(key any) any }) Conn {
	if c, ok := ctx.Value(ConnKey{}).(*Conn); ok {
		return *c
	}
	return Conn{}
}
