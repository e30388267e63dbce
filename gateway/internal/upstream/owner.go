package upstream

import (
	"crypto/sha256"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// An ownerKey names the owner of a connection. A connection of a legacy server never changes its
// owner: what it carries (roots, state, credentials) reaches no other owner, whatever the server
// does and whenever it does it.
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
	// The server learned that there are roots, and has not asked for any. When it does, the
	// client of the call is asked, and the connection takes no more calls.
	unaskedRoots
	// The server learned that there are roots, and gets none. The connection carries the lists
	// that clients with roots see, and no call during which a server may ask.
	listRoots
)

// A holder is an owner that has connections, or waits for one.
type holder struct {
	key     ownerKey
	single  bool          // it is one call, and no key finds it
	conns   []*connection // the oldest first; without those that take no more calls
	waiting int           // calls that have no connection yet
	// session is the session that its connections belong to, and ended whether that is over: a call of
	// it came late. "": they are not of one session.
	session string
	ended   bool
	by      owner.Key // who shares connections that are kept with others: a principal, or an address
}

// pooled reports whether the calls of the owner have no session, and its connections carry no calls
// of others: then there are several for calls that must not be mixed.
func (h *holder) pooled() bool { return h.session == "" && !h.key.client.IsZero() }

// session is the key of the caller's session, zero when it has none.
func (c *Caller) session() owner.Key {
	if c.Session == "" {
		return owner.Key{}
	}
	return owner.Session(c.Session, "")
}

// owner is the owner of the call.
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
// has its own connection.
func (p *pool) keyOf(who *Caller, a abilities, use usage) (key ownerKey, lasting bool) {
	switch p.opts.Lifetime {
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
	case p.apart() && !key.group.Exclusive():
		return ownerKey{}, false // others may have the same key
	case p.stateless():
	case a&canRoots == 0:
		return p.askerKey(key, who, a, use)
	case who.Session != "":
		return p.sessionKey(key, who.session(), use), true
	case use != useAsking || !p.known:
		key.roots = listRoots
		if use == useWatching {
			key = p.usedLast(key, who.Owner)
		}
	case who.Owner.IsZero(), who.Roots == nil && p.rootsFirst:
		return ownerKey{}, false
	case who.Roots == nil:
		key.roots, key.client = unaskedRoots, who.Owner
	default:
		key.roots, key.client, key.digest = knownRoots, who.Owner, sha256.Sum256(who.Roots)
	}
	return key, true
}

// askerKey returns the owner of the connections of a caller who can be asked. The server asks what
// does not say which call it is about: then the connection tells. A session stays where its state
// is.
func (p *pool) askerKey(key ownerKey, who *Caller, a abilities, use usage) (ownerKey, bool) {
	if a == 0 || !p.asks || p.opts.Lifetime == lifetimeShared {
		return key, true
	}
	if who.Session != "" {
		session := who.session()
		if key.group == session || p.bound(key, who.Session) {
			return key, true
		}
		own := key
		if own.client = session; use == useLight && p.holders[own] == nil {
			return key, true // no process for a list alone
		}
		return own, true
	}
	if use == useAsking {
		key.client = who.Owner
	}
	return key, use != useAsking || !who.Owner.IsZero()
}

// bound reports whether a session has used one of the connections of an owner.
func (p *pool) bound(key ownerKey, session string) bool {
	if h := p.holders[key]; h != nil {
		for _, l := range h.conns {
			if _, ok := l.sessions[session]; ok {
				return true
			}
		}
	}
	return false
}

// sessionKey returns the owner of the connection of a session that has roots.
func (p *pool) sessionKey(shared ownerKey, session owner.Key, use usage) ownerKey {
	key := shared
	key.roots, key.client = sessionRoots, session
	if use == useLight && key.group != session && p.holders[key] == nil {
		shared.roots = listRoots // no process for a list alone
		return shared
	}
	return key
}

