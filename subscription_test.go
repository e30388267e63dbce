package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type tickParams struct {
	To   int    `json:"to,omitzero"`
	From string `json:"from,omitzero"`
}

// tickMux serves ticks that count, which end when asked for, and fail when they come to 13. running
// counts the producers.
func tickMux() (m *farcall.Mux, running *atomic.Int32) {
	m, running = farcall.NewMux(), new(atomic.Int32)
	farcall.HandleSubscription(m, "time/ticks",
		func(ctx context.Context, p tickParams) (iter.Seq2[string, error], error) {
			if p.To < 0 {
				return nil, jsonrpc.Errorf(1001, "no time")
			}
			return func(yield func(string, error) bool) {
				running.Add(1)
				defer running.Add(-1)
				for i := 0; p.To == 0 || i < p.To; i++ {
					switch {
					case i == 13:
						yield("", jsonrpc.Errorf(1013, "bad luck"))
						return
					case i == 3 && p.To == 0:
						<-ctx.Done()
						return
					case !yield(fmt.Sprint(p.From, i), nil):
						return
					}
				}
			}, nil
		}, "Count")
	return m, running
}

// A subscription works over every transport that pushes; the id is there before the first event.
func TestSubscription(t *testing.T) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		mux, running := tickMux()
		p, server := connect(t, a, b, nil, mux, nil, nil)
		for i := range 20 {
			sub, err := farcall.Subscribe[string](t.Context(), p, "time/ticks", tickParams{To: 5, From: "x"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := collect(sub.Events())
			if err != nil || strings.Join(got, " ") != "x0 x1 x2 x3 x4" {
				t.Fatalf("%d: %v, %v", i, got, err)
			}
			if err := sub.Close(); err != nil {
				t.Fatal(err)
			}
		}
		sub, err := farcall.Subscribe[string](t.Context(), p, "time/ticks", tickParams{To: 20})
		if err != nil {
			t.Fatal(err)
		}
		got, err := collect(sub.Events())
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != 1013 || len(got) != 13 {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := farcall.Subscribe[string](t.Context(), p, "time/ticks",
			[]int{-1}); !errors.As(err, &wire) || wire.Code != 1001 {
			t.Errorf("refused: %v", err)
		}
		for running.Load() > 0 {
			<-time.After(time.Millisecond)
		}
		if st := server.Stats(); st.Subscriptions != 0 {
			t.Errorf("%d subscriptions are left", st.Subscriptions)
		}
		if st := p.Stats(); st.DroppedEvents != 0 {
			t.Errorf("%d events were dropped", st.DroppedEvents)
		}
	})
}

// The producer ends when the subscriber unsubscribes, its context ends, and the connection ends.
func TestSubscriptionProducerEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(sub *farcall.Subscription[string], p *farcall.Peer, cancel func())
		want string
	}{
		{"closed", func(sub *farcall.Subscription[string], _ *farcall.Peer, _ func()) {
			_ = sub.Close()
		}, ""},
		{"cancelled", func(_ *farcall.Subscription[string], _ *farcall.Peer, cancel func()) {
			cancel()
		}, "context canceled"},
		{"connection", func(_ *farcall.Subscription[string], p *farcall.Peer, _ func()) {
			_ = p.Close()
		}, "farcall: connection closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mux, running := tickMux()
				a, b := farcall.Pipe()
				p, server := connect(t, a, b, nil, mux, nil, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sub, err := farcall.Subscribe[string](ctx, p, "time/ticks", nil)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if running.Load() != 1 || server.Stats().Subscriptions != 1 {
					t.Fatalf("%d producers run, %+v", running.Load(), server.Stats())
				}
				c.end(sub, p, cancel)
				synctest.Wait()
				if running.Load() != 0 || server.Stats().Subscriptions != 0 {
					t.Errorf("%d producers run, %+v", running.Load(), server.Stats())
				}
				_, err = collect(sub.Events())
				if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
					t.Errorf("ended with %v, want %q", err, c.want)
				}
			})
		})
	}
}

