package limit

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/internal/owner"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// wall is a clock that tests move.
type wall struct {
	mu sync.Mutex
	t  time.Time
}

func newWall() *wall { return &wall{t: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)} }

func (w *wall) now() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.t }

func (w *wall) move(d time.Duration) { w.mu.Lock(); defer w.mu.Unlock(); w.t = w.t.Add(d) }

func match(pattern, call string) bool {
	ok, _ := path.Match(pattern, call)
	return ok
}

func limiter(w *wall, o Options) *Limiter {
	o.Now, o.Match = w.now, match
	return New(&o)
}

var alice, bob = &Caller{
	Owner: owner.Named("alice"), Address: "192.0.2.1:99",
	Roles: []string{"dev"},
}, &Caller{Owner: owner.Named("bob"), Address: "192.0.2.2"}

// times is how many calls get through at once, of at most 1000.
func times(l *Limiter, c *Caller, call string) (n int) {
	for ; n < 1000; n++ {
		if release, err := l.Take(c, call); err != nil {
			return n
		} else {
			release()
		}
	}
	return n
}

func wait(t *testing.T, l *Limiter, c *Caller, call string) (which string, after time.Duration) {
	t.Helper()
	_, err := l.Take(c, call)
	var e *Exceeded
	if !errors.As(err, &e) {
		t.Fatalf("not refused: %v", err)
	}
	if e.RetryAfter < time.Millisecond || e.RetryAfter%time.Millisecond != 0 ||
		!strings.Contains(e.Error(), e.Which) {
		t.Errorf("%v", e)
	}
	return e.Which, e.RetryAfter
}

