package share

import "github.com/farcall-dev/farcall/internal/owner"

// Bounds say how much owners may hold. The unit is the table's: entries, calls, bytes.
type Bounds struct {
	// Total is what all owners may hold together.
	Total int
	// Owner is what one owner may hold at most, whatever is free. 0: only its share bounds it.
	Owner int
	// Group is what the owners of one group may hold together. 0: only its share bounds it.
	Group int
	// Ratio is how many times what is left free an owner may hold. Default 1: one owner alone gets
	// half of Total. With 7 it gets seven eighths.
	Ratio int
}

// ratio returns Ratio, or the largest one with which one owner alone leaves something of Total
// free.
func (b Bounds) ratio() int { return max(1, min(b.Ratio, b.Total-1)) }

// Allows reports whether an owner that is its own group and holds mine of used units may take n
// more. It is for tables that count on their own what their owners hold.
func (b Bounds) Allows(mine, used, n int) bool {
	free := b.Total - used
	if n > free || b.Owner > 0 && mine+n > b.Owner {
		return false
	}
	return mine == 0 || mine+n <= b.ratio()*free
}

// Counters say what has happened to a table.
type Counters struct {
	Used    int    // held now
	Owners  int    // that hold something
	Refused uint64 // what found no room
	Evicted uint64 // what made room for others
}

// A Ledger counts what owners hold and cannot be made to give back. Its zero value has no room.
type Ledger struct {
	bounds  Bounds
	used    int
	refused uint64
	owners  map[owner.Key]*account
	groups  map[owner.Key]*account // of those with a group that is not themselves
}

// An account is what an owner, or a group of owners, holds.
type account struct {
	used  int
	group *account // nil: the account is its own group
}

// NewLedger returns an empty ledger.
func NewLedger(b Bounds) *Ledger { return &Ledger{bounds: b} }

// Bounds returns the bounds.
func (l *Ledger) Bounds() Bounds { return l.bounds }

// SetBounds changes the bounds. What is held stays held.
func (l *Ledger) SetBounds(b Bounds) { l.bounds = b }

// Take books n units for an owner, or reports that it has no room for them.
func (l *Ledger) Take(o owner.Key, n int) bool {
	if !l.Fits(o, n) {
		l.refused++
		return false
	}
	l.Add(o, n)
	return true
}

// Add books n units for an owner, room or not: it holds them anyway.
func (l *Ledger) Add(o owner.Key, n int) {
	a := l.owners[o]
	if a == nil {
		a = &account{group: l.group(o)}
		if l.owners == nil {
			l.owners = map[owner.Key]*account{}
		}
		l.owners[o] = a
	}
	a.used += n
	if a.group != nil {
		a.group.used += n
	}
	l.used += n
}

// Fits reports whether an owner has room for n units. The first thing of an owner, or of a group,
// fits wherever there is room at all, and so does what has no owner: only Total bounds it.
func (l *Ledger) Fits(o owner.Key, n int) bool {
	b, mine, group := l.bounds, l.Of(o), l.OfGroup(o)
	switch {
	case b.Owner > 0 && mine+n > b.Owner, b.Group > 0 && group+n > b.Group && !alone(o):
		return false
	case o.IsZero():
		return n <= b.Total-l.used
	}
	b.Owner = 0
	if !b.Allows(group, l.used, n) {
		return false
	}
	// that the group has then, for its other members
	left := b.ratio()*(b.Total-l.used-n) - (group + n)
	return alone(o) || mine == 0 || mine+n <= b.ratio()*left
}

// alone reports whether an owner is all of its group.
func alone(o owner.Key) bool { return o.Exclusive() && o.Group() == o }

// Give returns n units that an owner has taken.
func (l *Ledger) Give(o owner.Key, n int) {
	a := l.owners[o]
	if a == nil || a.used < n {
		panic("share: more was given back than was taken") //nolint:forbidigo // an invariant of the caller
	}
	l.used -= n
	if a.used -= n; a.used == 0 {
		delete(l.owners, o)
	}
	if g := a.group; g != nil {
		if g.used -= n; g.used == 0 {
			delete(l.groups, o.Group())
		}
	}
}

// Of returns what an owner holds.
func (l *Ledger) Of(o owner.Key) int {
	if a := l.owners[o]; a != nil {
		return a.used
	}
	return 0
}

// OfGroup returns what the group of an owner holds.
func (l *Ledger) OfGroup(o owner.Key) int {
	g := o.Group()
	if g == o {
		return l.Of(o)
	}
	n := l.Of(g) // an address may hold something itself
	if a := l.groups[g]; a != nil {
		n += a.used
	}
	return n
}

// Free returns what is left.
func (l *Ledger) Free() int { return l.bounds.Total - l.used }

// Used returns what all owners hold.
func (l *Ledger) Used() int { return l.used }

// Counters returns what has happened so far.
func (l *Ledger) Counters() Counters {
	return Counters{Used: l.used, Owners: len(l.owners), Refused: l.refused}
}

// group returns the account of an owner's group, nil when the owner is its own.
func (l *Ledger) group(o owner.Key) *account {
	g := o.Group()
	if g == o {
		return nil
	}
	a := l.groups[g]
	if a == nil {
		a = &account{}
		if l.groups == nil {
			l.groups = map[owner.Key]*account{}
		}
		l.groups[g] = a
	}
	return a
}
