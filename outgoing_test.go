package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// outgoing returns a peer with options; its other end serves mux.
func outgoing(t *testing.T, mux *farcall.Mux, o *farcall.Options) *farcall.Peer {
	t.Helper()
	a, b := farcall.Pipe()
	server, client := farcall.NewPeer(a, mux, &farcall.Options{Logger: slog.New(slog.DiscardHandler)}),
		farcall.NewPeer(b, nil, o)
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// flaky fails every call but each third.
func flaky() *farcall.Mux {
	mux := farcall.NewMux()
	var mu sync.Mutex
	tries := map[int]int{}
	farcall.Handle(mux, "flaky", func(_ context.Context, n int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if tries[n]++; tries[n] < 3 {
			return 0, &jsonrpc.Error{Code: jsonrpc.Overloaded, Message: "Overloaded"}
		}
		return n, nil
	})
	farcall.Handle(mux, "echo", func(_ context.Context, n int) (int, error) { return n, nil })
	farcall.Handle(mux, "note", func(context.Context, struct{}) (int, error) { return 0, nil })
	return mux
}

func retry(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(
		ctx context.Context, req *farcall.Request,
	) (result any, err error) {
		for range 3 {
			if result, err = next.ServeRPC(ctx, req); !errors.Is(err, jsonrpc.Overloaded) {
				break
			}
		}
		return result, err
	})
}

// Each call and notification goes through all interceptors, the first outermost, each element of a
// batch too.
func TestCallInterceptors(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	named := func(name string) farcall.Interceptor {
		return func(next farcall.Handler) farcall.Handler {
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				mu.Lock()
				seen = append(seen, fmt.Sprintf("%s %s %s note=%v batch=%v", name, req.Method, req.Params,
					req.IsNotification(), req.InBatch()))
				mu.Unlock()
				return next.ServeRPC(ctx, req)
			})
		}
	}
	p := outgoing(t, flaky(),
		&farcall.Options{CallInterceptors: []farcall.Interceptor{named("a"), named("b")}})
	if n, err := farcall.Call[int](t.Context(), p, "echo", []int{5}); n != 5 || err != nil {
		t.Error(n, err)
	}
	if err := p.Notify(t.Context(), "note", nil); err != nil {
		t.Error(err)
	}
	if err := p.Call(t.Context(), "gone", nil, nil); !errors.Is(err, jsonrpc.MethodNotFound) {
		t.Error(err)
	}
	var one int
	if err := p.Batch(t.Context(),
		&farcall.BatchCall{Method: "echo", Params: []int{1}, Result: &one}); err != nil || one != 1 {
		t.Error(one, err)
	}
	want := []string{
		"a echo [5] note=false batch=false", "b echo [5] note=false batch=false",
		"a note  note=true batch=false", "b note  note=true batch=false",
		"a gone  note=false batch=false", "b gone  note=false batch=false",
		"a echo [1] note=false batch=true", "b echo [1] note=false batch=true",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got %q", seen)
	}
	if err := p.Call(t.Context(), "echo", 5, nil); err == nil ||
		!strings.Contains(err.Error(), "must be an object or an array") {
		t.Error(err)
	}
}

// Interceptors may answer themselves, with any value, and may change the request.
func TestCallInterceptorsAnswer(t *testing.T) {
	p := outgoing(t, flaky(),
		&farcall.Options{CallInterceptors: []farcall.Interceptor{func(
			next farcall.Handler,
		) farcall.Handler {
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				switch req.Method {
				case "cached":
					return map[string]int{"n": 7}, nil
				case "refused":
					return nil, io.ErrNoProgress
				case "other":
					copied := *req
					copied.Method = "echo"
					req = &copied
				}
				return next.ServeRPC(ctx, req)
			})
		}}})
	var got struct {
		N int `json:"n"`
	}
	var n, m int
	calls := []*farcall.BatchCall{
		{Method: "cached", Result: &got},
		{Method: "refused"},
		{Method: "other", Params: []int{3}, Result: &n},
		{Method: "echo", Params: []int{4}, Result: &m},
		{Method: "note", Notify: true},
	}
	if err := p.Batch(t.Context(), calls...); err != nil || got.N != 7 || n != 3 || m != 4 ||
		!errors.Is(calls[1].Err, io.ErrNoProgress) {
		t.Errorf("%v: %v %d %d, %v", err, got, n, m, calls[1].Err)
	}
	if err := p.Call(t.Context(), "cached", nil, &got); err != nil || got.N != 7 {
		t.Error(err)
	}
	if err := p.Call(t.Context(), "refused", nil, &got); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	// None is left to send.
	if err := p.Batch(t.Context(), &farcall.BatchCall{Method: "refused"}); err != nil {
		t.Error(err)
	}
}

