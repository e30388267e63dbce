package capture_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// A hop is a client, something between, and a server. The recorder sees the calls of the one
// between, as in a gateway: those of the client, and those to the server.
type hop struct {
	client *farcall.Peer
	end    func()
}

func newHop(tb testing.TB, r *capture.Recorder) *hop {
	tb.Helper()
	mux := farcall.NewMux()
	add := func(_ context.Context, p [2]int) (int, error) { return p[0] + p[1], nil }
	farcall.Handle(mux, "add", add)
	mux.Handle("fail", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, &jsonrpc.Error{Code: -32123, Message: "no"}
	}))
	mux.Handle("wait", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	a, b := farcall.Pipe()
	server := farcall.NewPeer(a, mux, nil)
	up := farcall.NewPeer(b, nil, &farcall.Options{
		Transport: "stdio", Conn: "up-1",
		Observer: r.Observer().Tag(func(c *observe.Call) { c.Upstream = "calc" }),
	})
	between := farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if req.IsNotification() {
			return nil, up.Notify(ctx, req.Method, req.Params)
		}
		if req.Method == "wait" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		var raw jsonrpc.Raw
		err := up.Call(ctx, req.Method, req.Params, &raw)
		return raw, farcall.PassOn(err)
	})
	c, d := farcall.Pipe()
	front := farcall.NewPeer(c, between, &farcall.Options{
		Transport: "tcp", Conn: "tcp-1", Observer: r.Observer(),
	})
	client := farcall.NewPeer(d, nil, nil)
	return &hop{client, func() {
		for _, p := range []*farcall.Peer{client, front, up, server} {
			_ = p.Close()
		}
	}}
}

// Each call of a hop has both sides in the capture: the one names the other as its parent.
func TestObserverHop(t *testing.T) {
	t.Parallel()
	for _, envelopes := range []bool{false, true} {
		data := record(t, &capture.Options{Raw: true, Envelopes: envelopes}, func(r *capture.Recorder) {
			h := newHop(t, r)
			defer h.end()
			for i := range 20 {
				var sum int
				if err := h.client.Call(t.Context(), "add", [2]int{i, 1}, &sum); err != nil || sum != i+1 {
					t.Fatal(sum, err)
				}
			}
			if err := h.client.Call(t.Context(), "fail", nil, nil); err == nil {
				t.Fatal("it did not fail")
			}
			if err := h.client.Call(t.Context(), "wait", nil, nil); err == nil {
				t.Fatal("it did not fail")
			}
		})
		all := read(t, data)
		conns := map[uint64]string{}
		for _, c := range ofType(all, "conn") {
			conns[c.Conn] = c.Transport + " " + c.Label + " " + c.Upstream
		}
		frames := ofType(all, "frame")
		bySeq, byCall := map[uint64]*capture.Record{}, map[uint64]*capture.Record{}
		for _, f := range frames {
			bySeq[f.Seq] = f
			if f.Kind == "request" {
				byCall[f.Call] = f
			}
			if f.HasData() == envelopes {
				t.Fatalf("envelopes=%v: %+v", envelopes, f)
			}
		}
		requests, answers := 0, 0
		for _, f := range frames {
			switch {
			case f.Kind == "response":
				answers++
				req := bySeq[f.Ref]
				if req == nil || req.Call != f.Call || req.ID != f.ID || f.Method != req.Method ||
					f.Duration <= 0 || f.Dir != "down" || f.Size == 0 {
					t.Errorf("answer %+v to %+v", f, req)
				}
				if (f.Code == -32123) != (f.Method == "fail") {
					t.Errorf("the code of %s is %d", f.Method, f.Code)
				}
			case conns[f.Conn] == "stdio up-1 calc":
				requests++
				parent := byCall[f.Parent]
				if parent == nil || conns[parent.Conn] != "tcp tcp-1 " || parent.Method != f.Method ||
					f.Upstream != "calc" || f.Dir != "up" || f.Size == 0 {
					t.Errorf("the parent of %+v is %+v", f, parent)
				}
				if !envelopes && f.Method == "add" &&
					after(text(t, f), `"params"`) != after(text(t, parent), `"params"`) {
					t.Errorf("%s was sent, and %s arrived", text(t, parent), text(t, f))
				}
			case conns[f.Conn] != "tcp tcp-1 " || f.Parent != 0:
				t.Errorf("%s: %+v", conns[f.Conn], f)
			}
		}
		if requests < 21 || answers < 42 {
			t.Errorf("envelopes=%v: %d requests to the server and %d answers", envelopes, requests, answers)
		}
		// The call that was cancelled before its answer has an end all the same, unless it was not sent.
		if ended := ofType(all, "call"); requests == 22 && (len(ended) != 1 || ended[0].Code == 0 ||
			ended[0].Method != "wait" || ended[0].Ref == 0) {
			t.Errorf("%d ends without an answer: %+v", len(ended), ended)
		}
	}
}

