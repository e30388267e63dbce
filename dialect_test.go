package farcall_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// metaDialect writes cancellation and progress as MCP does.
func metaDialect() *farcall.Options {
	return &farcall.Options{Dialect: farcall.Dialect{
		CancelMethod: "notifications/cancelled", CancelID: "requestId", CancelSilent: true,
		ProgressMethod: "notifications/progress", ProgressToken: "progressToken", Meta: "_meta",
	}}
}

func TestOnProgress(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	mux.Handle("count",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			for i := range 20 {
				if err := farcall.Progress(ctx, map[string]int{"progress": i}); err != nil {
					return nil, err
				}
			}
			return "done", nil
		}))
	each(t, func(t *testing.T, a, b farcall.Transport) {
		t.Helper()
		caller, _ := connect(t, a, b, nil, mux, metaDialect(), metaDialect())
		got := 0
		ctx := farcall.OnProgress(t.Context(), func(value jsonrpc.Raw) {
			if want := jsonrpc.Raw(`{"progressToken":1,"progress":`); string(value[:len(want)]) !=
				string(want) {
				t.Errorf("progress %s, want the prefix %s", value, want)
			}
			got++
		})
		result, err := farcall.Call[string](ctx, caller, "count", nil)
		if err != nil || result != "done" || got != 20 {
			t.Errorf("%q, %v after %d values, want done after 20", result, err, got)
		}
	})
}

func TestMetaOfParams(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, params, want string }{
		{
			"none", ``,
			`{"_meta":{"progressToken":1,` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`,
		},
		{
			"empty", ` { } `,
			`{"_meta":{"progressToken":1,` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`,
		},
		{
			"others", `{"a":[1.0, {"_meta":2}]}`,
			`{"_meta":{"progressToken":1,` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"a":[1.0, ` +
				`{"_meta":2}]}`,
		},
		{
			"merged", `{"a":1,"_meta":{"x\n":1e400,"progressToken":"mine"}}`,
			`{"_meta":{"progressToken":1,` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","x\n":1e400},"a":1}`,
		},
		{
			"empty meta", `{"_meta":{}}`,
			`{"_meta":{"progressToken":1,` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`,
		},
		{
			"meta no object", `{"_meta":7}`,
			`{"_meta":{"progressToken":1,` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`,
		},
		{"by position", `[1,2]`, `[1,2]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := farcall.Pipe()
			got := ""
			h := farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
				got = string(req.Params)
				return nil, nil
			})
			caller, _ := connect(t, a, b, nil, h, metaDialect(), metaDialect())
			ctx := farcall.OnProgress(
				farcall.WithTrace(t.Context(),
					farcall.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}),
				func(jsonrpc.Raw) {})
			var params any
			if tc.params != "" {
				params = jsonrpc.Raw(tc.params)
			}
			if err := caller.Call(ctx, "m", params, nil); err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestCancelSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		h := farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			if req.Method == "wait" {
				<-ctx.Done()
			}
			return req.Method, nil
		})
		peer := farcall.NewPeer(b, h, metaDialect())
		defer peer.Close()
		defer a.Close()
		write := func(frame string) {
			if err := a.Write([]byte(frame)); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second) // more than it takes to hand on the reading
		}
		write(`{"jsonrpc":"2.0","id":7,"method":"wait"}`)
		write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		write(`[{"jsonrpc":"2.0","id":8,"method":"wait"},{"jsonrpc":"2.0","id":9,"method":"other"}]`)
		write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
		write(`{"jsonrpc":"2.0","id":7,"method":"again"}`)
		for _, want := range []string{
			`[{"jsonrpc":"2.0","result":"other","id":9}]`,
			`{"jsonrpc":"2.0","result":"again","id":7}`,
		} {
			if got, err := a.Read(); err != nil || string(got) != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		}
	})
}

func TestInBatch(t *testing.T) {
	t.Parallel()
	h := farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		return req.InBatch(), nil
	})
	r := farcall.NewResponder(h, nil)
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`:   `{"jsonrpc":"2.0","result":false,"id":1}`,
		`[{"jsonrpc":"2.0","id":1,"method":"m"}]`: `[{"jsonrpc":"2.0","result":true,"id":1}]`,
	} {
		if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(frame), nil))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		a, b := farcall.Pipe()
		peer := farcall.NewPeer(b, h, nil)
		if err := a.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if got, err := a.Read(); err != nil || string(got) != want {
			t.Errorf("over a connection: got %s, %v, want %s", got, err, want)
		}
		_ = peer.Close()
	}
}

// What outlives its handler must not speak under the token of a later request,
// that may share memory.
func TestProgressAfterReturn(t *testing.T) {
	t.Parallel()
	kept := make(chan context.Context, 2)
	h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		kept <- ctx
		return nil, nil
	})
	a, b := farcall.Pipe()
	defer a.Close()
	peer := farcall.NewPeer(b, h, metaDialect())
	defer peer.Close()
	if err := a.Write(
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"mine"}}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(); err != nil {
		t.Fatal(err)
	}
	if err := farcall.Progress(<-kept, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("late progress: %v", err)
	}
	if err := a.Write([]byte(`{"jsonrpc":"2.0","id":2,"method":"m"}`)); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Read(); err != nil || string(got) != `{"jsonrpc":"2.0","result":null,"id":2}` {
		t.Errorf("after late progress came %s, %v", got, err)
	}
}
