package upstream

import (
	"fmt"
	"slices"
)

// broken returns what is wrong with an upstream at this moment. Its lock is held. seen has the
// connections that earlier calls have met, with their states then: those that take no more calls
// are found nowhere else.
func (u *Upstream) broken(seen map[*connection]connState) (found []string) {
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	counts, onConns, waiting := [closed + 1]int{}, 0, 0
	for key, h := range u.pool.holders {
		if h.key != key || len(h.conns) == 0 && h.waiting == 0 {
			report("an owner with nothing is kept")
		}
		waiting += h.waiting
		for _, l := range h.conns {
			if l.holder != h || !l.state.live() {
				report("an owner has a connection that is %v, or another's", l.state)
			}
			if _, ok := seen[l]; !ok {
				seen[l] = l.state
			}
		}
	}
	for l, before := range seen {
		found = append(found, l.broken(before, u.over)...)
		counts[l.state]++
		onConns += len(l.pending)
		if seen[l] = l.state; l.state == closed {
			delete(seen, l)
		}
	}
	for item := range u.queue.all() {
		pc := item.Value
		if pc.holder.single {
			waiting++
		}
		if pc.conn != nil || pc.item != item {
			report("a call waits and has a connection")
		}
		if l := u.pool.find(pc); l != nil && u.queue.room(pc) {
			report("a call waits though a connection is free")
		}
	}
	if waiting != u.queue.waiting.Len() {
		report("%d calls wait, and owners count %d", u.queue.waiting.Len(), waiting)
	}
	counts[closed] = 0
	if counts != u.pool.counts && u.opts.Lifetime != lifetimeCall { // no owner has those of a call
		report("connections %v are counted as %v", counts, u.pool.counts)
	}
	if u.pool.places() > u.opts.MaxConnections || onConns > u.queue.inFlight.Used() {
		report("%d connections, %d calls on them of %d", u.pool.places(), onConns,
			u.queue.inFlight.Used())
	}
	return found
}

// broken returns what is wrong with a connection that was in a state before. over: the upstream has
// ended, and calls with it.
func (l *connection) broken(before connState, over bool) (found []string) {
	report := func(format string, args ...any) {
		found = append(found,
			fmt.Sprintf("a connection that is %v: ", l.state)+fmt.Sprintf(format, args...))
	}
	asking, suspended, n := 0, 0, len(l.pending)
	for at, pc := range l.pending {
		if pc.conn != l || pc.over || pc.item != nil || slices.Index(l.pending, pc) != at {
			report("a call on it is elsewhere")
		}
		if h := l.holder; h.session != "" && pc.who.Session != h.session {
			report("a call of %q is on that of %q", pc.who.Session, h.session)
		} else if h.pooled() && pc.who.Owner != h.key.client {
			report("a call of %v is on that of %v", pc.who.Owner, h.key.client)
		} else if group := h.key.group; !group.IsZero() && group != pc.who.Owner &&
			group != pc.who.session() {
			report("a call of %v, %q is on that of %v", pc.who.Owner, pc.who.Session, group)
		}
		if pc.light() {
			continue
		}
		asking++
		if len(pc.asks) > 0 {
			suspended++
		}
	}
	if l.asking != asking || l.suspended != suspended {
		report("%d asking, %d suspended are counted as %d, %d", asking, suspended, l.asking, l.suspended)
	}
	if len(l.held) > 0 && len(l.held) >= asking-suspended {
		report("%d questions are held, and %d calls could be meant", len(l.held), asking-suspended)
	}
	if l.state < before {
		report("it was %v", before)
	}
	if up := l.client != nil && l.info != nil; l.state == dialing && up ||
		(l.state == ready || l.state == draining) && !up {
		report("its client is there: %v", up)
	}
	if l.state == dialing && n > 0 || l.state == draining && n == 0 ||
		l.state >= closing && n > 0 && !over {
		report("%d calls are on it", n)
	}
	if l.state.live() != slices.Contains(l.holder.conns, l) {
		report("its owner has it: %v", !l.state.live())
	}
	if (l.ctx.Err() != nil) != (l.state >= closing) && !over {
		report("its context: %v", l.ctx.Err())
	}
	return found
}