func TestBucket(t *testing.T) {
	t.Parallel()
	w := newWall()
	l := limiter(w,
		Options{Rates: []Rate{{Limit: 10, Every: time.Second, Calls: []string{"tools/call github/*"}}}})
	const call = "tools/call github/x"
	if n := times(l, alice, call); n != 10 {
		t.Fatal(n)
	}
	if which, after := wait(t, l, alice,
		call); which != "10 in 1s of tools/call github/* for each principal" ||
		after != 100*time.Millisecond {
		t.Errorf("%s, %v", which, after)
	}
	if n := times(l, alice, "math/add"); n != 1000 {
		t.Error("another call: ", n)
	}
	if n := times(l, bob, call); n != 10 {
		t.Error("another: ", n)
	}
	w.move(99 * time.Millisecond)
	if _, after := wait(t, l, alice, call); after != time.Millisecond {
		t.Error(after)
	}
	w.move(time.Millisecond)
	if n := times(l, alice, call); n != 1 {
		t.Error(n)
	}
	w.move(550 * time.Millisecond)
	if n := times(l, alice, call); n != 5 {
		t.Error(n)
	}
	w.move(time.Hour)
	if n := times(l, alice, call); n != 10 {
		t.Error(n)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate              Rate
		alice, bob, other int // in this order: other is alice with another call
	}{
		"burst":       {Rate{Limit: 10, Every: time.Second, Burst: 3}, 3, 3, 0},
		"large burst": {Rate{Limit: 2, Every: time.Second, Burst: 5}, 5, 5, 0},
		"each":        {Rate{Limit: 4, Every: time.Second, Each: true}, 4, 4, 4},
		"all":         {Rate{Limit: 4, Every: time.Second, Per: "all"}, 4, 0, 0},
		"all each":    {Rate{Limit: 4, Every: time.Second, Per: "all", Each: true}, 4, 0, 4},
		"address":     {Rate{Limit: 4, Every: time.Second, Per: "address"}, 4, 4, 0},
		"roles":       {Rate{Limit: 4, Every: time.Second, Roles: []string{"ops", "dev"}}, 4, 1000, 0},
		"none":        {Rate{Every: time.Second}, 0, 0, 0},
		"star":        {Rate{Limit: 2, Calls: []string{"x", "*"}}, 2, 2, 0},
	}
	for name, test := range tests {
		l := limiter(newWall(), Options{Rates: []Rate{test.rate}})
		if a, b, o := times(l, alice, "a/b"), times(l, bob, "a/b"),
			times(l, alice, "a/c"); a != test.alice || b != test.bob || o != test.other {
			t.Errorf("%s: %d, %d, %d", name, a, b, o)
		}
	}
	if New(nil).needsAny || times(New(nil), alice, "x") != 1000 {
		t.Error("there is a limit")
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	same := [][2]string{
		{"192.0.2.1", "192.0.2.1:5"},
		{"192.0.2.1:6", "[::ffff:192.0.2.1]:5"},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2"},
		{"[2001:db8:0:1::1]:80", "2001:db8:0:1:ffff::2"},
		{"fe80::1%eth0", "fe80::2"},
		{"", ""},
		{"@", "@"},
	}
	differ := [][2]string{
		{"192.0.2.1", "192.0.2.2"},
		{"2001:db8:0:1::1", "2001:db8:0:2::1"},
		{"a", "b"},
		{"1.2.3.4:x", "1.2.3.4:y"},
	}
	s := New(nil).store
	for _, p := range same {
		if s.hashAddress(p[0]) != s.hashAddress(p[1]) {
			t.Error(p)
		}
	}
	for _, p := range differ {
		if s.hashAddress(p[0]) == s.hashAddress(p[1]) {
			t.Error(p)
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, text := range []string{
		"192.0.2.1:5", "[2001:db8::1%eth0]:80", "::ffff:1.2.3.4", ":", "[",
		"1.2.3.4:", "%", "fe80::%",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := parseAddress(text)
		if !ok {
			return
		}
		again, ok := parseAddress(a.String())
		if !ok || again != a || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%q is %v, and that is %v", text, a, again)
		}
	})
}

// A call that one limit refuses is counted by none.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWall()
	l := limiter(w, Options{Concurrent: 50, Rates: []Rate{
		{Limit: 100, Every: time.Hour},
		{Limit: 5, Every: time.Second, Per: "address"},
		{Limit: 30, Every: 24 * time.Hour, Per: "all"},
	}})
	for range 4 {
		if n := times(l, alice, "x"); n != 5 {
			t.Fatal(n)
		}
		for range 50 {
			wait(t, l, alice, "x")
		}
		w.move(time.Second)
	}
	want := []string{
		"100 in 1h for each principal: 80 left", "5 in 1s for each address: 5 left",
		"30 a day (UTC) for all: 10 left", "50 at once for each principal: 50 left",
	}
	if got := l.Explain(alice, "x"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
	// No place under way: the buckets keep what they have.
	l = limiter(w, Options{Concurrent: 1, Total: 10, Rates: []Rate{{Limit: 2, Every: time.Hour}}})
	release, _ := l.Take(alice, "x")
	wait(t, l, alice, "x")
	release()
	if n := times(l, alice, "x"); n != 1 {
		t.Error(n)
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWall() // at ten o'clock
	l := limiter(w, Options{Rates: []Rate{{Limit: 7, Every: 24 * time.Hour, Burst: 1}}})
	if n := times(l, alice, "x"); n != 7 {
		t.Fatal(n)
	}
	w.move(90*time.Minute + 1)
	if which, after := wait(t, l, alice, "x"); after != 12*time.Hour+30*time.Minute ||
		which != "7 a day (UTC) for each principal" {
		t.Error(which, after)
	}
	w.move(12*time.Hour + 30*time.Minute)
	if n := times(l, alice, "x"); n != 7 {
		t.Error("a new day: ", n)
	}
	w.move(-time.Minute) // across midnight
	if n := times(l, alice, "x") + times(l, bob, "x"); n != 7 {
		t.Error("the old day again: ", n)
	}
	w.move(2 * time.Minute)
	if n := times(l, alice, "x"); n != 0 {
		t.Error("the same midnight again: ", n)
	}
	w.move(20 * 24 * time.Hour) // the clock is wrong,
	times(l, alice, "x")
	w.move(-20 * 24 * time.Hour) // and set right
	if n := times(l, alice, "x"); n != 0 {
		t.Error("tokens for a clock that goes back: ", n)
	}
	w.move(24 * time.Hour)
	if n := times(l, alice, "x"); n != 7 {
		t.Error("locked out: ", n)
	}
}

// A clock that goes back gives no tokens, and takes no longer to give the next.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{
		time.Millisecond, 500 * time.Millisecond, 2 * time.Second,
		1000 * time.Hour,
	} {
		w := newWall()
		l := limiter(w, Options{Rates: []Rate{{Limit: 10, Every: time.Second}}})
		w.move(5 * time.Second)
		times(l, alice, "x")
		w.move(-step)
		if n := times(l, alice, "x"); n != 0 {
			t.Errorf("%v back: %d", step, n)
		}
		w.move(time.Second + min(step, time.Second))
		if n := times(l, alice, "x"); n != 10 {
			t.Errorf("a second after %v back: %d", step, n)
		}
		w.move(-step)
		w.move(step)
		if n := times(l, alice, "x"); n > 10 {
			t.Errorf("there and back: %d", n)
		}
	}
}