// What goes over the wire, to the byte, of what go-ethereum has and of LSP's partial results.
func TestSubscriptionOnTheWire(t *testing.T) {
	mux, _ := tickMux()
	farcall.HandleSubscription(mux.Group("eth_"), "blocks",
		func(context.Context, struct{ Full bool }) (iter.Seq2[int, error], error) {
			return func(yield func(int, error) bool) { yield(7, nil) }, nil
		})
	mux.Handle("echo", farcall.HandlerFunc(echo))
	for _, c := range []struct{ send, want string }{
		{
			`{"jsonrpc":"2.0","method":"time/subscribe","params":["ticks",2,"x"],"id":"a"}`,
			`{"jsonrpc":"2.0","result":"0x1","id":"a"}
{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","result":"x0"}}
{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","result":"x1"}}
{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","end":true}}`,
		},
		{
			`{"jsonrpc":"2.0","method":"eth_subscribe","params":["blocks",{"Full":true}],"id":1}`,
			`{"jsonrpc":"2.0","result":"0x1","id":1}
{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":7}}
{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","end":true}}`,
		},
		{
			`[{"jsonrpc":"2.0","method":"time/subscribe","params":["ticks",1],"id":1},{"jsonrpc":"2.0",` +
				`"method":"echo","params":[2],"id":2}]`,
			`[{"jsonrpc":"2.0","result":"0x1","id":1},{"jsonrpc":"2.0","result":[2],"id":2}]
{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","result":"0"}}
{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","end":true}}`,
		},
		{
			`{"jsonrpc":"2.0","method":"time/ticks","params":{"to":1,"partialResultToken":"t"},"id":1}`,
			`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"t","value":"0"}}
{"jsonrpc":"2.0","result":null,"id":1}`,
		},
		{
			`{"jsonrpc":"2.0","method":"time/unsubscribe","params":["0x9"],"id":1}`,
			`{"jsonrpc":"2.0","result":false,"id":1}`,
		},
		{
			`{"jsonrpc":"2.0","method":"time/subscribe","params":["clocks"],"id":1}`,
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params: there is no subscription ` +
				`\"clocks\" among ticks"},"id":1}`,
		},
		{
			`{"jsonrpc":"2.0","method":"time/subscribe","params":{"a":1},"id":1}`,
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params: a list is expected that ` +
				`begins with one of ticks"},"id":1}`,
		},
		{
			`{"jsonrpc":"2.0","method":"time/ticks","id":1}`,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"time/ticks has no end: call ` +
				`time/subscribe with [\"ticks\"], or ask for progress, as farcall stream does"},"id":1}`,
		},
	} {
		w := newWire(t, 0, mux, nil)
		w.write(c.send)
		for want := range strings.SplitSeq(c.want, "\n") {
			w.expect(want)
		}
	}
}

// A connection has its own subscriptions: what one fills and names is nothing to another one.
func TestSubscriptionsOfTwoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux, _ := tickMux()
		o := &farcall.Options{MaxSubscriptions: 2}
		peer := func() (p, server *farcall.Peer) {
			a, b := farcall.Pipe()
			return connect(t, a, b, nil, mux, nil, o)
		}
		p, server := peer()
		other, _ := peer()
		var subs [2]*farcall.Subscription[string]
		for i := range subs {
			var err error
			if subs[i], err = farcall.Subscribe[string](t.Context(), p, "time/ticks", nil); err != nil {
				t.Fatal(err)
			}
		}
		var wire *jsonrpc.Error
		_, err := farcall.Subscribe[string](t.Context(), p, "time/ticks", nil)
		if !errors.As(err, &wire) || wire.Code != jsonrpc.Overloaded ||
			!strings.Contains(string(wire.Data), "limit of 2 subscriptions") {
			t.Errorf("the third: %v %s", err, wire.Data)
		}
		for _, id := range []string{"0x1", "0x2", "0x3"} {
			if ended, err := farcall.Call[bool](t.Context(), other, "time/unsubscribe",
				[]string{id}); err != nil || ended {
				t.Errorf("another connection ends %s: %v, %v", id, ended, err)
			}
		}
		if _, err := farcall.Subscribe[string](t.Context(), other, "time/ticks", nil); err != nil {
			t.Errorf("the other connection: %v", err)
		}
		if err := subs[0].Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := farcall.Subscribe[string](t.Context(), p, "time/ticks", nil); err != nil {
			t.Errorf("after an end: %v", err)
		}
		if n := server.Stats().Subscriptions; n != 2 {
			t.Errorf("%d subscriptions", n)
		}
	})
}

