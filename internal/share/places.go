package share

import "github.com/farcall-dev/farcall/internal/owner"

const (
	maxIdle      = 1024 // owners that count so
	maxIdleGroup = 64   // of one group

	smallest = 4 // places, from which on some are reserved
)

// Places are those of running calls. The rule of a [Ledger] leaves room for owners who come later;
// the rule of Places also knows who called lately: while more than a reserve is free, any owner
// gets a place. What is left is for those who hold less than their share, so that one that floods
// leaves room for all others, and gives places back as its calls end. There are as many reserved
// places as owners called lately and do not now, up to half of all.
//
// The same rule divides what a group may hold among its owners. (An owner that is its own group,
// and others that are in the group of its key, count as two groups.)
type Places struct {
	lately int64 // nanoseconds
	all    level // the groups, and owners that are their own group
	owners map[owner.Key]*Holder
	groups map[owner.Key]*Holder // of owners that are not their own group
	idle   []*Holder             // with no calls, oldest first; some have calls again
	unused []*Holder
}

// A level is a set of holders that share places.
type level struct {
	taken int // places
	known int // holders that have places, or had lately
	busy  int // of these, those that have places
}

// A Holder is an owner that has places, or had lately.
type Holder struct {
	key     owner.Key
	group   *Holder // nil: it is its own
	taken   int
	members level // of a group
	resting int   // of a group: how many of its members are in Places.idle
	seen    int64 // when its last call ended
	since   int64 // seen, when it got to its position in Places.idle
	queued  bool  // it is there
}

// A Denial says why there is no place for a call.
type Denial uint8

// The denials.
const (
	Granted   Denial = iota
	OverOwner        // the owner holds as many as Bounds.Owner
	OverGroup        // the group of the owner holds as many as Bounds.Group
	OverShare        // what is free is for others
	Full             // the owner gets the next place that becomes free
)

// NewPlaces returns Places that are all free. lately is for how many nanoseconds an owner with a
// last call that has ended still counts as one that calls. 0: not at all, for places with a user
// that does not try again when only time has passed.
func NewPlaces(lately int64) *Places {
	return &Places{lately: lately, owners: map[owner.Key]*Holder{}, groups: map[owner.Key]*Holder{}}
}

// Take takes a place within bounds; Total 0 means none. now is a time in nanoseconds that does
// not go back. The holder is for Give, and nil when the call is denied.
func (p *Places) Take(b Bounds, o owner.Key, now int64) (*Holder, Denial) {
	p.forget(now)
	h := p.owners[o]
	group := p.groupOf(h, o)
	if d := p.admit(b, h, group, !alone(o)); d != Granted {
		return nil, d
	}
	if h == nil {
		h = p.meet(o)
	}
	h.taken++
	level := &p.all
	if g := h.group; g != nil {
		if g.taken++; g.taken == 1 {
			level.busy++
		}
		level.taken++
		level = &g.members
	}
	if h.taken == 1 {
		level.busy++
	}
	level.taken++
	return h, Granted
}

// Fits reports whether Take would take a place.
func (p *Places) Fits(b Bounds, o owner.Key, now int64) bool {
	p.forget(now)
	h := p.owners[o]
	return p.admit(b, h, p.groupOf(h, o), !alone(o)) == Granted
}

// admit decides for a holder and its group, each nil when it is not known.
func (p *Places) admit(b Bounds, h, group *Holder, grouped bool) Denial {
	mine := 0
	if h != nil {
		mine = h.taken
	}
	if b.Owner > 0 && mine >= b.Owner {
		return OverOwner
	}
	if !grouped {
		group = h
	}
	of := 0 // the group
	if group != nil {
		of = group.taken
	}
	if b.Group > 0 && grouped && of >= b.Group {
		return OverGroup
	}
	if b.Total <= 0 {
		return Granted
	}
	most := b.room(b.Total, &p.all, group)
	if of >= most {
		return OverShare
	}
	if grouped {
		members := &level{}
		if group != nil {
			members = &group.members
		}
		if mine >= b.room(most, members, h) {
			return OverShare
		}
	}
	if p.all.taken >= b.Total {
		return Full
	}
	return Granted
}

