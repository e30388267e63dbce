//go:build !race

package farcall_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A typed call costs its params and its boxed result, and no more.
func TestTypedAllocs(t *testing.T) {
	m := farcall.NewMux()
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) { return p.A + p.B, nil })
	m.Handle("untyped", farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		var p addends
		return nil, req.Bind(&p)
	}))
	for _, test := range []struct {
		method, params string
		most           float64
	}{
		{"add", `{"a":1.5,"b":2.5}`, 2},
		{"add", `[1.5,2.5]`, 2},
		{"untyped", `{"b":1.5,"a":2.5}`, 1},
	} {
		req := &farcall.Request{Method: test.method, Params: jsonrpc.Raw(test.params)}
		got := testing.AllocsPerRun(200, func() {
			if _, err := m.ServeRPC(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		})
		if got > test.most {
			t.Errorf("%s %s: %v allocations, %v allowed", test.method, test.params, got, test.most)
		}
	}
}

// Interceptors and records of calls cost nothing where there are none.
func TestCallAllocs(t *testing.T) {
	p := farcall.NewClient(canned(`{"jsonrpc":"2.0","result":1,"id":1}`), nil, nil)
	raw := jsonrpc.Raw("[1]")
	const most = 8
	got := testing.AllocsPerRun(200, func() {
		farcall.SetLastID(p, 0)
		if err := p.Call(t.Context(), "m", raw, nil); err != nil {
			t.Fatal(err)
		}
	})
	if got > most {
		t.Errorf("%v allocations, %v allowed", got, most)
	}
	t.Log(got)
}

// canned answers the same to everything.
type canned []byte

func (c canned) Exchange(_ context.Context, _ []byte, reply func([]byte) error) error {
	return reply(c)
}

func (canned) Close() error { return nil }
