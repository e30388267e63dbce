package farcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

func echoCall(params, id string) string {
	return `{"jsonrpc":"2.0","method":"echo","params":` + params + `,"id":` + id + `}`
}

// batchTests are batches and what must come back, byte for byte.
var batchTests = []struct{ name, request, want string }{
	{"one", `[` + echoCall("[1]", "1") + `]`, `[` + result("[1]", "1") + `]`},
	{
		"mixed, in order",
		` [` + echoCall("[1]", "3") +
			`,{"jsonrpc":"2.0","method":"echo"},{"jsonrpc":"2.0","method":"nope","id":2},7,` +
			`{"jsonrpc":"2.0","method":"fail","id":null},{"jsonrpc":"2.0","method":"echo",` +
			`"params":1,"id":"p"},` + echoCall("{}", "1") + `] `,
		`[` + result("[1]", "3") + `,` + refusal(-32601, "Method not found", "2") + `,` +
			invalidRequest("null") + `,` + refusal(-32603, "Internal error", "null") + `,` +
			invalidRequest(`"p"`) + `,` + result("{}", "1") + `]`,
	},
	{
		"nested arrays", `[[],[1],[` + echoCall("[1]", "1") + `]]`,
		`[` + invalidRequest("null") + `,` + invalidRequest("null") + `,` + invalidRequest("null") + `]`,
	},
	{
		"nested array beside a call", `[[1],` + echoCall("[1]", "1") + `]`,
		`[` + invalidRequest("null") + `,` + result("[1]", "1") + `]`,
	},
	{
		"the same id twice", `[` + echoCall("[1]", "1") + `,` + echoCall("[2]", "1") + `]`,
		`[` + result("[1]", "1") + `,` + invalidRequest("1") + `]`,
	},
	{
		"ids that only look the same",
		`[` + echoCall("[1]", "1") + `,` + echoCall("[2]", "1.0") + `,` + echoCall("[3]", `"1"`) + `]`,
		`[` + result("[1]", "1") + `,` + result("[2]", "1.0") + `,` + result("[3]", `"1"`) + `]`,
	},
	{
		"the id null twice", `[` + echoCall("[1]", "null") + `,` + echoCall("[2]", "null") + `]`,
		`[` + result("[1]", "null") + `,` + result("[2]", "null") + `]`,
	},
	{
		"notifications only",
		`[{"jsonrpc":"2.0","method":"echo"},{"jsonrpc":"2.0","method":"nope"},{"jsonrpc":"2.0",` +
			`"method":"fail"}]`, ``,
	},
	{"answers only", `[{"jsonrpc":"2.0","result":1,"id":1},{"jsonrpc":"2.0","error":{},"id":1}]`, ``},
	{
		"an answer beside a call", `[{"jsonrpc":"2.0","result":1,"id":1},` + echoCall("[2]", "1") + `]`,
		`[` + result("[2]", "1") + `]`,
	},
	{"broken", `[` + echoCall("[1]", "1") + `,{]`, notJSON},
	{"trailing comma", `[` + echoCall("[1]", "1") + `,]`, notJSON},
}

func TestBatchOnTheWire(t *testing.T) {
	framings(t, func(t *testing.T, f stream.Framing) {
		w := newWire(t, f, wireHandler(), nil)
		for _, test := range batchTests {
			w.write(test.request)
			if test.want != "" {
				if got := w.read(); got != test.want {
					t.Errorf("%s: %s\n got %s\nwant %s", test.name, test.request, got, test.want)
				}
			}
			w.ping()
		}
	})
	t.Run("responder", func(t *testing.T) {
		r := farcall.NewResponder(wireHandler(), nil)
		for _, test := range batchTests {
			if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(test.request), nil))); got !=
				test.want {
				t.Errorf("%s: %s\n got %s\nwant %s", test.name, test.request, got, test.want)
			}
		}
	})
}

func batchOf(n int) (request, answer string) {
	var q, a strings.Builder
	for i := range n {
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		q.WriteByte(sep)
		a.WriteByte(sep)
		q.WriteString(echoCall(fmt.Sprintf("[%d]", i), fmt.Sprint(n-i)))
		a.WriteString(result(fmt.Sprintf("[%d]", i), fmt.Sprint(n-i)))
	}
	return q.String() + "]", a.String() + "]"
}

func TestBatchOf10000(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	r := farcall.NewResponder(wireHandler(), nil)
	request, want := batchOf(10_000)
	w.write(request)
	w.expect(want)
	if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(request), nil))); got != want {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("responder: %d bytes, want %d; they differ at %d: %.300s", len(got), len(want), at,
			got[max(0, at-100):])
	}
	request, _ = batchOf(10_001)
	w.write(request)
	want = `{"jsonrpc":"2.0","error":{"code":-32012,"message":"Batch too large",` +
		`"data":{"maxSize":10000,"unit":"elements"}},"id":null}`
	w.expect(want)
	w.ping()
	if got := string(r.Respond(t.Context(), nil, []byte(request), nil)); got != want {
		t.Errorf("responder: got %.300s", got)
	}
}

