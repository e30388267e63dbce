//go:build !race

package farcall_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// A typed call costs its params and its boxed result, and no more.
func TestTypedAllocs(t *testing.T) {
	m := farcall.NewMux()
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	})
	m.Handle("untyped",
		farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
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

// An observer that does nothing costs no allocation, in either direction.
func TestObserverAllocs(t *testing.T) {
	idle := &observe.Observer{
		Start:  func(ctx context.Context, _ *observe.Call) context.Context { return ctx },
		End:    func(context.Context, *observe.Call) {},
		Refuse: func(context.Context, *observe.Call) {},
		Frame:  func(observe.Frame) {},
	}
	mux := farcall.NewMux()
	farcall.Handle(mux, "ok", func(context.Context, struct{}) (int, error) { return 1, nil })
	frame := []byte(`{"jsonrpc":"2.0","method":"ok","id":1}`)
	allocs := map[string][2]float64{}
	for i, o := range []*observe.Observer{nil, idle} {
		r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
		out := make([]byte, 0, 1024)
		p := farcall.NewClient(canned(`{"jsonrpc":"2.0","result":1,"id":1}`), nil,
			&farcall.Options{Observer: o})
		for name, f := range map[string]func(){
			"serve": func() { r.Respond(t.Context(), out, frame, nil) },
			"call":  func() { farcall.SetLastID(p, 0); _ = p.Call(t.Context(), "ok", nil, nil) },
		} {
			v := allocs[name]
			v[i] = testing.AllocsPerRun(500, f)
			allocs[name] = v
		}
	}
	for name, v := range allocs {
		if v[0] != v[1] {
			t.Errorf("%s: %v allocations without an observer, %v with one", name, v[0], v[1])
		}
	}
}

// canned answers the same to everything.
type canned []byte

func (c canned) Exchange(_ context.Context, _ []byte, reply func([]byte) error) error {
	return reply(c)
}

func (canned) Close() error { return nil }
