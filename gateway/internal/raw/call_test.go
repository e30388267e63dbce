package raw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/owner"
)

// respond serves one frame as an HTTP front does.
func respond(t *testing.T, u *Upstream, frame string) (answer string, pushed []string) {
	t.Helper()
	r := farcall.NewResponder(u, nil)
	out := r.Respond(t.Context(), nil, []byte(frame), func(f []byte) error {
		pushed = append(pushed, string(f))
		return nil
	})
	return string(out), pushed
}

// overHTTP is an upstream behind HTTP.
func overHTTP(t *testing.T, h farcall.Handler) *Options {
	t.Helper()
	s := httptest.NewServer(httprpc.NewHandler(h, nil))
	t.Cleanup(s.Close)
	x, err := httprpc.Dial(s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Options{Exchanger: x}
}

// Results and errors come back as they were, over a shared connection, one for
// each call, and HTTP.
func TestServe(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*Options{
		"shared": {Dial: inMemory(newServer())},
		"call":   {Dial: inMemory(newServer()), Lifetime: "call"},
		"http":   overHTTP(t, newServer()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := open(t, o)
			for frame, want := range map[string]string{
				call("1.0", "echo", `[ 1.0 , {"a":1e400} ]`): result("1.0", `[ 1.0 , {"a":1e400} ]`),
				call(`"\u0061"`, "fail", `[]`): `{"jsonrpc":"2.0","error":{"code":17,` +
					`"message":"no","data":{"a": 1.0}},"id":"\u0061"}`,
				call("2", "unknown", `[]`): `{"jsonrpc":"2.0","error":{"code":-32601,` +
					`"message":"Method not found"},"id":2}`,
				`{"jsonrpc":"2.0","method":"echo"}`: ``,
				`[` + call("1", "echo", `[1]`) + `,{"jsonrpc":"2.0","method":"echo"},` +
					call("2", "echo", `[2]`) + `]`: `[` + result("1", "[1]") + `,` + result("2", "[2]") + `]`,
				`{"jsonrpc":"2.0","id":3,"method":"trace",` +
					`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`: result("3",
					`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`),
				call("4", "count", `[3]`): result("4", "[0,1,2]"),
				call("5", "ask",
					`{"q":1}`): `{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":5}`,
			} {
				got, _ := respond(t, u, frame)
				if name == "http" && strings.Contains(frame, "ask") {
					want = strings.Replace(want, "-32601", "-32043", 1) // the server cannot even ask
					want = strings.Replace(want, "Method not found",
						"This transport cannot call the caller back; use WebSocket, TCP, a unix socket or stdio", 1)
				}
				if got != want {
					t.Errorf("%s: %s, want %s", frame, got, want)
				}
			}
		})
	}
}

// Progress comes with the caller's token, in order and before the answer.
func TestServeProgress(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*Options{
		"shared": {Dial: inMemory(newServer())},
		"http":   overHTTP(t, newServer()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := open(t, o)
			got, pushed := respond(t, u,
				`{"jsonrpc":"2.0","id":1,"method":"count","params":[1000],"progressToken":"t"}`)
			if got != result("1", "null") || len(pushed) != 1000 {
				t.Fatalf("%s, %d pushed", got, len(pushed))
			}
			for i, p := range pushed {
				if want := fmt.Sprintf(
					`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"t","value":%d}}`, i); p != want {
					t.Fatalf("%s, want %s", p, want)
				}
			}
		})
	}
}

// steps is a server that reports progress to the token in the params, and
// answers with those params.
func steps() farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		for i := range 3 {
			if err := farcall.Progress(ctx, i); err != nil {
				return nil, err
			}
		}
		return r.Params, nil
	})
}

// A token in the params is replaced where callers share a connection: they may
// all have the same.
func TestServeMetaProgress(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*Options{
		"shared": {Dial: inMemory(steps())},
		"http":   overHTTP(t, steps()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := open(t, o)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					got, pushed := respond(t, u,
						fmt.Sprintf(
							`{"jsonrpc":"2.0","id":1,"method":"m","params":{"i":%d.0,"_meta":{"a":[1.0],`+
								`"progressToken":1}}}`, i))
					want := fmt.Sprintf(`{"i":%d.0,"_meta":{"a":[1.0],"progressToken":`, i)
					if !strings.Contains(got, want) || len(pushed) != 3 ||
						!strings.Contains(pushed[2], `{"token":1,"value":2}`) {
						t.Errorf("%s, %s", got, pushed)
					}
				})
			}
			wg.Wait()
		})
	}
}

