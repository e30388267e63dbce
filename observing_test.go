package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/observe"
)

// watcher is an observer that keeps what it has seen.
type watcher struct {
	mu      sync.Mutex
	open    map[*observe.Call]context.Context // started and not ended
	ended   []string
	refused []string
	bad     []string
	bytes   map[bool]int // of frames, by direction
	alive   int
	errs    []string
}

type watcherKey struct{}

func (w *watcher) observer() *observe.Observer {
	w.open, w.bytes = map[*observe.Call]context.Context{}, map[bool]int{}
	locked := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	}
	return &observe.Observer{
		Start: func(ctx context.Context, c *observe.Call) context.Context {
			ctx = context.WithValue(ctx, watcherKey{}, c)
			if c.Outgoing {
				ctx = farcall.WithTrace(ctx, farcall.Trace{Baggage: "span=" + c.Method})
			}
			locked(func() {
				if w.open[c] != nil {
					w.errs = append(w.errs, "started twice: "+c.Method)
				}
				w.open[c] = ctx //nolint:fatcontext // that of each call
			})
			return ctx
		},
		End: func(ctx context.Context, c *observe.Call) {
			locked(func() {
				if w.open[c] != ctx {
					w.errs = append(w.errs, "ended with another context than it started with: "+c.Method)
				}
				delete(w.open, c)
				w.ended = append(w.ended,
					fmt.Sprintf("%s %d known=%v out=%v note=%v batch=%v", c.Method, int(c.Code), c.Known,
						c.Outgoing, c.Notification, c.Batch))
			})
		},
		Refuse: func(_ context.Context, c *observe.Call) {
			locked(func() {
				w.refused = append(w.refused, fmt.Sprintf("%s %d known=%v", c.Method, int(c.Code), c.Known))
			})
		},
		Frame: func(f observe.Frame) { locked(func() { w.bytes[f.Out] += len(f.Data) }) },
		Bad: func(_ observe.Frame, problem string) {
			locked(func() { w.bad = append(w.bad, problem) })
		},
		Open:  func(observe.Lifetime) { locked(func() { w.alive++ }) },
		Close: func(observe.Lifetime) { locked(func() { w.alive-- }) },
	}
}

// over checks that what has begun has ended, and returns the calls, sorted.
func (w *watcher) over(t *testing.T) []string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) != 0 || w.alive != 0 || len(w.errs) != 0 {
		t.Errorf("%d calls and %d connections have begun and not ended; %q", len(w.open), w.alive, w.errs)
	}
	slices.Sort(w.ended)
	return w.ended
}

// observedMux has handlers that end in each way there is.
func observedMux(t *testing.T) *farcall.Mux {
	mux := farcall.NewMux()
	farcall.Handle(mux, "ok", func(ctx context.Context, _ []int) (string, error) {
		c, _ := ctx.Value(watcherKey{}).(*observe.Call)
		if c == nil || c != observe.From(ctx) {
			t.Error("the handler does not have the context that Start has returned, or not the call")
		}
		return farcall.TraceFrom(ctx).Baggage, nil
	})
	mux.Handle("fails", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, errors.New("x")
	}))
	mux.Handle("panics", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		panic("x")
	}))
	mux.Handle("exits", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		runtime.Goexit()
		return nil, nil
	}))
	mux.Handle("waits",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	return mux
}

// Whatever becomes of a call, at both ends: each Start has its End, with the same call and context,
// and the context reaches the handler and the other end.
func TestObserverCalls(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	for _, over := range []string{"connection", "exchange"} {
		t.Run(over, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var here, there watcher
				served := &farcall.Options{Observer: there.observer(), Logger: quiet}
				calls := &farcall.Options{Observer: here.observer(), Logger: quiet}
				var client, server *farcall.Peer
				if over == "connection" {
					a, b := farcall.Pipe()
					server, client = farcall.NewPeer(a, observedMux(t), served), farcall.NewPeer(b, nil, calls)
				} else {
					client = farcall.NewClient(answering{farcall.NewResponder(observedMux(t), served)}, nil, calls)
				}
				for range 20 { // some run inline, some not
					var trace string
					if err := client.Call(t.Context(), "ok", []int{1}, &trace); err != nil || trace != "span=ok" {
						t.Fatalf("%q, %v: the trace of Start was not sent", trace, err)
					}
				}
				methods := []string{"fails", "panics", "none"}
				if over == "connection" {
					methods = append(methods, "exits") // it would end this goroutine elsewhere
				}
				var batch []*farcall.BatchCall
				for _, m := range methods {
					_ = client.Call(t.Context(), m, nil, nil)
					_ = client.Notify(t.Context(), m, nil)
					batch = append(batch, &farcall.BatchCall{Method: m},
						&farcall.BatchCall{Method: m, Notify: true})
				}
				_ = client.Batch(t.Context(), batch...)
				_ = client.Call(t.Context(), "ok", make(chan int), nil)
				_ = client.Batch(t.Context(), &farcall.BatchCall{Method: "ok"},
					&farcall.BatchCall{Method: "ok", Params: make(chan int)})
				ctx, cancel := context.WithCancel(t.Context())
				go func() { synctest.Wait(); cancel() }()
				_ = client.Call(ctx, "waits", nil, nil)
				synctest.Wait()
				_ = client.Close()
				if server != nil {
					_ = server.Close()
				}
				_ = client.Call(t.Context(), "ok", nil, nil) // not sent
				synctest.Wait()
				sent, received := here.over(t), there.over(t)
				if want := 20 + 4*len(methods) + 2 + 1 + 1 + 1; len(sent) != want {
					t.Errorf("%d calls were sent, want %d:\n%s", len(sent), want, strings.Join(sent, "\n"))
				}
				if want := 20 + 4*len(methods) + 1; len(received) != want {
					t.Errorf("%d calls were received, want %d:\n%s", len(received), want,
						strings.Join(received, "\n"))
				}
				if slices.ContainsFunc(sent, func(s string) bool {
					return strings.HasPrefix(s, "ok 0 ") && strings.HasSuffix(s, "batch=true")
				}) {
					t.Errorf("an element of a batch that was not sent has succeeded:\n%s",
						strings.Join(sent, "\n"))
				}
				for _, want := range []string{
					"fails -32603 known=true", "panics -32603 known=true",
					"none -32601 known=false", "ok 0 known=true", "waits -32800 known=true",
				} {
					if !slices.ContainsFunc(received, func(s string) bool { return strings.HasPrefix(s, want) }) {
						t.Errorf("no %q in\n%s", want, strings.Join(received, "\n"))
					}
				}
				if here.bytes[true] != there.bytes[false] || here.bytes[false] != there.bytes[true] ||
					here.bytes[true] == 0 {
					t.Errorf("frames: sent and received %v, at the other end %v", here.bytes, there.bytes)
				}
			})
		})
	}
}

