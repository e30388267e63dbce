package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// outcomeMux has a method for each way in which a call can end.
func outcomeMux(waiting chan<- struct{}) *farcall.Mux {
	mux := farcall.NewMux()
	handle := func(name string, f farcall.HandlerFunc) { mux.Handle(name, f) }
	handle("raw", func(context.Context, *farcall.Request) (any, error) {
		return jsonrpc.Raw(`{"a":1}`), nil
	})
	handle("value", func(context.Context, *farcall.Request) (any, error) {
		return map[string]int{"a": 1}, nil
	})
	handle("nothing", func(context.Context, *farcall.Request) (any, error) { return nil, nil }) //nolint:nilnil // null
	handle("error", func(context.Context, *farcall.Request) (any, error) {
		return nil, jsonrpc.Errorf(-32000, "no")
	})
	handle("failure", func(context.Context, *farcall.Request) (any, error) {
		return nil, errors.New("secret")
	})
	handle("panic", func(context.Context, *farcall.Request) (any, error) { panic("boom") })
	handle("goexit", func(context.Context, *farcall.Request) (any, error) { runtime.Goexit(); return nil, nil }) //nolint:nilnil // unreachable
	handle("no JSON", func(context.Context, *farcall.Request) (any, error) {
		return make(chan int), nil
	})
	handle("wait", func(ctx context.Context, _ *farcall.Request) (any, error) {
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	farcall.HandleStream(mux, "stream", func(context.Context, struct{}) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			_ = yield(1, nil) && yield(2, nil)
		}
	})
	farcall.HandleStream(mux, "broken stream", func(context.Context, struct{}) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			_ = yield(1, nil) && yield(0, jsonrpc.Errorf(-32000, "no"))
		}
	})
	handle("tools/call", func(_ context.Context, r *farcall.Request) (any, error) {
		if strings.Contains(string(r.Params), "ask") {
			return jsonrpc.Raw(`{"resultType":"input_required"}`), nil
		}
		return jsonrpc.Raw(`{"content":[],"isError":true}`), nil
	})
	return mux
}

// What became of each call is on record, however it came and ended.
func TestOutcomes(t *testing.T) {
	name := t.TempDir() + "/audit.jsonl"
	// An outcome may be written after the caller has its answer, and a notification has none:
	// synctest.Wait lets what has begun end, so that the order of the outcomes of a method is that of
	// its calls.
	synctest.Test(t, func(t *testing.T) { outcomes(t, name) })
}

func outcomes(t *testing.T, name string) {
	t.Helper()
	c := &guard.Config{Anonymous: true}
	c.Audit.File = name
	g := newGuard(t, c, nil)
	waiting := make(chan struct{}, 1)
	ours, theirs := farcall.Pipe()
	p := farcall.NewPeer(ours, nil, nil)
	q := farcall.NewPeer(theirs, outcomeMux(waiting),
		&farcall.Options{
			Interceptors: []farcall.Interceptor{g.Interceptor(&guard.Conn{Transport: "tcp"})},
		})
	defer q.Close()
	defer p.Close()
	for _, method := range []string{
		"raw", "value", "nothing", "error", "failure", "panic", "goexit",
		"no JSON", "stream", "broken stream", "unknown",
	} {
		_ = p.Call(t.Context(), method, map[string]any{}, nil)
	}
	_ = p.Call(t.Context(), "tools/call", map[string]any{"name": "x"}, nil)
	_ = p.Call(t.Context(), "tools/call", map[string]any{"name": "ask"}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-waiting; cancel() }()
	_ = p.Call(ctx, "wait", map[string]any{}, nil)
	synctest.Wait()
	if err := p.Notify(t.Context(), "raw", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	empty := map[string]any{}
	_ = p.Batch(t.Context(), &farcall.BatchCall{Method: "raw", Params: empty},
		&farcall.BatchCall{Method: "error", Params: empty})
	synctest.Wait()
	p.Close()
	q.Close()
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	all, report := verify(t, name)
	if report.Open != 0 {
		t.Errorf("%d calls have no outcome", report.Open)
	}
	calls := map[uint64]string{}
	got := map[string]string{}
	for _, d := range all {
		if d.Decision == "allowed" {
			calls[d.Seq] = d.Call
		}
		if d.Outcome != "" {
			if calls[d.Of] == "" {
				t.Errorf("the outcome %d comes before its decision", d.Of)
			}
			size := -1
			if d.ResultBytes != nil {
				size = *d.ResultBytes
			}
			got[calls[d.Of]] += fmt.Sprint(d.Outcome, " ", d.Error, " ", d.IsError, " ", size, "; ")
		}
	}
	want := map[string]string{
		"raw": "ok 0 false 7; ok 0 false -1; ok 0 false 7; ", "value": "ok 0 false 7; ",
		"nothing": "ok 0 false 4; ",
		"error":   "error -32000 false -1; error -32000 false -1; ", "failure": "error -32603 false -1; ",
		"panic":  "error -32603 false -1; ",
		"goexit": "error -32603 false -1; ", "no JSON": "error -32603 false -1; ",
		"stream":        "ok 0 false 5; ",
		"broken stream": "error -32000 false -1; ", "unknown": "error -32601 false -1; ",
		"tools/call x":   "ok 0 true 29; ",
		"tools/call ask": "input_required 0 false 31; ", "wait": "cancelled -32800 false -1; ",
	}
	for call, w := range want {
		if got[call] != w {
			t.Errorf("%s: %q, want %q", call, got[call], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
}

// A stream over HTTP has its outcome when it has ended, also when its client has gone before.
func TestOutcomeOfAStreamOverHTTP(t *testing.T) {
	name := t.TempDir() + "/audit.jsonl"
	c := &guard.Config{Anonymous: true}
	c.Audit.File = name
	g := newGuard(t, c, nil)
	began, ended := make(chan struct{}), make(chan struct{})
	mux := farcall.NewMux()
	farcall.HandleStream(mux, "forever", func(context.Context, struct{}) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			defer close(ended)
			close(began)
			for yield(1, nil) {
			}
		}
	})
	rpc := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
	h, over := g.HTTP(httprpc.NewStreamHandler(mux, &httprpc.Options{RPC: rpc})), make(chan struct{})
	s := serve(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		h.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/stream?method=forever&params={}",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	_, _ = io.Copy(io.Discard, got.Body)
	got.Body.Close()
	<-ended
	<-over
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	all, report := verify(t, name)
	if report.Open != 0 || len(all) != 4 || all[2].Outcome == "ok" || all[2].Of != all[1].Seq {
		t.Errorf("%d open, %+v", report.Open, all)
	}
}