// Notifications of an HTTP upstream belong to a call and reach its caller; over a
// shared connection they are dropped. A cancellation by id goes nowhere.
func TestServeNotices(t *testing.T) {
	t.Parallel()
	u := open(t, overHTTP(t, newServer()))
	if got, pushed := respond(t, u, call("1", "tell", `[1.0]`)); got != result("1", `"told"`) ||
		len(pushed) != 1 || pushed[0] != `{"jsonrpc":"2.0","method":"news","params":[1.0]}` {
		t.Errorf("%s, %s", got, pushed)
	}
	u = open(t, &Options{Dial: inMemory(newServer())})
	if got, pushed := respond(t, u, call("1", "tell", `[1.0]`)); got != result("1", `"told"`) ||
		len(pushed) != 0 {
		t.Errorf("%s, %s", got, pushed)
	}
	hanging := make(chan string, 1)
	go func() {
		got, _ := respond(t, u, call("1", "hang", `[]`))
		hanging <- got
	}()
	for id := range 10 {
		respond(t, u, fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}`, id))
	}
	if got, _ := respond(t, u, call("2", "echo", `[]`)); got != result("2", "[]") {
		t.Error(got)
	}
	select {
	case got := <-hanging:
		t.Errorf("a caller has cancelled the call of another: %s", got)
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = u.Close(ctx)
	if got := <-hanging; !strings.Contains(got, "Shutting down") {
		t.Error(got)
	}
}

// The connection ends while it is idle: the next call makes a new one. It ends in
// a call: that one gets an error, and the next one goes through.
func TestServeRedial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		u := New(&Options{Name: "up", Dial: s.dial})
		answer := func(server farcall.Transport) {
			if _, err := server.Read(); err != nil {
				t.Error(err)
			}
			_ = server.Write([]byte(result("1", "true")))
		}
		go func() {
			server := <-s.made
			answer(server)
			server.Close()
			server = <-s.made
			_, _ = server.Read()
			server.Close()
			server = <-s.made
			answer(server)
			server.Close()
		}()
		for i, want := range []string{
			result("1", "true"), `"sent":"unknown","retryable":false`,
			result("1", "true"),
		} {
			if got, _ := respond(t, u, call("1", "m", "[]")); !strings.Contains(got, want) {
				t.Errorf("%d: %s, want %s", i, got, want)
			}
			synctest.Wait()
		}
		if st := u.Status(); st.Dials != 3 || st.Calls != 3 || st.Errors != 1 {
			t.Errorf("%+v", st)
		}
		shut(t, u)
	})
}

// No server answers the dialling: the calls say when to come again.
func TestServeBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		u := New(&Options{Name: "up", Dial: func(context.Context) (farcall.Transport, error) {
			dials.Add(1)
			return nil, errors.New("refused")
		}})
		early := false
		for range 100 {
			got, _ := respond(t, u, call("1", "m", "[]"))
			if !strings.Contains(got, `"code":-32008`) ||
				!strings.Contains(got, `"sent":"no","retryable":true`) {
				t.Fatal(got)
			}
			early = early || strings.Contains(got, `"retryAfterMs":`)
			<-time.After(100 * time.Millisecond)
		}
		if n := dials.Load(); n < 4 || n > 12 || !early {
			t.Errorf("%d attempts in 10 s", n)
		}
		shut(t, u)
	})
}

// Anyone who supervises a child says when it may be started again, and why it is not
// there.
func TestServeExplain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(&Options{
			Name:    "up",
			Dial:    func(context.Context) (farcall.Transport, error) { return nil, errors.New("waiting") },
			Explain: func(error) (time.Duration, []string) { return 7 * time.Second, []string{"a", "b"} },
		})
		for range 2 {
			if got, _ := respond(t, u, call("1", "m", "[]")); !strings.Contains(got,
				`"retryAfterMs":7001,"stderr":["a","b"]}`) {
				t.Error(got)
			}
		}
		if st := u.Status(); st.Dials != 1 {
			t.Errorf("%+v", st)
		}
		shut(t, u)
	})
}

// Callers that come while a connection is being made share it.
func TestServeDialOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial := inMemory(newServer())
		u := New(
			&Options{
				Name: "up", MaxInFlight: 50,
				Dial: func(ctx context.Context) (farcall.Transport, error) {
					<-time.After(time.Second)
					return dial(ctx)
				},
			})
		var wg sync.WaitGroup
		var full atomic.Int32
		for range 60 {
			wg.Go(func() {
				switch got, _ := respond(t, u, call("1", "echo", "[1]")); {
				case strings.Contains(got, "Overloaded"):
					full.Add(1)
				case got != result("1", "[1]"):
					t.Error(got)
				}
			})
		}
		wg.Wait()
		if st := u.Status(); st.Dials != 1 || full.Load() != 10 {
			t.Errorf("%d overloaded, %+v", full.Load(), st)
		}
		shut(t, u)
		synctest.Wait()
	})
}

// TestServePlacesAreShared: a caller that fills an upstream leaves room for others.
func TestServePlacesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(&Options{
			Name: "up", MaxInFlight: 32, Timeout: time.Minute, Dial: inMemory(newServer()),
		})
		as := func(o owner.Key, method string) (got string) {
			ctx := context.WithValue(t.Context(), owner.ContextKey{}, o)
			r := farcall.NewResponder(u, nil)
			frame := []byte(call("1", method, "[]"))
			return string(r.Respond(ctx, nil, frame, func([]byte) error { return nil }))
		}
		greedy := owner.Connection("a", "192.0.2.1:1")
		var wg sync.WaitGroup
		var full atomic.Int32
		for range 40 {
			wg.Go(func() {
				if strings.Contains(as(greedy, "hang"), "Overloaded") {
					full.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := full.Load(); n <= 8 {
			t.Errorf("one caller has %d of 32 places", 40-n)
		}
		for _, other := range []owner.Key{
			owner.Named("ada"), owner.Connection("b", "192.0.2.2:1"), owner.Address("192.0.2.3"),
		} {
			if got := as(other, "echo"); got != result("1", "[]") {
				t.Errorf("another caller gets %s", got)
			}
		}
		wg.Wait() // their time is over
		shut(t, u)
		synctest.Wait()
	})
}

// A call that takes too long is given up, and the upstream is notified.
func TestServeTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(&Options{Name: "up", Dial: inMemory(newServer()), Timeout: time.Minute})
		began := time.Now()
		got, _ := respond(t, u, call("1", "hang", "[]"))
		if !strings.Contains(got, `"code":-32009`) || !strings.Contains(got, `"sent":"unknown"`) ||
			time.Since(began) != time.Minute {
			t.Errorf("%s after %v", got, time.Since(began))
		}
		shut(t, u)
		synctest.Wait()
	})
}

// A caller that does not take its progress does not hold up the others.
func TestServeSlowCaller(t *testing.T) {
	t.Parallel()
	big := farcall.NewMux()
	text := strings.Repeat("x", 1<<20)
	cancelled := make(chan struct{})
	big.Handle("big", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		for range 20 {
			if farcall.Progress(ctx, text) != nil {
				break // the call was cancelled while it waited
			}
		}
		<-ctx.Done()
		close(cancelled)
		return nil, ctx.Err()
	}))
	big.Handle("echo", farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
		return r.Params, nil
	}))
	u := open(t, &Options{Dial: inMemory(big)})
	block, slow := make(chan struct{}), make(chan string, 1)
	go func() {
		r := farcall.NewResponder(u, nil)
		out := r.Respond(context.Background(), nil,
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"big","progressToken":1}`), func([]byte) error {
				<-block
				return nil
			})
		slow <- string(out)
	}()
	for range 10 {
		if got, _ := respond(t, u, call("2", "echo", "[1]")); got != result("2", "[1]") {
			t.Error(got)
		}
	}
	<-cancelled
	close(block)
	if got := <-slow; !strings.Contains(got, "8 MiB") {
		t.Error(got)
	}
}