// Where nothing can be pushed, both ends say what to use instead.
func TestSubscriptionOverHTTP(t *testing.T) {
	mux, _ := tickMux()
	farcall.Handle(mux, "pushed", func(ctx context.Context, _ struct{}) (bool, error) {
		return farcall.CallerFrom(ctx).Done() != nil, nil
	})
	p := httpClient(t, mux, nil)
	if _, err := farcall.Subscribe[string](t.Context(), p, "time/ticks", nil); err == nil ||
		!strings.Contains(err.Error(), "HTTP cannot carry subscriptions; connect over WebSocket") {
		t.Errorf("our client: %v", err)
	}
	err := p.Call(t.Context(), "time/subscribe", []string{"ticks"}, nil)
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != -32043 ||
		wire.Message != "This transport cannot push events; call time/subscribe over WebSocket, TCP, a "+
			"unix socket or stdio, or stream time/ticks, which HTTP can carry" {
		t.Errorf("our server: %v", err)
	}
	got, err := collect(farcall.Stream[string](t.Context(), p, "time/ticks", tickParams{To: 3}))
	if err != nil || strings.Join(got, " ") != "0 1 2" {
		t.Errorf("streamed: %v, %v", got, err)
	}
	if pushed, err := farcall.Call[bool](t.Context(), p, "pushed", nil); pushed || err != nil {
		t.Errorf("the caller can be pushed to: %v, %v", pushed, err)
	}
}

// partialResults are the options of peers that speak as LSP does.
func partialResults() *farcall.Options {
	return &farcall.Options{Dialect: farcall.Dialect{
		CancelMethod: "$/cancelRequest", CancelID: "id", ProgressMethod: "$/progress",
		ProgressToken: "token", ProgressValue: "value",
		PartialResults: true,
	}}
}

// LSP's partial results are a dialect of subscribing, and of streaming.
func TestPartialResults(t *testing.T) {
	o := partialResults()
	synctest.Test(t, func(t *testing.T) {
		mux, running := tickMux()
		mux.Handle("whole",
			farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
				return jsonrpc.Raw(fmt.Sprintf(`[%q]`, req.Params)), nil
			}))
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, mux, o, nil)
		got, err := collect(farcall.Stream[string](t.Context(), p, "time/ticks", tickParams{To: 3}))
		if err != nil || strings.Join(got, " ") != "0 1 2" {
			t.Errorf("streamed: %v, %v", got, err)
		}
		for method, want := range map[string]string{
			"time/ticks": "0 1 2",
			"whole":      `{"partialResultToken":3,"to":3}`,
		} {
			sub, err := farcall.Subscribe[string](t.Context(), p, method, tickParams{To: 3})
			if err != nil {
				t.Fatal(err)
			}
			got, err := collect(sub.Events())
			if all := strings.Join(got, " "); err != nil || all != want && method == "time/ticks" ||
				!strings.Contains(all, `"to":3`) && method == "whole" {
				t.Errorf("%s: %v, %v", method, got, err)
			}
		}
		sub, err := farcall.Subscribe[string](t.Context(), p, "time/ticks", nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if running.Load() != 1 {
			t.Errorf("%d producers run", running.Load())
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		<-time.After(time.Second) // the server reads on when the call has taken a tick
		if running.Load() != 0 {
			t.Errorf("%d producers run after Close", running.Load())
		}
	})
}

// Events of subscriptions that there are not are dropped and counted, unless a handler takes them.
func TestUnknownEvents(t *testing.T) {
	w := newWire(t, 0, nil, nil)
	w.write(
		`{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","result":1}}`,
		`{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":7,"end":true}}`,
		`{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":{},"result":1}}`)
	w.write(`{"jsonrpc":"2.0","method":"m","id":1}`)
	w.expect(`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`)
	if n := w.p.Stats().DroppedEvents; n != 2 {
		t.Errorf("%d events were dropped", n)
	}
	mux, got := farcall.NewMux(), make(chan string, 1)
	farcall.HandleNotification(mux, "eth_subscription", func(_ context.Context, p struct {
		Subscription string `json:"subscription"`
		Result       string `json:"result"`
	},
	) error {
		got <- p.Result
		return nil
	})
	w = newWire(t, 0, mux, nil)
	w.write(
		`{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":"block"}}`)
	if event := <-got; event != "block" {
		t.Error(event)
	}
}