// A batch over the limit of the other end gets one error, and so fails all of
// its calls, also over HTTP.
func TestBatchOverTheLimit(t *testing.T) {
	o := &farcall.Options{MaxBatch: 3}
	a, b := tcpPair(t, stream.NDJSON)
	pa, _ := connect(t, a, b, nil, wireHandler(), nil, o)
	for name, p := range map[string]*farcall.Peer{
		"peer": pa,
		"http": httpClient(t, wireHandler(), o),
	} {
		for n := 2; n < 6; n++ {
			calls := make([]*farcall.BatchCall, n)
			for i := range calls {
				calls[i] = &farcall.BatchCall{Method: "echo"}
			}
			if err := p.Batch(t.Context(), calls...); err != nil {
				t.Errorf("%s: %d calls: %v", name, n, err)
			}
			for i, c := range calls {
				if n <= 3 && c.Err != nil || n > 3 && !errors.Is(c.Err, jsonrpc.TooLarge) {
					t.Errorf("%s: call %d of %d: %v", name, i, n, c.Err)
				}
			}
		}
	}
}

// httpClient serves h by HTTP and returns a client of it.
func httpClient(t *testing.T, h farcall.Handler, o *farcall.Options) *farcall.Peer {
	t.Helper()
	server := httptest.NewServer(httprpc.NewHandler(h, &httprpc.Options{RPC: o}))
	x, err := httprpc.Dial(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := farcall.NewClient(x, nil, nil)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return p
}

// The elements run at the same time and their answers keep their order.
func TestBatchIsConcurrent(t *testing.T) {
	wait := farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		var seconds []int
		if err := req.Bind(&seconds); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(seconds[0]) * time.Second):
		}
		return req.Params, ctx.Err()
	})
	request := `[` + echoCall("[9]", "1") + `,` + echoCall("[1]", "2") + `,` +
		echoCall("[5]", "3") + `]`
	want := `[` + result("[9]", "1") + `,` + result("[1]", "2") + `,` + result("[5]", "3") + `]`
	t.Run("peer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			far, near := farcall.Pipe()
			p := farcall.NewPeer(near, wait, nil)
			start := time.Now()
			if err := far.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			got, err := far.Read()
			if err != nil || string(got) != want || time.Since(start) != 9*time.Second {
				t.Errorf("got %s, %v after %v", got, err, time.Since(start))
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("responder", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			got := farcall.NewResponder(wait, nil).Respond(t.Context(), nil, []byte(request), nil)
			if string(got) != want || time.Since(start) != 9*time.Second {
				t.Errorf("got %s after %v", got, time.Since(start))
			}
		})
	})
}

func TestDuplicateIDInFlight(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, nil)
	for _, id := range []string{`7`, `"a"`, `1e400`} {
		w.write(`{"jsonrpc":"2.0","method":"wait","id":` + id + `}`)
		<-h.started
		w.write(echoCall("[1]", id))
		w.expect(invalidRequest(id))
		w.write(`[` + echoCall("[1]", "1") + `,` + echoCall("[2]", id) + `]`)
		w.expect(`[` + result("[1]", "1") + `,` + invalidRequest(id) + `]`)
	}
	w.write(`{"jsonrpc":"2.0","method":"echo","id":7.0}`) // not the same
	w.expect(result("null", "7.0"))
	close(h.release)
	var got []string
	for range 3 {
		got = append(got, w.read())
	}
	slices.Sort(got)
	if want := []string{
		result(`"held"`, `"a"`), result(`"held"`, `1e400`),
		result(`"held"`, `7`),
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	w.write(echoCall("[1]", "7")) // free again
	w.expect(result("[1]", "7"))
}