// room returns how many of some places one holder of a level may have, nil for one that is not
// known yet: its share of them, and beyond that what the others neither hold nor are expected to
// need.
func (b Bounds) room(places int, l *level, h *Holder) int {
	others, taken, waiting := l.known, l.taken, l.known-l.busy
	if h != nil {
		others--
		taken -= h.taken
		if h.taken == 0 {
			waiting--
		}
	}
	reserve := 0
	if places >= smallest {
		reserve = (places + b.ratio()) / (b.ratio() + 1)
		waiting = min(waiting, places/2)
	} else {
		waiting = 0
	}
	share := max(1, (places-reserve)/(others+1))
	return max(share, places-taken-max(reserve, waiting))
}

// Give gives a place back.
func (p *Places) Give(h *Holder, now int64) {
	level := &p.all
	if g := h.group; g != nil {
		if g.taken--; g.taken == 0 {
			level.busy--
		}
		level.taken--
		level = &g.members
	}
	level.taken--
	if h.taken--; h.taken > 0 {
		return
	}
	level.busy--
	switch {
	case p.lately == 0:
		p.drop(h)
	case h.queued:
		h.seen = now
	case len(p.idle) < maxIdle && (h.group == nil || h.group.resting < maxIdleGroup):
		h.seen, h.since, h.queued = now, now, true
		if h.group != nil {
			h.group.resting++
		}
		p.idle = append(p.idle, h)
	default:
		p.drop(h)
	}
}

// Count returns how many places an owner has, its group, and all owners.
func (p *Places) Count(o owner.Key) (mine, group, all int) {
	h := p.owners[o]
	if h != nil {
		mine = h.taken
	}
	group = mine
	if g := p.groupOf(h, o); g != nil {
		group = g.taken
	}
	return mine, group, p.all.taken
}

// Used returns how many places are taken.
func (p *Places) Used() int { return p.all.taken }

// Known returns how many owners have places, or had lately.
func (p *Places) Known() int { return len(p.owners) }

func (p *Places) groupOf(h *Holder, o owner.Key) *Holder {
	if h != nil {
		return h.group
	}
	if alone(o) {
		return nil
	}
	return p.groups[o.Group()]
}

// meet makes the holder of an owner. What may have several owners, as an address has, is a group.
func (p *Places) meet(o owner.Key) *Holder {
	h := p.holder(o)
	p.owners[o] = h
	level := &p.all
	if !alone(o) {
		g := o.Group()
		group := p.groups[g]
		if group == nil {
			group = p.holder(g)
			p.groups[g] = group
			level.known++
		}
		h.group = group
		level = &group.members
	}
	level.known++
	return h
}

func (p *Places) holder(o owner.Key) *Holder {
	n := len(p.unused)
	if n == 0 {
		return &Holder{key: o}
	}
	h := p.unused[n-1]
	p.unused = p.unused[:n-1]
	*h = Holder{key: o}
	return h
}

// forget forgets who has not called for a while.
func (p *Places) forget(now int64) {
	for len(p.idle) > 0 && p.idle[0].since+p.lately <= now {
		h := p.idle[0]
		p.idle[0] = nil
		p.idle = p.idle[1:]
		if h.taken == 0 && h.seen+p.lately > now {
			h.since = now
			p.idle = append(p.idle, h)
			continue
		}
		h.queued = false
		if h.group != nil {
			h.group.resting--
		}
		if h.taken == 0 {
			p.drop(h)
		}
	}
}

func (p *Places) drop(h *Holder) {
	delete(p.owners, h.key)
	level := &p.all
	if g := h.group; g != nil {
		if g.members.known--; g.members.known > 0 {
			level = nil
		} else {
			delete(p.groups, g.key)
			p.recycle(g)
		}
	}
	if level != nil {
		level.known--
	}
	p.recycle(h)
}

func (p *Places) recycle(h *Holder) {
	*h = Holder{}
	if len(p.unused) < maxIdle {
		p.unused = append(p.unused, h)
	}
}