// A server may give the id of a subscription that has ended to another one, which Close of the
// first leaves alone.
func TestSubscriptionIDUsedAgain(t *testing.T) {
	w := newWire(t, 0, nil, nil)
	subscribe := func(id int) *farcall.Subscription[int] {
		t.Helper()
		made := make(chan *farcall.Subscription[int])
		go func() {
			sub, err := farcall.Subscribe[int](t.Context(), w.p, "news", nil)
			if err != nil {
				t.Error(err)
			}
			made <- sub
		}()
		w.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"subscribe","params":["news"],"id":%d}`, id))
		w.write(fmt.Sprintf(`{"jsonrpc":"2.0","result":"0x1","id":%d}`, id))
		return <-made
	}
	first := subscribe(1)
	w.write(`{"jsonrpc":"2.0","method":"subscription","params":{"subscription":"0x1","end":true}}`)
	second := subscribe(2)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	w.write(`{"jsonrpc":"2.0","method":"subscription","params":{"subscription":"0x1","result":7}}`,
		`{"jsonrpc":"2.0","method":"subscription","params":{"subscription":"0x1","end":true}}`)
	if got, err := collect(second.Events()); len(got) != 1 || got[0] != 7 || err != nil {
		t.Error(got, err)
	}
}

// A producer waits while its subscriber does not read, and delays no other.
func TestSubscriptionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		var made atomic.Int32
		farcall.HandleSubscription(mux, "flood",
			func(context.Context, struct{}) (iter.Seq2[string, error], error) {
				return func(yield func(string, error) bool) {
					for yield(strings.Repeat("x", 1000), nil) {
						made.Add(1)
					}
				}, nil
			})
		a, b := farcall.Pipe()
		server := farcall.NewPeer(b, mux, nil)
		if err := a.Write(
			[]byte(`{"jsonrpc":"2.0","method":"subscribe","params":["flood"],"id":1}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := made.Load()
		if before == 0 || before > 1000 || server.Stats().UnsentBytes > 1<<20 {
			t.Errorf("%d events were made, %+v", before, server.Stats())
		}
		for range 400 {
			if _, err := a.Read(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if now := made.Load(); now <= before {
			t.Errorf("%d events were made, and %d before", now, before)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A producer that panics ends its subscription with an error.
func TestSubscriptionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		farcall.HandleSubscription(mux, "bad",
			func(context.Context, struct{}) (iter.Seq2[int, error], error) {
				return func(func(int, error) bool) { panic("secret") }, nil
			})
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, mux, nil, nil)
		sub, err := farcall.Subscribe[int](t.Context(), p, "bad", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = collect(sub.Events())
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != jsonrpc.InternalError ||
			strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	})
}

// The context of a producer has the values of the call, and the subscriber as the caller.
func TestSubscriptionContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		farcall.HandleSubscription(mux, "who",
			func(ctx context.Context, _ struct{}) (iter.Seq2[string, error], error) {
				return func(yield func(string, error) bool) {
					value, _ := ctx.Value(key{}).(string)
					back, err := farcall.Call[string](ctx, farcall.CallerFrom(ctx), "name", nil)
					yield(value+" "+back, err)
				}, nil
			})
		client := farcall.NewMux()
		farcall.Handle(client, "name", func(context.Context, struct{}) (string, error) {
			return "me", nil
		})
		short := func(next farcall.Handler) farcall.Handler {
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				ctx, cancel := context.WithTimeout(context.WithValue(ctx, key{}, "principal"), time.Second)
				defer cancel()
				return next.ServeRPC(ctx, req)
			})
		}
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, client, mux, nil,
			&farcall.Options{Interceptors: []farcall.Interceptor{short}})
		sub, err := farcall.Subscribe[string](t.Context(), p, "who", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := collect(sub.Events()); err != nil || len(got) != 1 || got[0] != "principal me" {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func ExampleSubscribe() {
	mux := farcall.NewMux()
	farcall.HandleSubscription(mux, "time/ticks",
		func(_ context.Context, p struct{ Count int }) (iter.Seq2[int, error], error) {
			return func(yield func(int, error) bool) {
				for i := range p.Count {
					if !yield(i, nil) {
						return
					}
				}
			}, nil
		})
	a, b := farcall.Pipe()
	server, client := farcall.NewPeer(a, mux, nil), farcall.NewPeer(b, nil, nil)
	defer server.Close()
	defer client.Close()

	sub, err := farcall.Subscribe[int](context.Background(), client, "time/ticks", []int{3})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	for tick, err := range sub.Events() {
		fmt.Println(tick, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 <nil>
}