func (s *store) size() (n int) {
	for i := range s.shards {
		n += len(s.shards[i].index)
		if len(s.shards[i].index) != len(s.shards[i].ring) {
			return -1
		}
	}
	return n
}

// Anyone who invents principals, addresses or names of calls finds their limits used up
// still used up, and so does everybody else.
func TestFlood(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 10, 1000, 10_000} {
		w := newWall()
		l := limiter(w, Options{MaxBuckets: size, Rates: []Rate{
			{Limit: 3, Every: time.Hour},
			{Limit: 3, Every: 24 * time.Hour, Each: true, Calls: []string{"each/*"}},
			{Limit: 50_000, Every: time.Hour, Per: "address"},
		}})
		first := times(l, alice, "x")
		through := 0
		for i := range 3 * size {
			c := &Caller{
				Owner:   owner.Named(fmt.Sprint("p", i)),
				Address: fmt.Sprint("2001:db8:0:", i%10000, "::1"),
			}
			through += times(l, c, fmt.Sprint("each/", i))
		}
		if n := l.store.size(); n < 0 || n > size {
			t.Errorf("%d buckets of %d", n, size)
		}
		if n := times(l, alice, "x"); first+n > 3 {
			t.Errorf("%d: alice got %d and %d", size, first, n)
		}
		if most := 3*size + 3; through > most {
			t.Errorf("%d: %d calls through, at most %d", size, through, most)
		}
		w.move(25 * time.Hour)
		if n := times(l, &Caller{Owner: owner.Named("new")}, "x"); n != 3 {
			t.Errorf("%d: a day later: %d", size, n)
		}
	}
}

// A bucket takes less than 200 bytes.
func TestMemory(t *testing.T) {
	const n = 50_000
	l := limiter(newWall(), Options{Rates: []Rate{{Limit: 3, Every: time.Hour}}})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range n {
		_, _ = l.Take(&Caller{Owner: owner.Named(fmt.Sprint(i))}, "x")
	}
	each := int64(heap()-before) / n
	t.Logf("%d bytes", each)
	if each > 200 {
		t.Errorf("%d bytes for a bucket", each)
	}
	runtime.KeepAlive(l)
}

