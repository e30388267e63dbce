package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// transports are the carriers that every test of the peer's behaviour runs on.
var transports = map[string]func(t *testing.T) (a, b farcall.Transport){
	"pipe":   func(*testing.T) (a, b farcall.Transport) { return farcall.Pipe() },
	"ndjson": func(t *testing.T) (a, b farcall.Transport) { return tcpPair(t, stream.NDJSON) },
	"header": func(t *testing.T) (a, b farcall.Transport) { return tcpPair(t, stream.Header) },
}

func tcpPair(t *testing.T, f stream.Framing) (a, b farcall.Transport) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return stream.New(dialed, f, nil), stream.New(accepted, f, nil)
}

// connect returns two peers at the ends of a transport; they are closed with
// the test, which fails when a handler is left.
func connect(
	t *testing.T, a, b farcall.Transport, ha, hb farcall.Handler, oa, ob *farcall.Options,
) (pa, pb *farcall.Peer) {
	t.Helper()
	pa, pb = farcall.NewPeer(a, ha, oa), farcall.NewPeer(b, hb, ob)
	t.Cleanup(func() {
		if err := errors.Join(pa.Close(), pb.Close()); err != nil {
			t.Error(err)
		}
	})
	return pa, pb
}

func each(t *testing.T, f func(t *testing.T, a, b farcall.Transport)) {
	for name, pair := range transports {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			f(t, a, b)
		})
	}
}

func echo(_ context.Context, req *farcall.Request) (any, error) { return req.Params, nil }

func handle(methods map[string]farcall.HandlerFunc) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if h := methods[req.Method]; h != nil {
			return h(ctx, req)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found"}
	})
}

func TestCall(t *testing.T) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		pa, _ := connect(t, a, b, nil, handle(map[string]farcall.HandlerFunc{"echo": echo}), nil, nil)
		for i := range 100 {
			want := fmt.Sprintf(`[%d,"<&>",1.0,1e400]`, i)
			got, err := farcall.Call[jsonrpc.Raw](t.Context(), pa, "echo", jsonrpc.Raw(want))
			if err != nil || string(got) != want {
				t.Fatalf("got %s, %v; want %s", got, err, want)
			}
		}
		err := pa.Call(t.Context(), "nope", nil, nil)
		if !errors.Is(err, jsonrpc.MethodNotFound) {
			t.Fatalf("got %v, want MethodNotFound", err)
		}
	})
}

func TestCallConcurrent(t *testing.T) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		pa, _ := connect(t, a, b, nil, farcall.HandlerFunc(echo), nil, nil)
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				for i := range 200 {
					want := fmt.Sprintf(`[%d,%d]`, g, i)
					got, err := farcall.Call[jsonrpc.Raw](t.Context(), pa, "echo", jsonrpc.Raw(want))
					if err != nil || string(got) != want {
						t.Errorf("got %s, %v; want %s", got, err, want)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// A calls B, the handler of B calls A, and so on, deeper than the limit of calls in
// flight: who waits for its own call does not count.
func TestReentrance(t *testing.T) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		down := farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			var n []int
			if err := req.Bind(&n); err != nil {
				return nil, err
			}
			if n[0] == 0 {
				return 0, nil
			}
			deeper, err := farcall.Call[int](ctx, farcall.CallerFrom(ctx), "down", []int{n[0] - 1})
			return deeper + 1, err
		})
		o := &farcall.Options{MaxInFlight: 4}
		pa, pb := connect(t, a, b, down, down, o, o)
		got, err := farcall.Call[int](t.Context(), pa, "down", []int{50})
		if err != nil || got != 50 {
			t.Fatalf("got %d, %v; want 50", got, err)
		}
		if n := pa.Stats().Overloaded + pb.Stats().Overloaded; n != 0 {
			t.Errorf("%d requests were refused", n)
		}
	})
}

