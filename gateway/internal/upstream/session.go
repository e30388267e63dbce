package upstream

import (
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp/spec"
)

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
