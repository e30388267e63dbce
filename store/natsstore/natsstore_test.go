package natsstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/storetest"
	"github.com/farcall-dev/farcall/store"
)

const lease = time.Second

var quiet = slog.New(slog.DiscardHandler)

// engine starts an engine alone.
func engine(tb testing.TB) *Server {
	tb.Helper()
	return started(tb, tb.TempDir(), &ServerOptions{Logger: quiet})
}

func started(tb testing.TB, dir string, o *ServerOptions) *Server {
	tb.Helper()
	s, err := StartServer(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

func opened(tb testing.TB, server *Server, o Options) *Store {
	tb.Helper()
	o.Server, o.Logger = server, quiet
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	s, err := Open(ctx, "", &o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server := engine(t)
	storetest.Run(t, storetest.Suite{
		Lease:  lease,
		Rounds: 5,
		Open: func(t *testing.T, n int) []store.Store {
			all := make([]store.Store, n)
			for i := range all {
				all[i] = opened(t, server, Options{Lease: lease, Skew: time.Nanosecond})
			}
			return all
		},
	})
}

// addresses returns addresses that are free until the engines listen there. On Linux all of
// 127.0.0.0/8 is this machine: what has a random part of it no other process takes meanwhile.
func addresses(t *testing.T, n int) []string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	var all []string
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// cluster is engines, which can be stopped and started again.
type cluster struct {
	dirs, addresses []string

	mu      sync.Mutex
	servers []*Server
}

func newCluster(t *testing.T) *cluster { t.Helper(); return clusterOf(t, 3, 3) }

// clusterOf is so many engines; the first few are started.
func clusterOf(t *testing.T, size, started int) *cluster {
	t.Helper()
	c := &cluster{addresses: addresses(t, size), servers: make([]*Server, size)}
	for i := range c.servers {
		c.dirs = append(c.dirs, t.TempDir())
		if i < started {
			c.start(t, i)
		}
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.stop(i)
		}
	})
	return c
}

func (c *cluster) start(t *testing.T, i int) {
	t.Helper()
	s, err := StartServer(c.dirs[i], &ServerOptions{
		Name: fmt.Sprint("n", i), Listen: c.addresses[i], Peers: c.addresses, Logger: quiet,
	})
	if err != nil {
		t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[i] = s
}

func (c *cluster) stop(i int) {
	c.mu.Lock()
	s := c.servers[i]
	c.servers[i] = nil
	c.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// open opens n handles on the first of the engines.
func (c *cluster) open(t *testing.T, n, engines int) []store.Store {
	t.Helper()
	all := make([]store.Store, n)
	for i := range all {
		o := Options{Replicas: 3, Lease: 2 * lease, Skew: time.Nanosecond}
		all[i] = opened(t, c.servers[i%engines], o)
	}
	return all
}

// All of the contract over three engines with three replicas.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	storetest.Run(t, storetest.Suite{
		Lease: 2 * lease, Rounds: 2, Seed: 1,
		Open: func(t *testing.T, n int) []store.Store { return c.open(t, n, 3) },
	})
}

// One of three engines ends and comes back, again and again, while clients of the others work.
func TestEngineEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	storetest.Run(t, storetest.Suite{
		Lease: 2 * lease, Rounds: 1, Steps: 20, Seed: 2,
		Open: func(t *testing.T, n int) []store.Store { return c.open(t, n, 2) },
		Disturb: func(t *testing.T, ctx context.Context) {
			for ctx.Err() == nil {
				c.stop(2)
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
				c.start(t, 2)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		},
	})
}

// The first time, three engines decide together only, and say so. Later two of them do, also when
// all have been stopped: then the store begins later.
func TestEngineIsMissing(t *testing.T) {
	t.Parallel()
	c := clusterOf(t, 3, 2)
	ctx, cancel := context.WithTimeout(t.Context(), attempt)
	defer cancel()
	_, err := Open(ctx, "", &Options{Server: c.servers[0], Replicas: 3, Logger: quiet})
	if err == nil || !strings.Contains(err.Error(), "all, for the first time") {
		t.Error(err)
	}
	c.start(t, 2)
	before, err := c.open(t, 3, 3)[0].Since(t.Context())
	if err != nil {
		t.Error(err)
	}
	for i := range c.servers {
		c.stop(i)
	}
	for i := range 2 {
		c.start(t, i)
	}
	for i := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		o := &Options{
			Server: c.servers[i], Replicas: 3, Skew: time.Nanosecond, Logger: quiet,
			leaderless: 4 * time.Second, // these will have none, however long they wait
		}
		s, err := Open(ctx, "", o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		first, err := s.Claim(t.Context(), fmt.Sprint("k", i), time.Now().Add(time.Hour))
		if err != nil || !first {
			t.Errorf("engine %d: %v, %v", i, first, err)
		}
		if since, err := s.Since(t.Context()); err != nil || !since.After(before) {
			t.Errorf("the store is of %v, and began again after %v, %v", since, before, err)
		}
	}
	c.start(t, 2)
	s, is := c.open(t, 3, 3)[2].(*Store)
	if !is || s.streams[claims].CachedInfo().Config.Replicas != 3 {
		t.Error("the third engine keeps no claims")
	}
}