// One caller who invents names of calls takes no room from another.
func TestFloodOfNames(t *testing.T) {
	t.Parallel()
	w := newWall()
	l := limiter(w,
		Options{MaxBuckets: 20_000, Rates: []Rate{{Limit: 3, Every: 24 * time.Hour, Each: true}}})
	through := 0
	for i := range 40_000 {
		through += times(l, alice, fmt.Sprint("x", i))
	}
	if most := 3 * 20_000 / 64; through > most {
		t.Errorf("alice: %d calls", through)
	}
	for i := range 1000 {
		c := &Caller{Owner: owner.Named(fmt.Sprint("p", i))}
		if a, b := times(l, c, "x"), times(l, c, "y"); a != 3 || b != 3 {
			t.Fatalf("%s: %d, %d", c.Owner, a, b)
		}
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newWall()
	kept := Rate{Limit: 5, Every: time.Hour, Calls: []string{"a*"}}
	quota := Rate{Limit: 9, Every: 24 * time.Hour, Per: "all"}
	old := limiter(w,
		Options{Concurrent: 2, Total: 3, Rates: []Rate{kept, {Limit: 3, Every: time.Hour}, quota}})
	r1, err1 := old.Take(alice, "ab")
	r2, err2 := old.Take(alice, "ab")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	l := limiter(w,
		Options{
			Concurrent: 2, Total: 3, MaxBuckets: 50,
			Rates: []Rate{quota, {Limit: 4, Every: time.Hour}, kept},
		})
	l.Adopt(nil)
	l.Adopt(old)
	if which, _ := wait(t, l, alice, "ab"); which != "2 at once for each principal" {
		t.Error(which)
	}
	r1()
	r1()
	if release, err := l.Take(alice, "ab"); err != nil {
		t.Error(err)
	} else {
		release()
	}
	r2()
	if mine, _, all := l.places.counts(alice.Owner); mine != 0 || all != 0 {
		t.Error(mine, all)
	}
	want := "9 a day (UTC) for all: 6 left\n4 in 1h for each principal: 3 left\n5 in 1h of a* for " +
		"each principal: 2 left\n2 at once for each principal: 2 left\n3 at once for all: 3 left"
	if got := strings.Join(l.Explain(alice, "ab"), "\n"); got != want {
		t.Error(got)
	}
}

// Two rates that are the same are two, also after a reload.
func TestSameRates(t *testing.T) {
	t.Parallel()
	w := newWall()
	o := Options{Rates: []Rate{{Limit: 5, Every: time.Hour}, {Limit: 5, Every: time.Hour}}}
	l := limiter(w, o)
	times(l, alice, "x")
	again := limiter(w, o)
	again.Adopt(l)
	for _, l := range []*Limiter{l, again} {
		if n := times(l, bob, "x") + times(l, bob, "x"); n != 5 && n != 0 {
			t.Error(n)
		}
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	l := New(&Options{
		Match: match, Concurrent: 30, Total: 100, MaxBuckets: 100,
		Rates: []Rate{
			{Limit: 500, Every: time.Hour, Per: "all"},
			{Limit: 200, Every: time.Hour, Each: true},
			{Limit: 1000, Every: time.Hour, Per: "address"},
		},
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	through := 0
	for g := range 8 {
		wg.Go(func() {
			c := &Caller{Owner: owner.Named(fmt.Sprint(g)), Address: "192.0.2.1"}
			for i := range 200 {
				if release, err := l.Take(c, fmt.Sprint(i%50)); err == nil {
					mu.Lock()
					through++
					mu.Unlock()
					release()
				}
				l.Explain(c, "x")
			}
		})
	}
	wg.Wait()
	if _, _, all := l.places.counts(owner.Key{}); through != 500 || all != 0 ||
		l.places.held.Known() > 8 {
		t.Errorf("%d through, %d under way", through, all)
	}
}

func BenchmarkTake(b *testing.B) {
	l := New(&Options{
		Match: match, Concurrent: 100, Total: 1000,
		Rates: []Rate{
			{Limit: 1 << 30, Every: time.Second, Calls: []string{"tools/call github/*"}, Each: true},
			{Limit: 1 << 30, Every: time.Second, Per: "address"},
			{Limit: 1 << 30, Every: 24 * time.Hour, Per: "all"},
		},
	})
	take := func(c *Caller) {
		release, err := l.Take(c, "tools/call github/search")
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			take(alice)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			c := &Caller{Owner: owner.Named(fmt.Sprintf("%p", p)), Address: "192.0.2.9:80"}
			for p.Next() {
				take(c)
			}
		})
	})
	b.Run("refused", func(b *testing.B) {
		l := New(&Options{Rates: []Rate{{Limit: 1, Every: time.Hour}}})
		times(l, alice, "x")
		b.ReportAllocs()
		for b.Loop() {
			_, _ = l.Take(alice, "x")
		}
	})
}

// connection is an anonymous caller on its own connection.
func connection(n int, address string) *Caller {
	return &Caller{Owner: owner.Connection(fmt.Sprint(n), address), Address: address}
}

// Each anonymous connection has the limits of a principal, and those of one address have eight
// times these together, so that connecting again does not win the limit again and again.
func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	w := newWall()
	l := limiter(w, Options{Concurrent: 1, Rates: []Rate{{Limit: 5, Every: 24 * time.Hour}}})
	const address, other = "192.0.2.7:1", "192.0.2.8:1"
	through := 0
	for i := range 100 {
		n := times(l, connection(i, address), "x")
		if n > 5 || i < 8 && n != 5 {
			t.Errorf("connection %d: %d calls", i, n)
		}
		through += n
	}
	if through != 40 {
		t.Errorf("%d calls of an address", through)
	}
	if which, _ := wait(t, l, connection(1000, address),
		"x"); which != "40 a day (UTC) for the anonymous sessions and connections of an address" {
		t.Error(which)
	}
	for _, c := range []*Caller{
		connection(101, other), connection(102, ""), connection(103, ""),
		{Owner: owner.Address(address)},
		alice,
	} {
		if n := times(l, c, "x"); n != 5 {
			t.Errorf("%v: %d calls", c.Owner, n)
		}
	}
	want := []string{
		"5 a day (UTC) for each principal: 5 left",
		"40 a day (UTC) for the anonymous sessions and connections of an address: 35 left",
		"1 at once for each principal: 1 left",
		"8 at once for the anonymous sessions and connections of an address: 8 left",
	}
	if got := l.Explain(connection(104, other),
		"x"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
	for i := range 9 {
		w.move(24 * time.Hour)
		if _, err := l.Take(connection(200+i, other), "x"); (err == nil) != (i < 8) {
			t.Errorf("running call %d of an address: %v", i, err)
		}
	}
}

// Callers that connect again and again, or from many addresses, fill no more than their part of the
// buckets: an authenticated principal has its own.
func TestAnonymousFlood(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]func(i int) *Caller{
		"connections of an address": func(i int) *Caller { return connection(i, "192.0.2.7") },
		"connections of many": func(i int) *Caller {
			return connection(i, fmt.Sprintf("2001:db8:0:%x::1", i))
		},
		"addresses": func(i int) *Caller {
			a := fmt.Sprintf("2001:db8:0:%x::1", i)
			return &Caller{Owner: owner.Address(a), Address: a}
		},
		"addresses of a principal": func(i int) *Caller {
			return &Caller{Owner: owner.Named("eve"), Address: fmt.Sprintf("2001:db8:0:%x::1", i)}
		},
	} {
		l := limiter(newWall(), Options{MaxBuckets: 2560, Rates: []Rate{
			{Limit: 3, Every: 24 * time.Hour, Each: true},
			{Limit: 1 << 30, Every: time.Hour},
			{Limit: 1000, Every: 24 * time.Hour, Per: "address"},
		}})
		for i := range 10_000 {
			_, _ = l.Take(flood(i), fmt.Sprint(i))
		}
		for i := range 60 {
			c := &Caller{
				Owner: owner.Named(fmt.Sprint(i)), Address: fmt.Sprintf("203.0.%d.%d", i/250, i%250),
			}
			if a, b := times(l, c, "x"), times(l, c, "y"); a != 3 || b != 3 {
				t.Fatalf("%s: principal %d: %d, %d calls", name, i, a, b)
			}
		}
		if n := times(l, connection(0, ""), "x"); n != 3 && name == "connections of an address" {
			t.Errorf("%s: another connection: %d calls", name, n)
		}
		if n := l.store.size(); n < 0 || n > 2560 {
			t.Errorf("%s: %d buckets", name, n)
		}
	}
}
