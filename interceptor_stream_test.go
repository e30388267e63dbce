package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An interceptor surrounds all of a stream: the context that it ends when it returns has lasted
// until then, a late error of the stream is the error that it sees, and no value of a type that it
// does not know passes it. On every way of asking for a stream.
func TestInterceptorsSurroundStreams(t *testing.T) {
	type seen struct {
		result string
		err    error
	}
	calls := make(chan seen, 1)
	timeout := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			result, err := next.ServeRPC(ctx, req)
			calls <- seen{fmt.Sprintf("%T", result), err}
			return result, err
		})
	}
	mux, _ := streamMux()
	o := &farcall.Options{Interceptors: []farcall.Interceptor{timeout}}
	a, b := farcall.Pipe()
	peer, _ := connect(t, a, b, nil, mux, nil, o)
	web := httptest.NewServer(httprpc.NewHandler(mux, &httprpc.Options{RPC: o}))
	t.Cleanup(web.Close)
	x, err := httprpc.Dial(web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := farcall.NewClient(x, nil, nil)
	t.Cleanup(func() { client.Close() })
	responder := farcall.NewResponder(mux, o)

	read := map[string]func(p countTo) (n int, err error){
		"progress": func(p countTo) (n int, err error) {
			for _, e := range farcall.Stream[int](t.Context(), peer, "count", p) {
				if err = e; e == nil {
					n++
				}
			}
			return n, err
		},
		"array": func(p countTo) (int, error) {
			var all []int
			err := peer.Call(t.Context(), "count", p, &all)
			return len(all), err
		},
		"HTTP": func(p countTo) (n int, err error) {
			for _, e := range farcall.Stream[int](t.Context(), client, "count", p) {
				if err = e; e == nil {
					n++
				}
			}
			return n, err
		},
		"Responder.Stream": func(p countTo) (n int, err error) {
			params := jsonrpc.Raw(fmt.Sprintf(`{"to":%d,"fail":%d}`, p.To, p.Fail))
			err = responder.Stream(t.Context(), "count", params, func(jsonrpc.Raw) error { n++; return nil })
			return n, err
		},
	}
	for name, stream := range read {
		t.Run(name, func(t *testing.T) {
			n, err := stream(countTo{To: 5})
			got := <-calls
			if n != 5 || err != nil || got.err != nil {
				t.Errorf("%d values, %v; the interceptor saw %v", n, err, got.err)
			}
			if got.result != "<nil>" && got.result != "jsonrpc.Raw" {
				t.Errorf("the interceptor saw a result of the type %s", got.result)
			}
			_, err = stream(countTo{To: 5, Fail: 3})
			got = <-calls
			var wire *jsonrpc.Error
			if !errors.As(got.err, &wire) || wire.Code != 1001 || err == nil {
				t.Errorf("the stream failed with %v, and the interceptor saw %v", err, got.err)
			}
		})
	}
}