// A batch is one frame; what an interceptor tries again is sent alone.
func TestCallInterceptorsRetryInABatch(t *testing.T) {
	var mu sync.Mutex
	inBatch, alone := 0, 0
	p := outgoing(t, flaky(), &farcall.Options{
		CallInterceptors: []farcall.Interceptor{retry},
		OnRecord: func(_ context.Context, r farcall.Record) {
			mu.Lock()
			defer mu.Unlock()
			if r.Batch {
				inBatch++
			} else {
				alone++
			}
		},
	})
	const n = 20
	calls, results := make([]*farcall.BatchCall, n), make([]int, n)
	for i := range calls {
		calls[i] = &farcall.BatchCall{Method: "flaky", Params: []int{i}, Result: &results[i]}
	}
	if err := p.Batch(t.Context(), calls...); err != nil {
		t.Error(err)
	}
	for i, c := range calls {
		if c.Err != nil || results[i] != i {
			t.Errorf("%d: %d, %v", i, results[i], c.Err)
		}
	}
	if inBatch != n || alone != 2*n {
		t.Errorf("%d in the batch, %d alone", inBatch, alone)
	}
}

// A batch with elements that hang in an interceptor ends with its context, and a panic reaches the
// caller.
func TestCallInterceptorsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := outgoing(t, flaky(),
			&farcall.Options{CallInterceptors: []farcall.Interceptor{func(
				next farcall.Handler,
			) farcall.Handler {
				return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
					switch req.Method {
					case "hang":
						<-ctx.Done()
						return nil, ctx.Err()
					case "panic":
						panic("boom")
					}
					return next.ServeRPC(ctx, req)
				})
			}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := []*farcall.BatchCall{{Method: "echo", Params: []int{1}}, {Method: "hang"}}
		if err := p.Batch(ctx, calls...); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for _, c := range calls {
			if !errors.Is(c.Err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", c.Method, c.Err)
			}
		}
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v", got)
			}
		}()
		_ = p.Batch(t.Context(), &farcall.BatchCall{Method: "echo", Params: []int{1}},
			&farcall.BatchCall{Method: "panic"})
	})
}

