package upstream

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// An ownerKey says whose a connection is. A connection of a legacy server never changes its owner:
// what it carries (roots, state, credentials) reaches no other owner, whatever the server does and
// whenever it does it.
type ownerKey struct {
	// group is who shares connections by the lifetime: a principal or a session. Zero: all callers.
	group owner.Key
	roots rootsKind
	// client is the client that the roots are of: a session or, for requests that stand alone, the
	// owner of these. Zero: no client.
	client owner.Key
	// digest is that of knownRoots.
	digest [sha256.Size]byte
}

// rootsKind says which roots a connection has.
type rootsKind uint8

const (
	undeclared   rootsKind = iota // none: the server is not told that there are any
	sessionRoots                  // those of a session, which is asked each time
	knownRoots                    // those that the caller has said beforehand, for good
	// The server was told that there are roots, and has not asked for any. When it does, the
	// client of the call is asked, and the connection takes no more calls.
	unaskedRoots
	// The server was told that there are roots, and gets none. The connection carries the lists
	// that clients with roots see, and no call during which a server may ask.
	listRoots
)

// A holder is an owner that has connections, or waits for one.
type holder struct {
	key     ownerKey
	single  bool    // it is one call, and no key finds it
	conns   []*conn // the oldest first; without those that take no more calls
	waiting int     // calls that have no connection yet
	// Its connections are a session's, and whether that has ended: a call of it came late.
	ofSession, ended bool
}

// session is the key of the caller's session, zero when it has none.
func (c *Caller) session() owner.Key {
	if c.Session == "" {
		return owner.Key{}
	}
	return owner.Session(c.Session, "")
}

// owner is whose call it is.
func (c *Caller) owner() owner.Key {
	if !c.Owner.IsZero() {
		return c.Owner
	}
	return c.session() // making its key costs allocations
}

// usage says what a caller wants of a connection.
type usage uint8

const (
	useAsking   usage = iota // a call during which the server may ask
	useLight                 // a call that raises no questions
	useWatching              // a subscription
)

// keyOf returns the owner of the connections that a caller may use. It reports false when each call
// has a connection of its own.
func (u *Upstream) keyOf(who *Caller, a abilities, use usage) (key ownerKey, lasting bool) {
	switch u.opts.Lifetime {
	case lifetimeCall:
		return ownerKey{}, false
	case lifetimePrincipal:
		if key.group = who.Owner; !who.Owner.Authenticated() {
			key.group = owner.Or(who.session(), who.Owner) // the session says when it ends
		}
	case lifetimeSession:
		key.group = owner.Or(who.session(), who.Owner)
	}
	switch {
	case u.apart() && !key.group.Exclusive():
		return ownerKey{}, false // others may have the same key
	case a&canRoots == 0 || u.stateless():
	case who.Session != "":
		return u.sessionKey(key, who.session(), use), true
	case use != useAsking || !u.known:
		key.roots = listRoots
		if use == useWatching {
			key = u.usedLast(key, who.Owner)
		}
	case who.Owner.IsZero(), who.Roots == nil && u.rootsFirst:
		return ownerKey{}, false
	case who.Roots == nil:
		key.roots, key.client = unaskedRoots, who.Owner
	default:
		key.roots, key.client, key.digest = knownRoots, who.Owner, sha256.Sum256(who.Roots)
	}
	return key, true
}

// sessionKey returns the owner of the connection of a session that has roots.
func (u *Upstream) sessionKey(shared ownerKey, session owner.Key, use usage) ownerKey {
	key := shared
	key.roots, key.client = sessionRoots, session
	if use == useLight && key.group != session && u.holders[key] == nil {
		shared.roots = listRoots // no process for a list alone
		return shared
	}
	return key
}

// usedLast returns the owner of the connection that requests of a client have used last, or else the
// given one. A subscription does not say the roots, and wants to hear of what the client does.
func (u *Upstream) usedLast(otherwise ownerKey, client owner.Key) (key ownerKey) {
	var last time.Time
	key = otherwise
	for k, h := range u.holders {
		if k.group != key.group || k.client != client || client.IsZero() {
			continue
		}
		for _, l := range h.conns {
			if l.up && l.used.After(last) {
				key, last = k, l.used
			}
		}
	}
	return key
}

// apart reports whether the lifetime keeps callers apart.
func (u *Upstream) apart() bool {
	return u.opts.Lifetime == lifetimePrincipal || u.opts.Lifetime == lifetimeSession
}

// holderOf returns the owner of the connections that a call may use.
func (u *Upstream) holderOf(pc *pendingCall) *holder {
	key, lasting := u.keyOf(pc.who, pc.abilities, pc.use)
	if !lasting {
		return &holder{single: true}
	}
	return u.holder(key, pc.who.Session)
}

// holder returns the holder of a key, which may be of a session.
func (u *Upstream) holder(key ownerKey, session string) *holder {
	h := u.holders[key]
	if h == nil {
		h = &holder{key: key, ofSession: session != "", ended: session != "" && u.departed.has(session)}
		u.holders[key] = h
	}
	return h
}

// tidy forgets a holder that has nothing.
func (u *Upstream) tidy(h *holder) {
	if len(h.conns) == 0 && h.waiting == 0 && u.holders[h.key] == h {
		delete(u.holders, h.key)
	}
}

// belongs reports whether the connections of an owner end with a client's: with a session, which has
// that name, or with a connection, which is the owner of that text.
func (k ownerKey) belongs(client string) bool {
	session := owner.Session(client, "")
	return k.group == session || k.client == session || k.group.Text() == client || k.client.Text() == client
}

// rekey gives a connection that has started, and all waiting calls when the server has turned out to
// be stateless or not, the owners that they have now that this is known.
func (u *Upstream) rekey(l *conn, turned bool) {
	for item := range u.queue.All() {
		pc := item.Value
		if !turned {
			break
		}
		if pc.holder.single {
			continue // what is being started for it is its own
		}
		old := pc.holder
		old.waiting--
		pc.holder = u.holderOf(pc)
		pc.holder.waiting++
		u.tidy(old)
	}
	switch old := l.holder; {
	case old.single || l.gone:
	case l.modern && old.key.roots != undeclared: // each call says what its caller has: the connection declares nothing
		old.conns = slices.DeleteFunc(old.conns, func(o *conn) bool { return o == l })
		l.holder = u.holder(ownerKey{group: old.key.group}, "")
		l.holder.conns = append(l.holder.conns, l)
		u.tidy(old)
	case l.declaresRoots() && old.key.roots == undeclared:
		u.retire(l)
	}
}
