package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

type countTo struct {
	To   int `json:"to"`
	Fail int `json:"fail,omitzero"` // the value that an error replaces
}

// streamMux has a method that counts, one that never ends, and one that reports
// progress. What a consumer broke off is in stopped.
func streamMux() (m *farcall.Mux, stopped chan error) {
	m, stopped = farcall.NewMux(), make(chan error, 1)
	farcall.HandleStream(m, "count", func(_ context.Context, p countTo) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range p.To {
				if p.Fail > 0 && i == p.Fail {
					yield(0, jsonrpc.Errorf(1001, "too far"))
					return
				}
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	farcall.HandleStream(m, "forever", func(ctx context.Context, _ struct{}) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range 3 {
				if !yield(i, nil) {
					break
				}
			}
			<-ctx.Done()
			stopped <- ctx.Err()
		}
	})
	farcall.Handle(m, "work", func(ctx context.Context, n int) (string, error) {
		for i := range n {
			if err := farcall.Progress(ctx, map[string]int{"step": i}); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	return m, stopped
}

// eachCaller runs f with a caller of h over each kind of transport.
func eachCaller(t *testing.T, h func() farcall.Handler, f func(t *testing.T, p *farcall.Peer)) {
	each(t, func(t *testing.T, a, b farcall.Transport) {
		p, _ := connect(t, a, b, nil, h(), nil, nil)
		f(t, p)
	})
	t.Run("http", func(t *testing.T) { f(t, httpClient(t, h(), nil)) })
}

// collect returns the values of a stream and its error.
func collect[T any](s iter.Seq2[T, error]) (all []T, err error) {
	for v, err := range s {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestStream(t *testing.T) {
	mux := func() farcall.Handler { m, _ := streamMux(); return m }
	eachCaller(t, mux, func(t *testing.T, p *farcall.Peer) {
		for _, n := range []int{0, 1, 1000} {
			got, err := collect(farcall.Stream[int](t.Context(), p, "count", countTo{To: n}))
			if err != nil || !slices.Equal(got, upTo(n)) {
				t.Errorf("%d: got %d values, %v", n, len(got), err)
			}
		}
		got, err := collect(farcall.Stream[int](t.Context(), p, "count", countTo{To: 10, Fail: 4}))
		if !errors.Is(err, jsonrpc.Code(1001)) || !slices.Equal(got, upTo(4)) {
			t.Errorf("an error in the middle: got %v, %v", got, err)
		}
		if got, err := collect(farcall.Stream[int](t.Context(), p, "nope", nil)); !errors.Is(err,
			jsonrpc.MethodNotFound) || len(got) > 0 {
			t.Errorf("no such method: got %v, %v", got, err)
		}
		if got, err := collect(
			farcall.Stream[string](t.Context(), p, "count", countTo{To: 3})); err == nil || len(got) > 0 {
			t.Errorf("values of another type: got %v, %v", got, err)
		}
		// Without progress the answer is the array of all values.
		if got, err := farcall.Call[[]int](t.Context(), p, "count", countTo{To: 1000}); err != nil ||
			!slices.Equal(got, upTo(1000)) {
			t.Errorf("call: got %d values, %v", len(got), err)
		}
		// Unrequested progress is dropped.
		if got, err := farcall.Call[string](t.Context(), p, "work", []int{100}); err != nil ||
			got != "done" {
			t.Errorf("work: got %q, %v", got, err)
		}
	})
}

func TestStreamBreakingOffCancels(t *testing.T) {
	var stopped chan error
	mux := func() farcall.Handler { m, s := streamMux(); stopped = s; return m }
	wait := func(t *testing.T) {
		t.Helper()
		select {
		case err := <-stopped:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the handler's context ended with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the handler goes on")
		}
	}
	eachCaller(t, mux, func(t *testing.T, p *farcall.Peer) {
		for v, err := range farcall.Stream[int](t.Context(), p, "forever", nil) {
			if err != nil {
				t.Fatal(err)
			}
			if v == 2 {
				break
			}
		}
		wait(t)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range farcall.Stream[int](ctx, p, "forever", nil) {
			if err != nil && (n != 3 || !errors.Is(err, context.Canceled)) {
				t.Errorf("after %d values: %v", n, err)
			}
			if n++; n == 3 {
				cancel()
			}
		}
		cancel()
		wait(t)
		if n != 4 {
			t.Errorf("got %d pairs, want 3 values and an error", n)
		}
		if err := p.Call(t.Context(), "count", countTo{To: 1}, nil); err != nil {
			t.Error(err)
		}
	})
}

// A consumer that is slower than the producer gets everything, and does not
// keep other calls of the connection waiting.
func TestStreamSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		m, _ := streamMux()
		p, _ := connect(t, a, b, nil, m, nil, nil)
		var got []int
		for v, err := range farcall.Stream[int](t.Context(), p, "count", countTo{To: 1000}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, v)
			<-time.After(time.Millisecond)
			if v%100 == 0 {
				if err := p.Call(t.Context(), "work", []int{1}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.Equal(got, upTo(1000)) {
			t.Errorf("got %d values", len(got))
		}
	})
}

// What a consumer does not take is bounded, also where nothing slows the producer: it does not
// count, and another call keeps this end reading.
func TestStreamThatIsNotTaken(t *testing.T) {
	m := farcall.NewMux()
	farcall.HandleStream(m, "big", func(context.Context, struct{}) iter.Seq2[string, error] {
		mega := strings.Repeat("x", 1<<20)
		return func(yield func(string, error) bool) {
			for range 70 {
				if !yield(mega, nil) {
					return
				}
			}
		}
	})
	farcall.Handle(m, "wait", func(ctx context.Context, _ struct{}) (struct{}, error) {
		<-ctx.Done()
		return struct{}{}, ctx.Err()
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, m, nil, &farcall.Options{Dialect: withoutCredit()})
		waiting, leave := context.WithCancel(t.Context())
		defer leave()
		go func() { _ = p.Call(waiting, "wait", nil, nil) }()
		n := 0
		var last error
		for _, err := range farcall.Stream[jsonrpc.Raw](t.Context(), p, "big", nil) {
			if last = err; err != nil {
				break
			}
			n++
			synctest.Wait() // until all have arrived
		}
		if last == nil || !strings.Contains(last.Error(), "were not taken") || n == 0 || n > 65 {
			t.Errorf("got %d values and %v", n, last)
		}
		if err := p.Call(t.Context(), "rpc.discover", nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// The forms on the wire: progress only for who asks for it, in both dialects.
func TestProgressOnTheWire(t *testing.T) {
	m, _ := streamMux()
	w := newWire(t, stream.NDJSON, m, nil)
	progress := func(token, value string) string {
		return `{"jsonrpc":"2.0","method":"$/progress","params":{"token":` + token + `,"value":` +
			value + `}}`
	}
	w.write(`{"jsonrpc":"2.0","method":"work","params":[2],"id":1}`) // not asked
	w.expect(result(`"done"`, "1"))
	w.write(`{"jsonrpc":"2.0","method":"work","params":[2],"id":1,"progressToken":"t\u0041"}`)
	w.expect(progress(`"t\u0041"`, `{"step":0}`))
	w.expect(progress(`"t\u0041"`, `{"step":1}`))
	w.expect(result(`"done"`, "1"))
	w.write(`{"jsonrpc":"2.0","method":"count","params":{"to":2},"id":1}`)
	w.expect(result(`[0,1]`, "1"))
	w.write(`{"jsonrpc":"2.0","method":"count","params":{"to":2},"progressToken":7,"id":1}`)
	w.expect(progress("7", "0"))
	w.expect(progress("7", "1"))
	w.expect(result("null", "1"))
	w.write(`{"jsonrpc":"2.0","method":"count","params":{"to":9,"fail":1},"progressToken":7,"id":1}`)
	w.expect(progress("7", "0"))
	w.expect(refusal(1001, "too far", "1"))

	mcp := newWire(t, stream.NDJSON,
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return "done", farcall.Progress(ctx, map[string]int{"progress": 1})
		}), &farcall.Options{Dialect: farcall.Dialect{
			CancelMethod: "notifications/cancelled", CancelID: "requestId",
			ProgressMethod: "notifications/progress", ProgressToken: "progressToken",
		}})
	mcp.write(`{"jsonrpc":"2.0","method":"work","params":{"_meta":{"progressToken":5}},"id":1}`)
	mcp.expect(
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`)
	mcp.expect(result(`"done"`, "1"))
	if err := farcall.Progress(t.Context(), 1); err != nil {
		t.Errorf("outside a handler: %v", err)
	}
}

// A peer that knows nothing of progress answers with an array: the same values.
// Progress of no call, or after its end, is dropped.
func TestStreamFromForeignPeer(t *testing.T) {
	w := newWire(t, stream.NDJSON, nil, nil)
	type outcome struct {
		all []int
		err error
	}
	start := func() chan outcome {
		done := make(chan outcome, 1)
		go func() {
			all, err := collect(farcall.Stream[int](t.Context(), w.p, "count", nil))
			done <- outcome{all, err}
		}()
		return done
	}
	done := start()
	w.expect(`{"jsonrpc":"2.0","method":"count","id":1,"progressToken":1,"progressCredit":1048576}`)
	w.write(result("[1,2,3]", "1"))
	if got := <-done; got.err != nil || !slices.Equal(got.all, []int{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	done = start()
	w.expect(`{"jsonrpc":"2.0","method":"count","id":2,"progressToken":2,"progressCredit":1048576}`)
	for _, params := range []string{
		`{"token":1,"value":7}`, `{"token":2,"value":8}`,
		`{"token":"2","value":7}`, `{"token":99,"value":7}`, `{"value":7}`, `[]`,
	} {
		w.write(`{"jsonrpc":"2.0","method":"$/progress","params":` + params + `}`)
	}
	w.write(result("null", "2"),
		`{"jsonrpc":"2.0","method":"$/progress","params":{"token":2,"value":9}}`)
	if got := <-done; got.err != nil || !slices.Equal(got.all, []int{8}) {
		t.Errorf("got %v", got)
	}
	done = start()
	w.read()
	w.write(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":3,"value":8}}`)
	if err := w.c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-done; !errors.Is(got.err, farcall.ErrClosed) || !slices.Equal(got.all, []int{8}) {
		t.Errorf("got %v", got)
	}
}

// The answer is an event stream only where something comes before it.
func TestStreamOverHTTP(t *testing.T) {
	m, _ := streamMux()
	server := httptest.NewServer(httprpc.NewHandler(m, nil))
	defer server.Close()
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","method":"count","params":{"to":2},` +
			`"progressToken":7,"id":1}`: "text/event-stream",
		`{"jsonrpc":"2.0","method":"count",` +
			`"params":{"to":2},"id":1}`: "application/json",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// A trace context survives forwarding: NDJSON, then HTTP, then NDJSON.
func TestTraceIsForwarded(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	last := farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		return []string{farcall.TraceFrom(ctx).Parent, string(req.Member("traceparent"))}, nil
	})
	forward := func(to farcall.Caller) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			return farcall.Call[jsonrpc.Raw](ctx, to, req.Method, req.Params)
		})
	}
	a, b := tcpPair(t, stream.NDJSON)
	third, _ := connect(t, a, b, nil, last, nil, nil)
	second := httpClient(t, forward(third), nil)
	a, b = tcpPair(t, stream.NDJSON)
	first, _ := connect(t, a, b, nil, forward(second), nil, nil)
	for _, want := range []string{trace, ""} {
		ctx := t.Context()
		member := ""
		if want != "" {
			ctx, member = farcall.WithTrace(ctx, farcall.Trace{Parent: want}), fmt.Sprintf("%q", want)
		}
		got, err := farcall.Call[[]string](ctx, first, "m", nil)
		if err != nil || !slices.Equal(got, []string{want, member}) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	w := newWire(t, stream.NDJSON,
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return farcall.TraceFrom(ctx).Parent, nil
		}), nil)
	if err := w.p.Notify(farcall.WithTrace(t.Context(), farcall.Trace{Parent: trace}), "tell",
		[]int{1}); err != nil {
		t.Fatal(err)
	}
	w.expect(`{"jsonrpc":"2.0","method":"tell","params":[1],"traceparent":"` + trace + `"}`)
	w.write(`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"traceparent":"` + trace + `"}},"id":1}`)
	w.expect(result(`"`+trace+`"`, "1"))
}