// OnRecord sees what this end sends, over connections and exchanges.
func TestOnRecordOutgoing(t *testing.T) {
	var mu sync.Mutex
	var got []string
	o := &farcall.Options{
		Transport: "pipe", Conn: "1",
		OnRecord: func(_ context.Context, r farcall.Record) {
			mu.Lock()
			defer mu.Unlock()
			if !r.Outgoing || r.Transport != "pipe" || r.Conn != "1" || r.BytesOut != len(r.Request) ||
				r.BytesIn != len(r.Response) {
				t.Errorf("%+v", r)
			}
			got = append(got, fmt.Sprintf("%s %d %s -> %s note=%v batch=%v", r.Method, int(r.Code),
				r.Request,
				r.Response, r.Notification, r.Batch))
		},
	}
	for name, p := range map[string]*farcall.Peer{
		"connection": outgoing(t, flaky(), o),
		"exchange":   farcall.NewClient(answering{farcall.NewResponder(flaky(), nil)}, nil, o),
	} {
		got = nil
		_ = p.Call(t.Context(), "echo", []int{5}, nil)
		_ = p.Call(t.Context(), "gone", nil, nil)
		_ = p.Notify(t.Context(), "note", nil)
		_ = p.Batch(t.Context(), &farcall.BatchCall{Method: "echo", Params: []int{6}},
			&farcall.BatchCall{Method: "note", Notify: true})
		_ = p.Call(t.Context(), "unsent", make(chan int), nil)
		want := []string{
			`echo 0 {"jsonrpc":"2.0","method":"echo","params":[5],"id":1} -> {"jsonrpc":"2.0","result":5,` +
				`"id":1} note=false batch=false`,
			`gone -32601 {"jsonrpc":"2.0","method":"gone","id":2} -> {"jsonrpc":"2.0",` +
				`"error":{"code":-32601,"message":"Method not found"},"id":2} note=false batch=false`,
			`note 0 {"jsonrpc":"2.0","method":"note"} ->  note=true batch=false`,
			`echo 0 {"jsonrpc":"2.0","method":"echo","params":[6],"id":3} -> {"jsonrpc":"2.0","result":6,` +
				`"id":3} note=false batch=true`,
			`note 0 {"jsonrpc":"2.0","method":"note"} ->  note=true batch=true`,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%s", name, strings.Join(got, "\n"))
		}
	}
}

// answering is an Exchanger without a network.
type answering struct{ r *farcall.Responder }

func (a answering) Exchange(ctx context.Context, frame []byte, reply func([]byte) error) error {
	if answer := a.r.Respond(ctx, nil, frame, nil); len(answer) > 0 {
		return reply(answer)
	}
	return nil
}

func (answering) Close() error { return nil }

func ExampleOptions_retry() {
	retry := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(
			ctx context.Context, req *farcall.Request,
		) (result any, err error) {
			for wait := 10 * time.Millisecond; ; wait *= 2 {
				result, err = next.ServeRPC(ctx, req)
				if !errors.Is(err, jsonrpc.Overloaded) || wait > time.Second {
					return result, err
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
	}

	tries := 0
	mux := farcall.NewMux()
	farcall.Handle(mux, "busy", func(context.Context, struct{}) (string, error) {
		if tries++; tries < 3 {
			return "", &jsonrpc.Error{Code: jsonrpc.Overloaded, Message: "Overloaded"}
		}
		return "done", nil
	})
	a, b := farcall.Pipe()
	server := farcall.NewPeer(a, mux, nil)
	client := farcall.NewPeer(b, nil, &farcall.Options{CallInterceptors: []farcall.Interceptor{retry}})
	defer server.Close()
	defer client.Close()

	answer, err := farcall.Call[string](context.Background(), client, "busy", nil)
	fmt.Println(answer, err, "after", tries, "tries")
	// Output: done <nil> after 3 tries
}

// A call that is refused because its token has expired is made once more, with a fresh one.
func ExampleOptions_tokenRefresh() {
	const unauthenticated = -32051
	token := "expired"
	withToken := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			signed := *req
			signed.Params = jsonrpc.Raw(`["` + token + `"]`)
			result, err := next.ServeRPC(ctx, &signed)
			if !errors.Is(err, jsonrpc.Code(unauthenticated)) {
				return result, err
			}
			token = "fresh" // from your identity provider
			signed.Params = jsonrpc.Raw(`["` + token + `"]`)
			return next.ServeRPC(ctx, &signed)
		})
	}

	mux := farcall.NewMux()
	farcall.Handle(mux, "whoami", func(_ context.Context, token string) (string, error) {
		if token != "fresh" {
			return "", &jsonrpc.Error{Code: unauthenticated, Message: "Unauthenticated"}
		}
		return "ada", nil
	})
	a, b := farcall.Pipe()
	server := farcall.NewPeer(a, mux, nil)
	client := farcall.NewPeer(b, nil,
		&farcall.Options{CallInterceptors: []farcall.Interceptor{withToken}})
	defer server.Close()
	defer client.Close()

	fmt.Println(farcall.Call[string](context.Background(), client, "whoami", nil))
	// Output: ada <nil>
}