// usedLast returns the owner of the connection that requests of a client have used last, or else
// the given one. A subscription does not say the roots, and wants to hear of what the client does.
func (p *pool) usedLast(otherwise ownerKey, client owner.Key) (key ownerKey) {
	var last time.Time
	key = otherwise
	for k, h := range p.holders {
		if k.group != key.group || k.client != client || client.IsZero() {
			continue
		}
		for _, l := range h.conns {
			if l.state == ready && l.used.After(last) {
				key, last = k, l.used
			}
		}
	}
	return key
}

// apart reports whether the lifetime keeps callers apart.
func (p *pool) apart() bool {
	return p.opts.Lifetime == lifetimePrincipal || p.opts.Lifetime == lifetimeSession
}

// holderOf returns the owner of the connections that a call may use.
func (p *pool) holderOf(pc *pendingCall) *holder {
	key, lasting := p.keyOf(pc.who, pc.abilities, pc.use)
	if !lasting {
		return &holder{single: true}
	}
	return p.holder(key, pc.who)
}

// holder returns the holder of a key that a caller has.
func (p *pool) holder(key ownerKey, who *Caller) *holder {
	h := p.holders[key]
	if h == nil {
		h = &holder{key: key, by: who.owner().Group()}
		if own := who.session(); !own.IsZero() && (key.group == own || key.client == own) {
			h.session, h.ended = who.Session, p.departed.has(who.Session)
		}
		p.holders[key] = h
	}
	return h
}

// tidy forgets a holder that has nothing.
func (p *pool) tidy(h *holder) {
	if len(h.conns) == 0 && h.waiting == 0 && p.holders[h.key] == h {
		delete(p.holders, h.key)
	}
}

// belongs reports whether the connections of an owner end with a client's: with a session, which
// has that name, or with a connection, which is the owner of that text.
func (k ownerKey) belongs(client string) bool {
	session := owner.Session(client, "")
	return k.group == session || k.client == session || k.group.Text() == client ||
		k.client.Text() == client
}

// Holds reports whether a session has its own connections or subscriptions here.
func (u *Upstream) Holds(session string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := owner.Session(session, "")
	for k := range u.watching {
		if k.owner.group == own || k.owner.client == own {
			return true
		}
	}
	for k, h := range u.pool.holders {
		if (k.group == own || k.client == own) && len(h.conns) > 0 {
			return true
		}
	}
	return false
}

// Forget ends what belongs to a session that has ended, or to a client's connection, given by the
// text of its owner.
func (u *Upstream) Forget(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if session == "" {
		return
	}
	for k, w := range u.watching {
		if k.owner.belongs(session) {
			w.cancel()
		}
	}
	u.pool.departed.add(session)
	for _, h := range u.pool.holders {
		if h.key.belongs(session) {
			h.ended = true
			u.pool.release(h)
			continue
		}
		for _, l := range h.conns {
			delete(l.sessions, session)
		}
	}
	u.dispatchLocked()
}

// connsOf returns the connections that are to hear what a caller notifies.
func (u *Upstream) connsOf(who *Caller, method string) (conns []*connection) {
	if method == spec.NotificationRootsListChanged {
		return u.rootsChanged(who)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.opts.abilitiesOf(who)
	key, lasting := u.pool.keyOf(who, a, useLight)
	h := u.pool.holders[key]
	if h == nil || !lasting {
		return nil
	}
	for _, l := range h.conns {
		if l.state == ready && !l.modern && l.abilities == a {
			conns = append(conns, l)
		}
	}
	return conns
}

// departed remembers the sessions that have ended, for as long as calls of theirs
// may come late: two lots of them.
type departed struct{ newer, older map[string]struct{} }

const maxDeparted = 1024 // of a lot

func (d *departed) add(session string) {
	if d.newer == nil || len(d.newer) >= maxDeparted {
		d.newer, d.older = map[string]struct{}{}, d.newer
	}
	d.newer[session] = struct{}{}
}

func (d *departed) has(session string) bool {
	_, newer := d.newer[session]
	_, older := d.older[session]
	return newer || older
}
