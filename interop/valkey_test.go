package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/storetest"
	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/valkeystore"
)

// valkey starts Debian's server, redis-server or valkey-server, at a socket.
func valkey(t *testing.T, args ...string) (url string, stop func()) {
	t.Helper()
	program := valkeyProgram(t)
	socket := filepath.Join(t.TempDir(), "s")
	stop = startValkey(t, program, append([]string{
		"--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir(),
	}, args...))
	return "unix://" + socket, stop
}

func valkeyProgram(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"valkey-server", "redis-server"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	t.Fatal("neither valkey-server nor redis-server is installed")
	return ""
}

func startValkey(t *testing.T, program string, args []string) (stop func()) {
	t.Helper()
	server := exec.Command(program, args...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Wait() // it is killed
	}()
	stop = func() {
		_ = server.Process.Kill() // it may have ended
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// shared opens a store once the server is there.
func shared(t *testing.T, url string, o valkeystore.Options) *valkeystore.Store {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	late := time.After(10 * time.Second)
	for {
		s, err := valkeystore.Open(t.Context(), url, &o)
		if err == nil {
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return s
		}
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		select {
		case <-late:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A Valkey keeps the contract of a store.
func TestValkey(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	url, _ := valkey(t)
	storetest.Run(t, storetest.Suite{
		Lease: lease,
		Open: func(t *testing.T, n int) []store.Store {
			all := make([]store.Store, n)
			for i := range all {
				all[i] = shared(t, url, valkeystore.Options{Lease: lease, Skew: time.Nanosecond})
			}
			return all
		},
	})
}

// A server that starts again begins to remember then, even where it has the claims of before.
func TestValkeyStartsAgain(t *testing.T) {
	dir, until := t.TempDir(), time.Now().Add(time.Hour)
	url, stop := valkey(t, "--appendonly", "yes", "--dir", dir)
	s := shared(t, url, valkeystore.Options{Skew: time.Nanosecond})
	if first, err := s.Claim(t.Context(), "k", until); err != nil || !first {
		t.Fatalf("%v, %v", first, err)
	}
	before, err := s.Since(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gap := make(chan struct{}, 1)
	end, err := s.Subscribe(t.Context(), "t", func(m store.Message) {
		if m.Gap {
			gap <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	stop()
	if first, err := s.Claim(t.Context(), "other", until); err == nil || first {
		t.Errorf("without a server: %v, %v", first, err)
	}
	socket := strings.TrimPrefix(url, "unix://")
	startValkey(t, valkeyProgram(t), []string{
		"--port", "0", "--unixsocket", socket, "--appendonly", "yes", "--dir", dir,
	})
	shared(t, url, valkeystore.Options{}) // it is there
	first, err := s.Claim(t.Context(), "third", until)
	if err == nil || first || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the first claim at another server: %v, %v", first, err)
	}
	if first, err := s.Claim(t.Context(), "fourth", until); err != nil || !first {
		t.Errorf("the next one: %v, %v", first, err)
	}
	if after, err := s.Since(t.Context()); err != nil || !after.After(before) {
		t.Errorf("since %v, then %v, %v", before, after, err)
	}
	<-gap
}

// Records have an end, owners have shares, and a process adopts what one that has ended wrote.
func TestValkeyRecords(t *testing.T) {
	t.Parallel()
	url, _ := valkey(t)
	ctx, o := t.Context(), valkeystore.Options{MaxRecords: 2 << 20, MaxWork: 64 << 10}
	a, b := shared(t, url, o), shared(t, url, o)
	put := func(s store.Store, owner string, i int) error {
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
	if err := put(b, "greedy", n); !errors.Is(err, store.ErrFull) {
		t.Errorf("at another process: %v", err)
	}
	err := errors.Join(put(b, "modest", 0), a.Delete(ctx, "greedy", "0"),
		a.Delete(ctx, "greedy", "1"), put(a, "greedy", 0))
	if err != nil {
		t.Errorf("room of others, and of what was deleted: %v", err)
	}
	if err := a.Push(ctx, "q", make([]byte, 80<<10)); !errors.Is(err, store.ErrFull) {
		t.Errorf("an item without room: %v", err)
	}
	for r, err := range b.Adopt(ctx) {
		t.Errorf("adopted from a process that is there: %v, %v", r.ID, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	c := shared(t, url, o)
	late, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for adopted := 0; adopted == 0; {
		for r, err := range c.Adopt(late) {
			if err != nil || r.Owner != "modest" || r.Version != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
			adopted++
		}
		select {
		case <-late.Done():
			t.Fatal("the record of a process that has ended is not adopted")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A server that drops keys when its memory is full is refused.
func TestValkeyEviction(t *testing.T) {
	url, _ := valkey(t, "--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru")
	late := time.After(10 * time.Second)
	for {
		_, err := valkeystore.Open(t.Context(), url, nil)
		if err != nil && strings.Contains(err.Error(), "noeviction") {
			return
		}
		if err == nil {
			t.Fatal("it is accepted")
		}
		select {
		case <-late:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
