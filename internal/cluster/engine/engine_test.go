//go:build !nocluster

package engine

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/store"
)

var quiet = slog.New(slog.DiscardHandler)

func addresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // none is given twice
		all = append(all, l.Addr().String())
	}
	return all
}

func closed(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// An engine alone keeps what it has, and its directory is one process's.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	c := &cluster.Config{URL: cluster.Embedded, Dir: t.TempDir()}
	s, err := Open(t.Context(), c, &Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := &store.Record{Owner: "o", ID: "i", Value: []byte("v"), Expires: time.Now().Add(time.Hour)}
	if _, err := s.Put(t.Context(), r); err != nil {
		t.Error(err)
	}
	_, err = Open(t.Context(), c, &Options{Logger: quiet})
	if err == nil || !strings.Contains(err.Error(), "another process uses") {
		t.Error(err)
	}
	closed(t, s)
	if s, err = Open(t.Context(), c, &Options{Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	if got, err := s.Get(t.Context(), "o", "i"); err != nil || string(got.Value) != "v" {
		t.Error(got, err)
	}
}

// Three engines with one key find each other. One with another key does not, and says so.
func TestKeys(t *testing.T) {
	t.Parallel()
	all := addresses(t, 4)
	right, wrong := strings.Repeat("01", 32), strings.Repeat("02", 32)
	var stores [3]store.Store
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			c := &cluster.Config{Listen: all[i], Peers: all[:3], Key: right, Dir: t.TempDir()}
			var err error
			if stores[i], err = Open(t.Context(), c, &Options{Logger: quiet}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i, s := range stores {
		defer closed(t, s)
		first, err := s.Claim(t.Context(), "k", time.Now().Add(time.Hour))
		if err != nil || first != (i == 0) {
			t.Errorf("node %d: %v, %v", i, first, err)
		}
	}
	told := make(chan int, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitingAfter)
	defer cancel()
	c := &cluster.Config{Listen: all[3], Peers: all[:3], Key: wrong, Dir: t.TempDir()}
	waiting := func(connected, _ int) { told <- connected }
	s, err := Open(ctx, c, &Options{Logger: quiet, Waiting: waiting})
	if err == nil {
		closed(t, s)
		t.Fatal("a node with another key has a quorum")
	}
	if n := <-told; n != 0 || !strings.Contains(err.Error(), "no quorum") {
		t.Error(n, err)
	}
}