// Ten concurrent calls in one batch, collated by id, whatever the order and the
// number of frames of the answers.
func TestBatchIsCollatedByID(t *testing.T) {
	w := newWire(t, stream.NDJSON, nil, nil)
	results := make([]int, 10)
	calls := []*farcall.BatchCall{{Method: "log", Notify: true}}
	for i := range results {
		calls = append(calls, &farcall.BatchCall{Method: "ask", Params: []int{i}, Result: &results[i]})
	}
	done := make(chan error, 1)
	go func() { done <- w.p.Batch(t.Context(), calls...) }()
	var sent []struct {
		ID     jsonrpc.Raw
		Params []int
	}
	if err := json.Unmarshal([]byte(w.read()), &sent); err != nil || len(sent) != 11 ||
		sent[0].ID != nil {
		t.Fatalf("sent %v, %v", sent, err)
	}
	var answers []string
	for _, s := range sent[1:] {
		answers = append(answers, result(fmt.Sprint(10*s.Params[0]), string(s.ID)))
	}
	slices.Reverse(answers)
	answers[1] = refusal(-32601, "Method not found", string(sent[9].ID))
	w.write(answers[0], `[`+strings.Join(answers[1:6], ",")+`]`,
		`[`+strings.Join(answers[6:], ",")+`]`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i, c := range calls[1:] {
		if i == 8 {
			if !errors.Is(c.Err, jsonrpc.MethodNotFound) {
				t.Errorf("call 8: %v", c.Err)
			}
		} else if c.Err != nil || results[i] != 10*i {
			t.Errorf("call %d: got %d, %v", i, results[i], c.Err)
		}
	}
}

func TestBatchCalls(t *testing.T) {
	var noted atomic.Int64
	h := handle(map[string]farcall.HandlerFunc{
		"echo": echo,
		"fail": func(context.Context, *farcall.Request) (any, error) {
			return nil, jsonrpc.Errorf(7, "no")
		},
		"note": func(context.Context, *farcall.Request) (any, error) { noted.Add(1); return nil, nil },
	})
	run := func(t *testing.T, p *farcall.Peer) {
		var wg sync.WaitGroup
		for g := range 10 {
			wg.Go(func() {
				var raw jsonrpc.Raw
				var numbers, wrong []int
				calls := []*farcall.BatchCall{
					{Method: "echo", Params: jsonrpc.Raw(`{"a": 1.0}`), Result: &raw},
					{Method: "note", Notify: true},
					{Method: "echo", Params: []int{g}, Result: &numbers},
					{Method: "fail"},
					{Method: "nope"},
					{Method: "echo", Params: jsonrpc.Raw(`["x"]`), Result: &wrong},
					{Method: "echo", Params: jsonrpc.Raw(`["x"]`)},
				}
				if err := p.Batch(t.Context(), calls...); err != nil {
					t.Error(err)
				}
				if string(raw) != `{"a": 1.0}` || !slices.Equal(numbers, []int{g}) {
					t.Errorf("got %s and %v", raw, numbers)
				}
				for i, want := range []error{nil, nil, nil, jsonrpc.Code(7), jsonrpc.MethodNotFound, nil, nil} {
					if i == 5 {
						if calls[i].Err == nil || !strings.Contains(calls[i].Err.Error(), "does not fit *[]int") {
							t.Errorf("call %d: %v", i, calls[i].Err)
						}
					} else if !errors.Is(calls[i].Err, want) {
						t.Errorf("call %d: %v, want %v", i, calls[i].Err, want)
					}
				}
			})
		}
		wg.Wait()
		if err := p.Batch(t.Context()); err == nil {
			t.Error("an empty batch was sent")
		}
		if err := p.Batch(t.Context(), &farcall.BatchCall{Method: "echo", Params: 1}); err == nil {
			t.Error("scalar params were sent")
		}
		if err := p.Batch(t.Context(), &farcall.BatchCall{Method: "note", Notify: true},
			&farcall.BatchCall{Method: "note", Notify: true}); err != nil {
			t.Errorf("notifications only: %v", err)
		}
		if err := p.Call(t.Context(), "echo", nil, nil); err != nil { // behind the notifications
			t.Error(err)
		}
	}
	each(t, func(t *testing.T, a, b farcall.Transport) {
		pa, _ := connect(t, a, b, nil, h, nil, nil)
		run(t, pa)
	})
	t.Run("http", func(t *testing.T) {
		noted.Store(0)
		run(t, httpClient(t, h, nil))
		if noted.Load() != 12 {
			t.Errorf("%d notifications arrived, want 12", noted.Load())
		}
	})
}

func TestBatchContext(t *testing.T) {
	for name, client := range map[string]func(t *testing.T, h farcall.Handler) *farcall.Peer{
		"peer": func(t *testing.T, h farcall.Handler) *farcall.Peer {
			a, b := tcpPair(t, stream.NDJSON)
			p, _ := connect(t, a, b, nil, h, nil, nil)
			return p
		},
		"http": func(t *testing.T, h farcall.Handler) *farcall.Peer { return httpClient(t, h, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHold()
			p := client(t, h)
			ctx, cancel := context.WithCancel(t.Context())
			calls := []*farcall.BatchCall{{Method: "wait"}, {Method: "wait"}}
			done := make(chan error, 1)
			go func() { done <- p.Batch(ctx, calls...) }()
			<-h.started
			<-h.started
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			for i, c := range calls {
				if !errors.Is(c.Err, context.Canceled) {
					t.Errorf("call %d: %v", i, c.Err)
				}
			}
		})
	}
}

// More elements than workers call back and wait for each other: who waits for a
// nested call takes no worker.
func TestBatchElementsCallBack(t *testing.T) {
	const n = 300
	each(t, func(t *testing.T, a, b farcall.Transport) {
		var met atomic.Int64
		all := make(chan struct{})
		meet := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			if met.Add(1) == n {
				close(all)
			}
			select {
			case <-all:
				return 1, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		back := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return farcall.Call[int](ctx, farcall.CallerFrom(ctx), "meet", nil)
		})
		pa, _ := connect(t, a, b, meet, back, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		calls := make([]*farcall.BatchCall, n)
		for i := range calls {
			calls[i] = &farcall.BatchCall{Method: "back"}
		}
		if err := pa.Batch(ctx, calls...); err != nil {
			t.Fatalf("%v; %d of %d called back", err, met.Load(), n)
		}
		for i, c := range calls {
			if c.Err != nil {
				t.Fatalf("call %d: %v", i, c.Err)
			}
		}
	})
}