// A store that has lost its claims refuses what was claimed, and says that it began later.
func TestLostClaims(t *testing.T) {
	dir, until := t.TempDir(), time.Now().Add(time.Hour)
	server, err := StartServer(dir, &ServerOptions{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := opened(t, server, Options{Skew: time.Nanosecond})
	if first, err := s.Claim(t.Context(), "k", until); err != nil || !first {
		t.Fatalf("%v, %v", first, err)
	}
	before, err := s.Since(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.streams[claims].Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err := s.Claim(t.Context(), "k", until); !errors.Is(err, errRebuilt) || first {
		t.Errorf("the first claim after all were lost: %v, %v", first, err)
	}
	if first, err := s.Claim(t.Context(), "other", until); err != nil || !first {
		t.Errorf("the next claim: %v, %v", first, err)
	}
	if after, err := s.Since(t.Context()); err != nil || !after.After(before) {
		t.Errorf("Since: %v, then %v, %v", before, after, err)
	}
	// And after a start of the engine.
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	server.Close()
	again := opened(t, started(t, dir, &ServerOptions{Logger: quiet}), Options{Skew: time.Nanosecond})
	if after, err := again.Since(t.Context()); err != nil || !after.After(before) {
		t.Errorf("Since: %v, then %v, %v", before, after, err)
	}
}

// Records, sums and work survive the engine.
func TestRestart(t *testing.T) {
	dir, ctx, until := t.TempDir(), t.Context(), time.Now().Add(time.Hour)
	server, err := StartServer(dir, &ServerOptions{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := opened(t, server, Options{})
	r := &store.Record{Owner: "o", ID: "i", Value: []byte("v"), Expires: until}
	if _, err := s.Put(ctx, r); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Take(ctx, "k", 3, 5, until); err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	if err := errors.Join(s.Push(ctx, "q", []byte("w")), s.Close()); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := s.Get(ctx, "o", "i"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	s = opened(t, started(t, dir, &ServerOptions{Logger: quiet}), Options{})
	if r, err := s.Get(ctx, "o", "i"); err != nil || string(r.Value) != "v" {
		t.Errorf("%+v, %v", r, err)
	}
	if n, err := s.Take(ctx, "k", 3, 5, until); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if i, err := s.Pull(ctx, "q"); err != nil || string(i.Data()) != "w" {
		t.Errorf("%+v, %v", i, err)
	}
}

// A process adopts the records of one that has ended, once, and none of one that is there. The
// version grows, so that a writer that was taken for dead writes no more.
func TestAdopt(t *testing.T) {
	server, ctx := engine(t), t.Context()
	a, b := opened(t, server, Options{}), opened(t, server, Options{})
	r := &store.Record{Owner: "o", ID: "i", Value: []byte("v"), Expires: time.Now().Add(time.Hour)}
	if _, err := a.Put(ctx, r); err != nil {
		t.Fatal(err)
	}
	for r, err := range b.Adopt(ctx) {
		t.Errorf("adopted from a process that is there: %+v, %v", r, err)
	}
	m, err := b.last(ctx, claims, b.presenceSubject(a.process.ID))
	if err != nil || m == nil {
		t.Fatalf("%v, %v", m, err)
	}
	if err := b.remove(ctx, claims, m.Sequence); err != nil { // as its time would be over
		t.Fatal(err)
	}
	c := opened(t, server, Options{}) // it finds by its watcher what was there before
	var adopted atomic.Int32
	var wait sync.WaitGroup
	for _, s := range []*Store{b, c} {
		wait.Go(func() {
			for r, err := range s.Adopt(ctx) {
				if err != nil || r.Version != 2 || string(r.Value) != "v" {
					t.Errorf("%+v, %v", r, err)
				}
				adopted.Add(1)
			}
		})
	}
	wait.Wait()
	if n := adopted.Load(); n != 1 {
		t.Errorf("adopted %d times", n)
	}
	r.Version = 1
	if _, err := a.Put(ctx, r); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the old writer: %v", err)
	}
}

// An owner that writes much leaves room for others, at other processes too.
func TestShare(t *testing.T) {
	server, ctx := engine(t), t.Context()
	o := Options{MaxRecords: 2 << 20}
	a, b := opened(t, server, o), opened(t, server, o)
	put := func(s *Store, owner string, i int) error {
		_, err := s.Put(ctx, &store.Record{
			Owner: owner, ID: fmt.Sprint(i), Value: make([]byte, 64<<10),
			Expires: time.Now().Add(time.Hour),
		})
		return err
	}
	n := 0
	for ; n < 100; n++ {
		if err := put(a, "greedy", n); errors.Is(err, store.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n < 12 || n > 18 {
		t.Errorf("%d records of 64 KiB in 2 MiB", n)
	}
	for b.shares.used() < a.shares.used() { // its watcher is a moment later
		<-time.After(5 * time.Millisecond)
	}
	if err := put(b, "greedy", n); !errors.Is(err, store.ErrFull) {
		t.Errorf("at another process: %v", err)
	}
	if err := put(b, "modest", 0); err != nil {
		t.Error(err)
	}
	if err := errors.Join(a.Delete(ctx, "greedy", "0"), a.Delete(ctx, "greedy", "1")); err != nil {
		t.Error(err)
	}
	if err := put(a, "greedy", 0); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	info, err := b.streams[records].Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.shares.retain(nil, info.State.LastSeq)
	if used := b.shares.used(); used != 0 {
		t.Errorf("%d bytes of records that are gone", used)
	}
}

// Beyond the room of a stream, and of a message, the store is full and says so.
func TestFull(t *testing.T) {
	s := opened(t, engine(t), Options{MaxClaims: 64 << 10, MaxWork: 64 << 10})
	ctx, until := t.Context(), time.Now().Add(time.Hour)
	err := error(nil)
	for i := 0; err == nil && i < 10_000; i++ {
		_, err = s.Claim(ctx, fmt.Sprint(i), until)
	}
	push := s.Push(ctx, "q", make([]byte, 80<<10))
	large := &store.Record{Owner: "o", ID: "i", Value: make([]byte, maxPayload), Expires: until}
	_, put := s.Put(ctx, large)
	for i, err := range []error{err, push, put} {
		if !errors.Is(err, store.ErrFull) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	for name, test := range map[string]struct {
		server ServerOptions
		want   string
	}{
		"no name":    {ServerOptions{Listen: "127.0.0.1:1"}, "needs a Name"},
		"no TLS":     {ServerOptions{Name: "n", Listen: "0.0.0.0:6222"}, "TLS is required"},
		"no port":    {ServerOptions{Name: "n", Listen: "127.0.0.1"}, "missing port"},
		"wrong port": {ServerOptions{Name: "n", Listen: "127.0.0.1:0"}, "from 1 to 65535"},
		"peer sans port": {
			ServerOptions{Name: "n", Listen: "127.0.0.1:1", Peers: []string{"x"}}, "must be HOST:PORT",
		},
	} {
		_, err := StartServer(t.TempDir(), &test.server)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Open(t.Context(), "", &Options{Name: "a.b"})
	if err == nil || !strings.Contains(err.Error(), "a.b") {
		t.Errorf("a name that is no token: %v", err)
	}
	if _, err := Open(t.Context(), "nats://127.0.0.1:1", &Options{Logger: quiet}); err == nil {
		t.Error("no server: no error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, "", &Options{Server: engine(t), Replicas: 3, Logger: quiet})
	if err == nil || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("three replicas on one engine: %v", err)
	}
}

func BenchmarkClaim(b *testing.B) {
	s := opened(b, engine(b), Options{})
	until := time.Now().Add(time.Hour)
	for i := 0; b.Loop(); i++ {
		if first, err := s.Claim(b.Context(), fmt.Sprint(i), until); err != nil || !first {
			b.Fatal(first, err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := StartServer(b.TempDir(), &ServerOptions{Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func (s *shares) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Used()
}