// What reaches no handler is a refusal, and a bad frame if the message is at fault.
func TestObserverRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ frame, refused, bad string }{
		{`{`, " -32700 known=false", "syntax"},
		{`{"jsonrpc":"2.0","method":1,"id":1}`, " -32600 known=false", "message"},
		{`[]`, " -32600 known=false", "message"},
		{`[1,1,1,1]`, " -32012 known=false", "size"},
		{`{"jsonrpc":"2.0","result":1,"id":77}`, "", "unknown answer"},
		{`{"jsonrpc":"2.0","method":"ok","id":1}`, "ok -32010 known=true", ""},
		{`{"jsonrpc":"2.0","method":"elsewhere","id":1}`, "elsewhere -32010 known=false", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var w watcher
			a, b := farcall.Pipe()
			o := &farcall.Options{
				Observer: w.observer(), MaxBatch: 3, MaxInFlight: 1, NoInline: true,
				Logger: slog.New(slog.DiscardHandler),
			}
			p := farcall.NewPeer(a, observedMux(t), o)
			defer p.Close()
			if strings.Contains(test.refused, "-32010") { // use up the one place
				if err := b.Write([]byte(`{"jsonrpc":"2.0","method":"waits","id":0}`)); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Write([]byte(test.frame)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := strings.Join(w.refused, ","); got != test.refused {
				t.Errorf("%s: refused %q, want %q", test.frame, got, test.refused)
			}
			if got := strings.Join(w.bad, ","); got != test.bad {
				t.Errorf("%s: bad %q, want %q", test.frame, got, test.bad)
			}
			_ = b.Close()
		})
	}
}

// ExampleOptions_observer counts calls by their method, which is a label only when it is a known
// one.
func ExampleOptions_observer() {
	calls := map[string]int{}
	mux := farcall.NewMux()
	farcall.Handle(mux, "greet", func(_ context.Context, name []string) (string, error) {
		return "Hello " + name[0], nil
	})
	r := farcall.NewResponder(mux, &farcall.Options{Observer: &observe.Observer{
		End: func(_ context.Context, c *observe.Call) {
			method := c.Method
			if !c.Known {
				method = "_OTHER"
			}
			calls[fmt.Sprintf("%s %d", method, int(c.Code))]++
		},
	}})
	client := farcall.NewClient(answering{r}, nil, nil)
	for _, method := range []string{"greet", "greet", "anything", "at all"} {
		_ = client.Call(context.Background(), method, []string{"Ada"}, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		fmt.Println(name, calls[name])
	}
	// Output:
	// _OTHER -32601 2
	// greet 0 2
}

// The time at which a call began follows the clock of the day, and how long it took is exact.
func TestObservedTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		mux.Handle("wait",
			farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
				<-time.After(3 * time.Millisecond)
				return nil, nil
			}))
		var began, want []time.Time
		r := farcall.NewResponder(mux, &farcall.Options{Observer: &observe.Observer{
			End: func(_ context.Context, c *observe.Call) {
				began = append(began, c.Began)
				if c.Took != 3*time.Millisecond {
					t.Errorf("took %v", c.Took)
				}
			},
		}})
		for i := range 10 {
			want = append(want, time.Now())
			r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","method":"wait","id":1}`), nil)
			<-time.After(time.Duration(i) * 200 * time.Millisecond)
		}
		if !slices.EqualFunc(began, want, time.Time.Equal) {
			t.Errorf("began at %v, want %v", began, want)
		}
	})
}