func TestNotificationsKeepOrder(t *testing.T) {
	n := 100_000
	if race.Enabled {
		n /= 10
	}
	each(t, func(t *testing.T, a, b farcall.Transport) {
		collect := func() (farcall.Handler, chan error) {
			next, done := 0, make(chan error, 1)
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				if want := fmt.Sprintf("[%d]", next); string(req.Params) != want {
					select {
					case done <- fmt.Errorf("got %s, want %s", req.Params, want):
					default:
					}
				}
				if next%(n/10) == 0 { // one that lasts must not let the others pass
					select {
					case <-ctx.Done():
					case <-time.After(3 * time.Millisecond):
					}
				}
				if next++; next == n {
					done <- nil
				}
				return nil, nil
			}), done
		}
		ha, da := collect()
		hb, db := collect()
		pa, pb := connect(t, a, b, ha, hb, nil, nil)
		var wg sync.WaitGroup
		for _, p := range []*farcall.Peer{pa, pb} {
			wg.Go(func() {
				for i := range n {
					if err := p.Notify(t.Context(), "n", []int{i}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, d := range []chan error{da, db} {
			select {
			case err := <-d:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("not all arrived: %+v %v %+v %v", pa.Stats(), pa.Err(), pb.Stats(), pb.Err())
			}
		}
	})
}

// Cancelling a call cancels the handler, in both dialects; the late answer is
// dropped and counted.
func TestCancel(t *testing.T) {
	for name, d := range map[string]farcall.Dialect{
		"lsp": {},
		"mcp": {
			CancelMethod: "notifications/cancelled", CancelID: "requestId",
			ProgressMethod: "notifications/progress", ProgressToken: "progressToken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := farcall.Pipe()
				cancelled := make(chan error, 1)
				h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
					<-ctx.Done()
					cancelled <- ctx.Err()
					return nil, ctx.Err()
				})
				o := &farcall.Options{Dialect: d}
				pa, _ := connect(t, a, b, nil, h, o, o)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				start := time.Now()
				err := pa.Call(ctx, "wait", nil, nil)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond {
					t.Errorf("got %v after %v", err, time.Since(start))
				}
				if err := <-cancelled; !errors.Is(err, context.Canceled) {
					t.Errorf("the handler's context ended with %v", err)
				}
				synctest.Wait()
				if n := pa.Stats().Dropped; n != 1 {
					t.Errorf("%d late answers were dropped, want 1", n)
				}
			})
		})
	}
}

// A handler that blocks does not keep the connection from being read, wherever
// it runs.
func TestBlockedHandlerDoesNotBlockReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		release := make(chan struct{})
		pa, _ := connect(t, a, b, nil, handle(map[string]farcall.HandlerFunc{
			"block": func(context.Context, *farcall.Request) (any, error) { <-release; return 1, nil },
			"release": func(context.Context, *farcall.Request) (any, error) {
				close(release)
				return 2, nil
			},
		}), nil, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, err := farcall.Call[int](t.Context(), pa, "block", nil); v != 1 || err != nil {
				t.Error(v, err)
			}
		})
		synctest.Wait()
		if v, err := farcall.Call[int](t.Context(), pa, "release", nil); v != 2 || err != nil {
			t.Error(v, err)
		}
		wg.Wait()
	})
}

func TestPanicIsThatCallsError(t *testing.T) {
	var log strings.Builder
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, handle(map[string]farcall.HandlerFunc{
		"panic": func(context.Context, *farcall.Request) (any, error) { panic("secret") },
		"goexit": func(context.Context, *farcall.Request) (any, error) {
			runtime.Goexit()
			return nil, nil
		},
		"echo": echo,
	}), nil, &farcall.Options{Logger: textLogger(&log)})
	for _, m := range []string{"panic", "goexit"} {
		err := pa.Call(t.Context(), m, nil, nil)
		if !errors.Is(err, jsonrpc.InternalError) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", m, err)
		}
		if err := pa.Call(t.Context(), "echo", []int{1}, nil); err != nil {
			t.Errorf("after %s: %v", m, err)
		}
	}
	if !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "peer_test.go") {
		t.Errorf("the log lacks the panic or its stack: %s", log.String())
	}
}

// Both ends send 40 MB at once; neither hangs.
func TestBothSendMuch(t *testing.T) {
	size := 40 << 20
	if race.Enabled {
		size /= 4 // still more than sockets hold
	}
	each(t, func(t *testing.T, a, b farcall.Transport) {
		big := `["` + strings.Repeat("x", size) + `"]`
		h := farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
			return len(req.Params), nil
		})
		pa, pb := connect(t, a, b, h, h, nil, nil)
		var wg sync.WaitGroup
		for _, p := range []*farcall.Peer{pa, pb} {
			wg.Go(func() {
				if n, err := farcall.Call[int](t.Context(), p, "len", jsonrpc.Raw(big)); err != nil ||
					n != len(big) {
					t.Errorf("got %d, %v; want %d", n, err, len(big))
				}
			})
		}
		wg.Wait()
	})
}

