package guard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/replay"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// An anyCaller of the test: its owner, and where it calls from.
type anyCaller struct {
	name    string
	owner   owner.Key
	address string
}

// callersOfAllKinds returns callers of all kinds; no two may notice each other.
func callersOfAllKinds() (all []anyCaller) {
	for _, id := range []string{"ada", "bob"} {
		all = append(all,
			anyCaller{"principal " + id, owner.Principal("key", "user", "", id), "198.51.100.9:1"})
	}
	all = append(all, anyCaller{
		"principal ada by token",
		owner.Principal("jwt", "user", "https://id.example.com", "ada"), "198.51.100.9:1",
	})
	for i, address := range []string{
		"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "[2001:db8::1]:1",
		"", "",
	} {
		all = append(all,
			anyCaller{
				fmt.Sprint("connection ", i, " of ", address),
				owner.Connection(fmt.Sprint(i), address), address,
			})
	}
	for _, address := range []string{"192.0.2.1:3", "192.0.2.3:1", "[2001:db8:1::1]:1"} {
		all = append(all, anyCaller{"address " + address, ownerOf(address), address})
	}
	return all
}

// ownerOf is the owner of the anonymous callers of an address.
func ownerOf(remote string) owner.Key { return address(remote) }

// A table is something that callers fill.
type table struct {
	name string
	// make returns an empty table: take takes one more of it for a caller, or reports that the caller
	// gets no more.
	make func() (take func(v anyCaller, i int) bool)
	// holds reports whether a caller can have something in it. Nil: all can.
	holds func(v anyCaller) bool
	// alone reports whether nothing of what one caller does changes what the other gets: true for
	// limits of one caller, false for what they divide.
	alone bool
	// byGroup reports whether the connections of an address count as one caller.
	byGroup bool
}

// ofLimiter returns a table of a limiter.
func ofLimiter(o limit.Options) func() func(v anyCaller, i int) bool {
	return func() func(v anyCaller, i int) bool {
		midday := time.Now().Truncate(24 * time.Hour).Add(12 * time.Hour)
		o.Now = func() time.Time { return midday }
		l := limit.New(&o)
		return func(v anyCaller, i int) bool {
			_, err := l.Take(&limit.Caller{Owner: v.owner, Address: v.address}, fmt.Sprint("call ", i))
			return err == nil
		}
	}
}

// tables are all that the guard keeps for callers: see docs/invariants.md.
func tables() []table {
	day := 24 * time.Hour
	return []table{
		{
			name: "rates", alone: true,
			make: ofLimiter(limit.Options{Rates: []limit.Rate{{Limit: 5, Every: time.Minute}}}),
		},
		{
			name: "quotas of the day", alone: true,
			make: ofLimiter(limit.Options{Rates: []limit.Rate{{Limit: 5, Every: day}}}),
		},
		{name: "concurrent", alone: true, make: ofLimiter(limit.Options{Concurrent: 5})},
		{name: "total", make: ofLimiter(limit.Options{Total: 64})},
		{
			name: "buckets", byGroup: true,
			make: ofLimiter(
				limit.Options{MaxBuckets: 1000, Rates: []limit.Rate{{Limit: 1, Every: day, Each: true}}}),
		},
		{
			name: "open streams",
			make: func() func(v anyCaller, i int) bool {
				g := &activeStreams{g: &Guard{}}
				g.closed = true // nothing is looked at
				g.shares, g.answers = share.NewLedger(share.Bounds{Total: 100, Ratio: streamRatio}),
					map[*stream]struct{}{}
				return func(v anyCaller, _ int) bool {
					r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
					_, ok := g.add(&session{owner: v.owner}, r, httptest.NewRecorder())
					return ok
				}
			},
		},
		{
			name: "refused credentials", byGroup: true, alone: true,
			make: func() func(v anyCaller, i int) bool {
				g := newFailures(time.Now)
				return func(v anyCaller, i int) bool {
					_, err := g.Take(&limit.Caller{Address: v.address}, "authenticate")
					return err == nil
				}
			},
			holds: func(v anyCaller) bool { return !v.owner.Authenticated() && v.address != "" },
		},
		{
			name: "nonces", holds: func(v anyCaller) bool { return v.owner.Authenticated() },
			make: func() func(v anyCaller, i int) bool {
				m := replay.New(100, nil)
				until := time.Now().Add(time.Hour)
				return func(v anyCaller, i int) bool {
					fresh, _ := m.Use(context.Background(), v.owner.Text(), fmt.Sprint(v.owner.Text(), i), until)
					return fresh
				}
			},
		},
	}
}

// Two callers of every pair of kinds, in every table: one takes all that it gets, and the other
// still gets something; where each has its own limit it gets as much as if it were alone.
func TestTables(t *testing.T) {
	const most = 2000
	fill := func(take func(anyCaller, int) bool, v anyCaller) (n int) {
		for n < most && take(v, n) {
			n++
		}
		return n
	}
	for _, table := range tables() {
		t.Run(table.name, func(t *testing.T) {
			for _, one := range callersOfAllKinds() {
				for _, other := range callersOfAllKinds() {
					if one.owner == other.owner || table.byGroup && one.owner.Group() == other.owner.Group() ||
						table.holds != nil && (!table.holds(one) || !table.holds(other)) {
						continue
					}
					want := 1
					if table.alone {
						want = fill(table.make(), other)
					}
					take := table.make()
					if n := fill(take, one); n == 0 || n == most {
						t.Fatalf("%s took %d", one.name, n)
					}
					if n := fill(take, other); n < want {
						t.Errorf("after %s, %s got %d, want %d", one.name, other.name, n, want)
					}
				}
			}
		})
	}
}
