package httprpc_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type addParams struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// service has a method for each way to answer.
func service(t *testing.T) *farcall.Mux {
	t.Helper()
	m := farcall.NewMux()
	farcall.Handle(m, "add", func(_ context.Context, p addParams) (float64, error) {
		return p.A + p.B, nil
	})
	m.Handle("echo", farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
		return r.Params, nil
	}))
	m.Handle("trace", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		return farcall.TraceFrom(ctx).Parent, nil
	}))
	m.Handle("fail", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, &jsonrpc.Error{
			Code: -32001, Message: "no", Data: jsonrpc.Raw(`{"a":1}`),
			Cause: errors.New("secret"),
		}
	}))
	m.Handle("push", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		if err := farcall.CallerFrom(ctx).Notify(ctx, "tick", map[string]int{"n": 1}); err != nil {
			return nil, &jsonrpc.Error{Code: -32001, Message: err.Error()}
		}
		return "done", nil
	}))
	m.Handle("large", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return strings.Repeat("x", 3<<20), nil
	}))
	farcall.HandleStream(m, "count", func(_ context.Context, p struct {
		To int `json:"to"`
	},
	) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range p.To {
				if !yield(i, nil) {
					return
				}
			}
			if p.To == 3 {
				yield(0, &jsonrpc.Error{Code: -32001, Message: "three"})
			}
		}
	})
	return m
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := http1test.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func dial(t *testing.T, url string, o *httprpc.Options) farcall.Exchanger {
	t.Helper()
	x, err := httprpc.Dial(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func client(t *testing.T, url string, h farcall.Handler, o *httprpc.Options) *farcall.Peer {
	t.Helper()
	p := farcall.NewClient(dial(t, url, o), h, nil)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// request is an HTTP request of a test: "Name: value" pairs after the body.
func request(
	t *testing.T, method, url, body string, headers ...string,
) (status int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(all)
}