// stuck is the far end of a connection; its owner neither reads nor writes, and its sockets hold
// little. They are Unix sockets: TCP drops segments when both ends are full, and waits for minutes
// before it sends them again.
func stuck(t *testing.T) (farcall.Transport, net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	for _, err := range []error{
		far.(*net.UnixConn).SetReadBuffer(64 << 10),
		near.(*net.UnixConn).SetWriteBuffer(64 << 10),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return stream.New(near, stream.NDJSON, nil), far
}

func TestPeerThatStopsReading(t *testing.T) {
	tr, _ := stuck(t)
	p := farcall.NewPeer(tr, nil, nil)
	// More than the sockets hold.
	big := jsonrpc.Raw(`["` + strings.Repeat("x", 4<<20) + `"]`)
	for range 3 { // the second and third find the connection clogged
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		start := time.Now()
		err := p.Call(ctx, "len", big, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
			t.Fatalf("got %v after %v", err, time.Since(start))
		}
	}
	start := time.Now()
	if err := p.Close(); err != nil || time.Since(start) > 2*time.Second {
		t.Errorf("Close: %v after %v", err, time.Since(start))
	}
}

// A flood of requests with unread answers: memory is bounded, the excess
// is answered "overloaded", other connections are unharmed.
func TestFlood(t *testing.T) {
	tr, far := stuck(t)
	var handled atomic.Int64
	h := farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		handled.Add(1)
		return req.Params, nil
	})
	p := farcall.NewPeer(tr, h, nil)
	a, b := tcpPair(t, stream.NDJSON)
	other, _ := connect(t, a, b, nil, h, nil, nil)

	const n = 100_000
	pad := strings.Repeat("x", 500)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	go func() {
		for i := range n {
			fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%d,"method":"echo","params":["%s"]}`+"\n", i, pad)
		}
	}()
	for p.Stats().Requests < n {
		if err := other.Call(t.Context(), "echo", []int{1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20
	st := p.Stats()
	t.Logf("%d requests of 550 bytes unread: %d handled, %d overloaded, heap +%d MiB, %d bytes unsent",
		n, handled.Load(), st.Overloaded, held, st.UnsentBytes)
	if held > 64 {
		t.Errorf("the heap grew by %d MiB", held)
	}
	if st.Overloaded == 0 {
		t.Error("no request was refused")
	}
	// All are answered once the client reads.
	lines := 0
	buf := make([]byte, 1<<20)
	for lines < n {
		k, err := far.Read(buf)
		if err != nil {
			t.Fatalf("after %d answers: %v", lines, err)
		}
		lines += strings.Count(string(buf[:k]), "\n")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// What is in flight when the other end closes its sending half is answered.
func TestAnswersAfterEOF(t *testing.T) {
	tr, far := stuck(t)
	p := farcall.NewPeer(tr,
		farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(20 * time.Millisecond):
				return req.Params, nil
			}
		}), nil)
	fmt.Fprint(far, `{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}`) // without a newline too
	if err := far.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(far)
	if err != nil || string(got) != `{"jsonrpc":"2.0","result":[1],"id":1}`+"\n" {
		t.Errorf("got %s, %v", got, err)
	}
	<-p.Done()
	if !errors.Is(p.Err(), io.EOF) {
		t.Errorf("ended with %v", p.Err())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestShutdownFinishesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		pa, pb := connect(t, a, b, nil,
			farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Second):
					return "done", nil
				}
			}), nil, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, err := farcall.Call[string](t.Context(), pa, "work", nil); v != "done" || err != nil {
				t.Errorf("in flight: %q, %v", v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := pb.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := pa.Call(t.Context(), "work", nil, nil); !errors.Is(err, jsonrpc.Overloaded) {
			t.Errorf("a new call got %v, want Overloaded", err)
		}
		wg.Wait()
		<-pa.Done()
		if err := pa.Call(t.Context(), "work", nil, nil); !errors.Is(err, farcall.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
