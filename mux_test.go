package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func nothing(context.Context, *farcall.Request) (any, error) { return nil, nil }

// panicText returns what f panics with.
func panicText(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

func TestMuxRefusesMisuse(t *testing.T) {
	m := farcall.NewMux()
	m.Handle("taken", farcall.HandlerFunc(nothing))
	for want, f := range map[string]func(){
		"needs a name": func() {
			m.Handle("", farcall.HandlerFunc(nothing))
		},
		`"taken" has a handler already`: func() {
			m.Handle("taken", farcall.HandlerFunc(nothing))
		},
		"reserved for the system (JSON-RPC 2.0, section 8)": func() {
			m.Handle("rpc.mine", farcall.HandlerFunc(nothing))
		},
		`"x" needs a handler`: func() { m.Handle("x", nil) },
		`params of the method "c": chan int has no JSON`: func() {
			farcall.Handle(m, "c", func(context.Context, chan int) (int, error) { return 0, nil })
		},
		`result of the method "c": func() has no JSON`: func() {
			farcall.Handle(m, "c", func(context.Context, struct{}) (func(), error) { return nil, nil })
		},
		"an interface with methods": func() {
			farcall.Handle(m, "c", func(context.Context, fmt.Stringer) (int, error) { return 0, nil })
		},
		`option "unknown" of the json tag is called embed`: func() {
			farcall.Handle(m, "c", func(context.Context, struct {
				Rest map[string]any `json:",unknown"`
			},
			) (int, error) {
				return 0, nil
			})
		},
		`the tag default: "x" is no JSON for int`: func() {
			farcall.HandleStream(m, "c", func(context.Context, struct {
				N int `default:"x"`
			},
			) iter.Seq2[int, error] {
				return nil
			})
		},
	} {
		if got := panicText(f); !strings.HasPrefix(got, "farcall: ") || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := len(m.Methods()); got != 1 {
		t.Errorf("%d methods, want 1", got)
	}
}

func TestMuxUnknownMethod(t *testing.T) {
	m := farcall.NewMux()
	m.Handle("Echo", farcall.HandlerFunc(nothing))
	for _, name := range []string{"echo", "", "rpc.nope", "Echo "} {
		_, err := m.ServeRPC(t.Context(), &farcall.Request{Method: name})
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != jsonrpc.MethodNotFound ||
			wire.Message != "Method not found" || wire.Data != nil {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// Methods come and are called at the same time.
func TestMuxGrowsWhileItServes(t *testing.T) {
	m := farcall.NewMux()
	m.Handle("first", farcall.HandlerFunc(nothing))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				m.Handle(fmt.Sprintf("m%d.%d", g, i), farcall.HandlerFunc(nothing))
			}
		})
		wg.Go(func() {
			for range 50 {
				if _, err := m.ServeRPC(t.Context(), &farcall.Request{Method: "first"}); err != nil {
					t.Error(err)
				}
				if _, err := m.ServeRPC(t.Context(), &farcall.Request{Method: "rpc.discover"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(m.Methods()); got != 201 {
		t.Errorf("%d methods, want 201", got)
	}
}

func TestMuxMethods(t *testing.T) {
	m := farcall.NewMux()
	m.Handle("raw", farcall.HandlerFunc(nothing))
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	},
		"Adds.", "Both are numbers.", "Really.")
	farcall.HandleStream(m, "count", func(context.Context, struct{}) iter.Seq2[int, error] {
		return nil
	})
	farcall.Handle(m, "log", func(context.Context, []string) (struct{}, error) {
		return struct{}{}, nil
	})
	want := []farcall.Method{
		{
			Name: "add", Summary: "Adds.", Description: "Both are numbers.\n\nReally.",
			Params: jsonrpc.Raw(
				`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a",` +
					`"b"],"additionalProperties":false}`),
			Result: jsonrpc.Raw(`{"type":"number"}`),
		},
		{
			Name: "count", Stream: true,
			Params: jsonrpc.Raw(`{"type":"object","additionalProperties":false}`),
			Result: jsonrpc.Raw(`{"type":"integer"}`),
		},
		{
			Name: "log", Params: jsonrpc.Raw(`{"type":"array","items":{"type":"string"}}`),
			Result: jsonrpc.Raw(`{"type":"null"}`),
		},
		{Name: "raw"},
	}
	got := m.Methods()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n\t%v\nwant\n\t%v", got, want)
	}
}

// A Mux inside interceptors, and inside another Mux, works like any handler.
func TestMuxComposes(t *testing.T) {
	inner := farcall.NewMux()
	farcall.Handle(inner, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	})
	outer := farcall.NewMux()
	outer.Handle("add", inner)
	seen := ""
	before := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			seen += req.Method
			return next.ServeRPC(ctx, req)
		})
	}
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, outer, nil,
		&farcall.Options{Interceptors: []farcall.Interceptor{before}})
	got, err := farcall.Call[float64](t.Context(), pa, "add", []int{1, 2})
	if err != nil || got != 3 || seen != "add" {
		t.Errorf("got %v, %v, seen %q", got, err, seen)
	}
}

// TestMethodsSubscription marks the events of a group and the methods that subscribe to them, and
// no others.
func TestMethodsSubscription(t *testing.T) {
	m := farcall.NewMux()
	nop := func(context.Context, struct{}) (int, error) { return 0, nil }
	farcall.HandleSubscription(m.Group("time/"), "ticks",
		func(context.Context, struct{}) (iter.Seq2[int, error], error) { return nil, nil })
	farcall.HandleTopic(m, "news", func(context.Context, struct{}) (*farcall.Topic[int], error) {
		return nil, nil
	})
	farcall.Handle(m, "mail/subscribe", nop)
	farcall.Handle(m, "mail/unsubscribe", nop)
	var got []string
	for _, method := range m.Methods() {
		if method.Subscription {
			got = append(got, method.Name)
		}
	}
	if want := []string{
		"news", "subscribe", "time/subscribe", "time/ticks", "time/unsubscribe",
		"unsubscribe",
	}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
