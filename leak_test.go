package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// descriptors counts the open files of this process; -1 where it cannot.
func descriptors(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return -1
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// settles waits until count returns to what it was.
func settles(t *testing.T, what string, before int, count func() int) {
	t.Helper()
	for range 500 {
		if count() <= before {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("%d %s before, %d after", before, what, count())
}

// Connecting and closing leaves nothing, whichever end closes first.
func TestConnectAndCloseLeavesNothing(t *testing.T) {
	for network, test := range map[string]struct {
		addr string
		n    int
	}{
		"tcp":  {"127.0.0.1:0", 10_000},
		"unix": {filepath.Join(t.TempDir(), "s"), 2000},
	} {
		t.Run(network, func(t *testing.T) {
			n := test.n
			if testing.Short() || race.Enabled {
				n /= 20
			}
			if runtime.GOOS != "linux" {
				t.Log("descriptors are counted on linux only: elsewhere there is no /proc/self/fd")
			}
			ln, err := net.Listen(network, test.addr)
			if err != nil {
				t.Skipf("no %s sockets here: %v", network, err)
			}
			defer ln.Close()
			goroutines, files := runtime.NumGoroutine(), descriptors(t)
			var wg sync.WaitGroup
			accepted := make(chan net.Conn)
			wg.Go(func() {
				for range n {
					c, err := ln.Accept()
					if err != nil {
						t.Error(err)
						break
					}
					accepted <- c
				}
				close(accepted)
			})
			for range 4 {
				wg.Go(func() {
					for c := range accepted {
						serveOne(t, c)
					}
				})
			}
			var next atomic.Int64
			for range 4 {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(n); i = next.Add(1) {
						callOne(t, ln.Addr(), i%2 == 0)
					}
				})
			}
			wg.Wait()
			settles(t, "goroutines", goroutines, runtime.NumGoroutine)
			settles(t, "descriptors", files, func() int { return descriptors(t) })
		})
	}
}

// serveOne answers and waits for the end, which it makes when asked to.
func serveOne(t *testing.T, c net.Conn) {
	hangUp := make(chan struct{})
	p := farcall.NewPeer(stream.New(noLinger(c), stream.NDJSON, nil),
		handle(map[string]farcall.HandlerFunc{
			"echo": echo,
			"end":  func(context.Context, *farcall.Request) (any, error) { close(hangUp); return nil, nil },
		}), nil)
	select {
	case <-p.Done():
	case <-hangUp:
	case <-time.After(20 * time.Second):
		t.Error("a connection does not end")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func callOne(t *testing.T, addr net.Addr, hangUp bool) {
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Error(err)
		return
	}
	p := farcall.NewPeer(stream.New(noLinger(c), stream.NDJSON, nil), nil, nil)
	if _, err := farcall.Call[jsonrpc.Raw](t.Context(), p, "echo", []int{1}); err != nil {
		t.Error(err)
	}
	if hangUp {
		if err := p.Notify(t.Context(), "end", nil); err != nil {
			t.Error(err)
		}
		<-p.Done()
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// noLinger keeps the ports of so many connections from waiting for a minute.
func noLinger(c net.Conn) net.Conn {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c
}

func TestCloseFromBothSides(t *testing.T) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		var closes atomic.Int64
		o := &farcall.Options{OnClose: func(error) { closes.Add(1) }}
		pa, pb := farcall.NewPeer(a, nil, o), farcall.NewPeer(b, nil, o)
		var wg sync.WaitGroup
		for range 8 {
			for _, p := range []*farcall.Peer{pa, pb} {
				wg.Go(func() {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		<-pa.Done()
		<-pb.Done()
		if closes.Load() != 2 {
			t.Errorf("OnClose was called %d times for 2 ends", closes.Load())
		}
		for _, p := range []*farcall.Peer{pa, pb} {
			if err := p.Call(t.Context(), "m", nil, nil); !errors.Is(err, farcall.ErrClosed) {
				t.Errorf("call: %v", err)
			}
			if err := p.Notify(t.Context(), "m", nil); !errors.Is(err, farcall.ErrClosed) {
				t.Errorf("notify: %v", err)
			}
			if err := p.Batch(t.Context(), &farcall.BatchCall{Method: "m"}); !errors.Is(err,
				farcall.ErrClosed) {
				t.Errorf("batch: %v", err)
			}
			if p.Err() == nil {
				t.Error("no reason for the end")
			}
		}
	})
}

// Close ends what is under way at both ends, whichever closes: calls fail, and
// the contexts of handlers end, those of batches too.
func TestCloseWhileCallsAreInFlight(t *testing.T) {
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprintf("far end %t", far), func(t *testing.T) {
			each(t, func(t *testing.T, a, b farcall.Transport) {
				h := newHold()
				o := &farcall.Options{CloseTimeout: 2 * time.Second}
				pa, pb := connect(t, a, b, nil, h, o, o)
				errs := make(chan error, 60)
				for range 50 {
					go func() { errs <- pa.Call(t.Context(), "wait", nil, nil) }()
				}
				calls := make([]*farcall.BatchCall, 10)
				for i := range calls {
					calls[i] = &farcall.BatchCall{Method: "wait"}
				}
				go func() {
					err := pa.Batch(t.Context(), calls...)
					for _, c := range calls {
						errs <- errors.Join(err, c.Err)
					}
				}()
				for range 60 {
					<-h.started
				}
				closing := pa
				if far {
					closing = pb
				}
				if err := closing.Close(); err != nil {
					t.Error(err)
				}
				for range 60 {
					if err := <-errs; !errors.Is(err, farcall.ErrClosed) {
						t.Errorf("got %v, want ErrClosed", err)
					}
				}
			})
		})
	}
}

// The context of a notification's handler ends with the connection, and those
// that wait behind it are dropped.
func TestCloseWhileNotificationsAreHandled(t *testing.T) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		h := newHold()
		o := &farcall.Options{CloseTimeout: 2 * time.Second}
		pa, pb := connect(t, a, b, nil, h, o, o)
		for range 3 {
			if err := pa.Notify(t.Context(), "wait", nil); err != nil {
				t.Fatal(err)
			}
		}
		<-h.started
		if err := pb.Close(); err != nil {
			t.Error(err)
		}
		if n := len(h.started); n > 0 {
			t.Errorf("%d more were handled", n)
		}
	})
}

