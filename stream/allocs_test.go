//go:build !race

package stream

import (
	"context"
	"io"
	"math"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// allocated returns how many bytes, and how many times, all goroutines allocate while f runs.
func allocated(f func()) (bytes, times uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs
}

// TestIdleBytes bounds what an idle connection takes beside its goroutine and the socket: a server
// may have very many.
func TestIdleBytes(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the bounds are those of 64 bits")
	}
	const connections = 100
	for _, test := range []struct {
		name string
		o    *farcall.Options
		most uint64
	}{
		{"without options", nil, 1450},
		{"with options", &farcall.Options{Transport: "tcp"}, 1800},
	} {
		got := uint64(math.MaxUint64)
		for range 5 { // the least counts: the first connections fill the pools, also those of the runtime
			var sockets []io.ReadWriteCloser
			for range connections {
				_, s := socketPair(t, "tcp", "127.0.0.1:0")
				sockets = append(sockets, s)
			}
			var peers []*farcall.Peer
			mux := farcall.NewMux()
			bytes, _ := allocated(func() {
				for _, s := range sockets {
					peers = append(peers, farcall.NewPeer(New(s, NDJSON, nil), mux, test.o))
				}
			})
			for _, p := range peers {
				p.Close()
			}
			got = min(got, bytes/connections)
		}
		if got > test.most {
			t.Errorf("%s: %d bytes for each connection, %d allowed", test.name, got, test.most)
		}
		t.Logf("%s: %d bytes", test.name, got)
	}
}

// TestCallBytes bounds what a call costs both ends together.
func TestCallBytes(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the bounds are those of 64 bits")
	}
	const calls, workers = 20_000, 64
	mux := farcall.NewMux()
	mux.Handle("echo", farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
		return r.Params, nil
	}))
	a, b := socketPair(t, "tcp", "127.0.0.1:0")
	server := farcall.NewPeer(New(a, NDJSON, nil), mux, nil)
	client := farcall.NewPeer(New(b, NDJSON, nil), nil, nil)
	defer server.Close()
	defer client.Close()
	var params any = jsonrpc.Raw(`["hello",42]`)
	call := func() {
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				var result jsonrpc.Raw
				for range calls / workers {
					if err := client.Call(t.Context(), "echo", params, &result); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	call()
	bytes, times := allocated(call)
	if bytes, times = bytes/calls, (times+calls/2)/calls; bytes > 580 || times > 5 {
		t.Errorf("%d bytes in %d allocations for each call, 580 in 5 allowed", bytes, times)
	}
	t.Logf("%d bytes in %d allocations", bytes, times)
}
