package share

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

const lately = 1_000_000_000

// Two owners of every pair: one takes all that it gets, and the other still gets a place.
func TestPlacesLeaveRoom(t *testing.T) {
	for _, b := range []Bounds{
		{Total: 4, Ratio: 3},
		{Total: 16, Ratio: 7},
		{Total: 64, Ratio: 15},
		{Total: 100, Owner: 8, Group: 16},
	} {
		for _, greedy := range owners() {
			for _, other := range owners() {
				if greedy == other || b.Total < 8 && greedy.Group() == other.Group() {
					continue
				}
				p := NewPlaces(lately)
				n := 0
				for ; ; n++ {
					if _, denied := p.Take(b, greedy, 0); denied != Granted {
						break
					}
				}
				if n == 0 || b.Owner > 0 && n > b.Owner {
					t.Errorf("%+v: %v got %d", b, greedy, n)
				}
				if _, denied := p.Take(b, other, 0); denied != Granted {
					t.Errorf("%+v: %v got %d, and %v was denied: %d", b, greedy, n, other, denied)
				}
			}
		}
	}
}

// Greedy owners come to have the same, and so do greedy groups, however many owners they have.
func TestPlacesShares(t *testing.T) {
	b := Bounds{Total: 80, Ratio: 7}
	p := NewPlaces(lately)
	var all []owner.Key
	for i := range 10 {
		all = append(all, sessionOf(1, i)) // ten connections of one address
	}
	all = append(all, principal(1), principal(2))
	held := map[owner.Key][]*Holder{}
	fill := func() {
		for range b.Total {
			for _, o := range all {
				if h, denied := p.Take(b, o, 0); denied == Granted {
					held[o] = append(held[o], h)
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		o := all[rng.IntN(len(all))]
		if hs := held[o]; len(hs) > 0 {
			p.Give(hs[0], 0)
			held[o] = hs[1:]
		}
		fill()
	}
	group := 0
	for _, o := range all[:10] {
		if n := len(held[o]); n < 1 || n > 5 {
			t.Errorf("%v of ten of a group has %d", o, n)
		}
		group += len(held[o])
	}
	for _, n := range []int{group, len(held[principal(1)]), len(held[principal(2)])} {
		if n < 20 || n > 30 {
			t.Errorf("one of three groups has %d of 80", n)
		}
	}
}

// Owners that do not call any more are forgotten, also behind one that does.
func TestPlacesForget(t *testing.T) {
	p := NewPlaces(lately)
	now := int64(0)
	call := func(o owner.Key) {
		h, denied := p.Take(Bounds{Total: 100}, o, now)
		if denied != Granted {
			t.Fatalf("%v: denied: %d", o, denied)
		}
		p.Give(h, now)
	}
	for i := range 5000 {
		call(principal(i % 2000))
		call(sessionOf(1, i))
	}
	if p.Known() > maxIdle || p.groups[sessionOf(1, 0).Group()].members.known > maxIdleGroup {
		t.Errorf("%d are known", p.Known())
	}
	for range 30 {
		now += lately / 10
		call(principal(0))
	}
	if p.Known() != 1 || len(p.idle) != 1 || len(p.groups) != 0 || p.all != (level{known: 1}) {
		t.Errorf("%d are known, %d idle, %d groups, %+v", p.Known(), len(p.idle), len(p.groups), p.all)
	}
}

// A history of random calls: what is counted at each level is what was taken, bounds hold, and
// nothing is left at the end.
func TestPlacesModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	all := owners()
	bounds := []Bounds{{Total: 12, Ratio: 7}, {Total: 12, Owner: 3, Group: 5}, {Owner: 2}}
	p := NewPlaces(lately)
	var running []*Holder
	now := int64(0)
	for i := range 20_000 {
		now += rng.Int64N(lately / 8)
		if o, b := all[rng.IntN(len(all))], bounds[rng.IntN(len(bounds))]; rng.IntN(2) == 0 {
			h, denied := p.Take(b, o, now)
			mine, group, total := p.Count(o)
			switch {
			case denied == Granted &&
				(b.Total > 0 && total > b.Total || b.Owner > 0 && mine > b.Owner || h.key != o):
				t.Fatalf("%d: %+v: %v has %d of %d", i, b, o, mine, total)
			case denied == Granted:
				running = append(running, h)
			case group == 0 && total < b.Total: // the first of a group fits wherever there is room
				t.Fatalf("%d: %+v: %v was denied: %d", i, b, o, denied)
			}
		} else if n := len(running); n > 0 {
			j := rng.IntN(n)
			p.Give(running[j], now)
			running[j] = running[n-1]
			running = running[:n-1]
		}
		if err := p.check(len(running)); err != "" {
			t.Fatalf("%d: %s", i, err)
		}
	}
	for _, h := range running {
		p.Give(h, now)
	}
	p.forget(now + 2*lately)
	if len(p.owners)+len(p.groups)+len(p.idle) != 0 || p.all != (level{}) {
		t.Errorf("%d owners, %d groups, %d idle, %+v are left", len(p.owners), len(p.groups),
			len(p.idle), p.all)
	}
}

// check counts everything again.
func (p *Places) check(running int) string {
	all, members, resting := level{taken: running}, map[*Holder]level{}, map[*Holder]int{}
	add := func(l *level, h *Holder) {
		if l.known++; h.taken > 0 {
			l.busy++
		}
	}
	sum := 0
	for _, h := range p.owners {
		sum += h.taken
		if h.group == nil {
			add(&all, h)
			continue
		}
		l := members[h.group]
		l.taken += h.taken
		add(&l, h)
		members[h.group] = l
		if h.queued {
			resting[h.group]++
		}
	}
	for _, g := range p.groups {
		add(&all, g)
		if g.members != members[g] || g.taken != g.members.taken || g.resting != resting[g] {
			return fmt.Sprintf("a group has %+v, want %+v, %d resting", *g, members[g], resting[g])
		}
	}
	if p.all != all || sum != running || len(members) != len(p.groups) {
		return fmt.Sprintf("all are %+v, want %+v; owners have %d", p.all, all, sum)
	}
	return ""
}

func BenchmarkPlaces(b *testing.B) {
	p, bounds := NewPlaces(lately), Bounds{Total: 1000, Owner: 100, Ratio: 7}
	for name, o := range map[string]owner.Key{
		"principal":  principal(1),
		"connection": sessionOf(1, 1),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				h, _ := p.Take(bounds, o, int64(i))
				p.Give(h, int64(i))
			}
		})
	}
}