// What arrives while the connection ends is not begun, or ends with it.
func TestCloseWhileMessagesArrive(t *testing.T) {
	wait := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	note := []byte(`{"jsonrpc":"2.0","method":"wait"}`)
	batch := []byte(
		`[` + waitRequest(`"a"`) + `,` + waitRequest(`"b"`) + `,{"jsonrpc":"2.0","method":"wait"}]`)
	for i := range 300 {
		far, near := farcall.Pipe()
		p := farcall.NewPeer(near, wait, &farcall.Options{CloseTimeout: 2 * time.Second})
		if err := far.Write(note, []byte(waitRequest("1")), note, batch, []byte(waitRequest("2")), note,
			[]byte(waitRequest("null")), note); err != nil {
			t.Fatal(err)
		}
		for range i % 20 { // at ever another moment
			runtime.Gosched()
		}
		if err := p.Close(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

// Requests with the id null are handled at the same time and all of them end.
func TestCloseEndsRequestsWithoutAnIdentity(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{CloseTimeout: time.Second})
	w.write(waitRequest("null"), waitRequest("null"))
	for range 2 {
		select {
		case <-h.started:
		case <-time.After(5 * time.Second):
			t.Fatal("the second was not started")
		}
	}
}

// A handler that closes its own connection would wait for itself: Close says so
// after CloseTimeout, and the connection has ended at once.
func TestCloseInsideAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		closed := make(chan error, 1)
		var pb *farcall.Peer
		ready := make(chan struct{})
		pa := farcall.NewPeer(a, nil, nil)
		pb = farcall.NewPeer(b,
			farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
				<-ready
				start := time.Now()
				err := pb.Close()
				if took := time.Since(start); took != 5*time.Second || ctx.Err() == nil {
					t.Errorf("Close took %v, the context's error is %v", took, ctx.Err())
				}
				closed <- err
				return nil, nil
			}), nil)
		close(ready)
		start := time.Now()
		if err := pa.Call(t.Context(), "close", nil, nil); !errors.Is(err, farcall.ErrClosed) ||
			time.Since(start) > time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if err := <-closed; err == nil || !strings.Contains(err.Error(), "handlers still run") {
			t.Errorf("Close: %v", err)
		}
		if err := errors.Join(pa.Close(), pb.Close()); err != nil {
			t.Error(err)
		}
	})
}