func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return strings.TrimRight(strings.SplitN(rest, `,"id"`, 2)[0], "}")
}

// What no handler sees is in the capture, and causes a dump where refusals do.
func TestObserverRefusal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := &capture.Options{Raw: true, Dir: dir, DumpOn: []string{"refusal"}}
	data := record(t, options, func(r *capture.Recorder) {
		o := r.Observer()
		c := &observe.Call{
			Transport: "tcp", Method: "m", Began: time.Now(),
			Code: jsonrpc.Overloaded, Err: errors.New("x"), BytesIn: 2, BytesOut: 4,
			Request: jsonrpc.Raw("{}"), Response: jsonrpc.Raw("[{}]"),
		}
		o.Refuse(t.Context(), c)
		o.Bad(observe.Frame{Transport: "tcp", Data: []byte("nonsense")}, "syntax")
	})
	frames := ofType(read(t, data), "frame")
	if len(frames) != 3 || frames[1].Outcome != "refused" || frames[2].Problem != "syntax" ||
		frames[2].Kind != "bad" {
		t.Errorf("%d frames: %+v", len(frames), frames)
	}
	if n := len(dumps(t, dir)); n != 1 {
		t.Errorf("%d dumps", n)
	}
}

// Secrets in names that others choose are in no envelope.
func TestObserverSecrets(t *testing.T) {
	t.Parallel()
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	data := record(t, &capture.Options{Envelopes: true}, func(r *capture.Recorder) {
		o := r.Observer()
		c := &observe.Call{
			Method: secret, ID: jsonrpc.StringID(secret), Tool: secret, Principal: secret,
			Began: time.Now(),
		}
		c.BytesIn, c.Request = 100, jsonrpc.Raw(`{"id":"`+secret+`","method":"`+secret+
			`","params":{"name":"`+secret+`"}}`)
		ctx := o.Start(t.Context(), c)
		c.BytesOut = 10
		o.End(ctx, c)
	})
	if strings.Contains(string(data), secret) {
		t.Errorf("it has the secret:\n%s", data)
	}
	if all := ofType(read(t, data), "frame"); len(all) != 2 || all[1].Ref != all[0].Seq {
		t.Errorf("%+v", all)
	}
}

// The filter selects what is written; an answer has the request that was left out.
func TestFilterKeepsAnswers(t *testing.T) {
	t.Parallel()
	f, err := capture.ParseFilter("error")
	if err != nil {
		t.Fatal(err)
	}
	data := record(t, &capture.Options{Raw: true, Filter: f}, func(r *capture.Recorder) {
		r.Frame(1, true, []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
		r.Frame(1, false, []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}`))
	})
	all := ofType(read(t, data), "frame")
	if len(all) != 1 || all[0].Method != "m" || all[0].Ref == 0 {
		t.Errorf("%+v", all)
	}
}

func dumps(tb testing.TB, dir string) []string {
	tb.Helper()
	names := listDir(tb, dir)
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, "recorder-") })
}

func listDir(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