// An HTTP upstream that is not there was certainly not reached.
func TestServeHTTPDown(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(nil)
	s.Close()
	x, err := httprpc.Dial(s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := open(t, &Options{Exchanger: x})
	if got, _ := respond(t, u, call("1", "m", "[]")); !strings.Contains(got, `"code":-32008`) ||
		!strings.Contains(got, `"sent":"no"`) {
		t.Error(got)
	}
	if st := u.Status(); st.State != "down" {
		t.Errorf("%+v", st)
	}
}

// TestComeBack passes on what a server over HTTP says that does not begin a call, from calls and
// from pipes.
func TestComeBack(t *testing.T) {
	t.Parallel()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(busy.Close)
	x, err := httprpc.Dial(busy.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := open(t, &Options{Exchanger: x})
	answer, _ := respond(t, u, call("1", "x", "[]"))
	p := pipeTo(t, u)
	p.send(t, call("1", "x", "[]"))
	piped, readErr := p.Read()
	if readErr != nil {
		t.Fatal(readErr)
	}
	for _, text := range []string{answer, string(piped)} {
		for _, want := range []string{
			"has not begun this one; call it again in 3s",
			`"sent":"no","retryable":true,"retryAfterMs":300`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: want %s", text, want)
			}
		}
	}
}
