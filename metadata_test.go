package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// told returns the metadata of a call.
func told(ctx context.Context, _ *farcall.Request) (any, error) {
	return farcall.MetadataFrom(ctx), nil
}

// Metadata arrives over every transport, single and in a batch, whatever its characters, and only
// when there is some.
func TestMetadata(t *testing.T) {
	eachCaller(t, func() farcall.Handler {
		return farcall.HandlerFunc(told)
	}, func(t *testing.T, p *farcall.Peer) {
		const odd = "x \"y\" \\ ü\n\x00"
		want := map[string]string{"tenant": "a", "päth": odd, "": "empty"}
		ctx := farcall.WithMetadata(farcall.WithMetadata(t.Context(), "tenant", "a"), "", "empty")
		ctx = farcall.WithMetadata(ctx, "päth", odd)
		for _, params := range []any{nil, jsonrpc.Raw("[1]"), jsonrpc.Raw(`{"_meta":{"x":1}}`)} {
			got, err := farcall.Call[map[string]string](ctx, p, "m", params)
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("%v: got %q, %v", params, got, err)
			}
		}
		var got map[string]string
		if err := p.Batch(ctx, &farcall.BatchCall{Method: "m", Result: &got}); err != nil ||
			!maps.Equal(got, want) {
			t.Errorf("in a batch: got %q, %v", got, err)
		}
		if got, err := farcall.Call[map[string]string](t.Context(), p, "m", nil); err != nil ||
			len(got) > 0 {
			t.Errorf("without: %q, %v", got, err)
		}
		err := p.Call(farcall.WithMetadata(ctx, "large", strings.Repeat("x", 8<<10)), "m", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "at most 8192 are carried") {
			t.Errorf("too much: %v", err)
		}
	})
}

// Metadata on the wire, in both places; what is not as it should be is left out.
func TestMetadataOnTheWire(t *testing.T) {
	w := newWire(t, stream.NDJSON, farcall.HandlerFunc(told), nil)
	if err := w.p.Notify(farcall.WithMetadata(t.Context(), "a", "b"), "tell", []int{1}); err != nil {
		t.Fatal(err)
	}
	w.expect(`{"jsonrpc":"2.0","method":"tell","params":[1],"metadata":{"a":"b"}}`)
	for extra, want := range map[string]string{
		`"metadata":{"a":"b"}`:                                  `{"a":"b"}`,
		`"params":{"_meta":{"metadata":{"a":"b"}}}`:             `{"a":"b"}`,
		`"metadata":{"a":1,"b":null,"c":["x"],"d":"\u00e9"}`:    `{"d":"é"}`,
		`"metadata":"a"`:                                        "{}",
		`"metadata":[1]`:                                        "{}",
		`"metadata":null`:                                       "{}",
		`"metadata":{}`:                                         "{}",
		`"metadata":{"a":"` + strings.Repeat("x", 8<<10) + `"}`: "{}",
	} {
		w.write(`{"jsonrpc":"2.0","method":"m","id":1,` + extra + `}`)
		w.expect(result(want, "1"))
	}
	m := newWire(t, stream.NDJSON, nil, metaDialect())
	if err := m.p.Notify(farcall.WithMetadata(t.Context(), "a", "b"), "tell", nil); err != nil {
		t.Fatal(err)
	}
	m.expect(`{"jsonrpc":"2.0","method":"tell","params":{"_meta":{"metadata":{"a":"b"}}}}`)
}

// What came with a call does not go out with the calls of its handler.
func TestMetadataIsNotPassedOn(t *testing.T) {
	a, b := farcall.Pipe()
	last, _ := connect(t, a, b, nil, farcall.HandlerFunc(told), nil, nil)
	a, b = farcall.Pipe()
	first, _ := connect(t, a, b, nil,
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return farcall.Call[jsonrpc.Raw](ctx, last, "m", nil)
		}), nil, nil)
	got, err := farcall.Call[map[string]string](farcall.WithMetadata(t.Context(), "secret", "x"),
		first, "m", nil)
	if err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
}

// timeouts is the dialect of LSP with deadlines.
func timeouts() *farcall.Options {
	return &farcall.Options{Dialect: farcall.Dialect{TimeoutMember: "timeoutMs"}}
}

// The deadline of a call is that of its handler, where both ends have it, and the shorter one where
// the server has its own.
func TestDeadlineOnTheWire(t *testing.T) {
	left := func(ctx context.Context, _ *farcall.Request) (any, error) {
		if d, ok := ctx.Deadline(); ok {
			return time.Until(d).String(), nil
		}
		return "none", nil
	}
	for name, test := range map[string]struct {
		calling, serving *farcall.Options
		own              time.Duration
		want             string
	}{
		"both":            {timeouts(), timeouts(), 0, "1.5s"},
		"caller without":  {nil, timeouts(), 0, "none"},
		"handler without": {timeouts(), nil, 0, "none"},
		"its own":         {timeouts(), timeouts(), time.Second, "1s"},
		"its own, longer": {timeouts(), timeouts(), time.Minute, "1.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := farcall.HandlerFunc(left)
				if test.own > 0 {
					h = func(ctx context.Context, req *farcall.Request) (any, error) {
						ctx, cancel := context.WithTimeout(ctx, test.own)
						defer cancel()
						return left(ctx, req)
					}
				}
				a, b := farcall.Pipe()
				p, _ := connect(t, a, b, nil, h, test.calling, test.serving)
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				if got, err := farcall.Call[string](ctx, p, "m", nil); err != nil || got != test.want {
					t.Errorf("got %q, %v, want %q", got, err, test.want)
				}
				if got, err := farcall.Call[string](t.Context(), p, "m", nil); err != nil ||
					test.own == 0 && got != "none" {
					t.Errorf("without a deadline: %q, %v", got, err)
				}
			})
		})
	}
}

// A handler ends with the deadline of a caller that does not cancel.
func TestDeadlineEndsTheHandler(t *testing.T) {
	wait := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		<-ctx.Done()
		return errors.Is(ctx.Err(), context.DeadlineExceeded), nil
	})
	w := newWire(t, stream.NDJSON, wait, timeouts())
	w.write(`{"jsonrpc":"2.0","method":"m","id":1,"timeoutMs":10}`)
	w.expect(result("true", "1"))
	w.write(`{"jsonrpc":"2.0","method":"m","id":1,"params":{"_meta":{"timeoutMs":10}}}`)
	w.expect(result("true", "1"))
}

// What is no positive integer is no deadline, and what is more than a duration holds is a long one.
func TestHostileDeadlines(t *testing.T) {
	has := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		d, ok := ctx.Deadline()
		return ok && time.Until(d) > time.Minute, nil
	})
	w := newWire(t, stream.NDJSON, has, timeouts())
	for value, want := range map[string]string{
		"3600000": "true", "9007199254740992": "true",
		"0": "false", "-1": "false", "1e9": "false", "3600000.0": "false", `"3600000"`: "false",
		"null": "false", "{}": "false",
		"9223372036854775808": "false",
	} {
		w.write(`{"jsonrpc":"2.0","method":"m","id":1,"timeoutMs":` + value + `}`)
		if got := w.read(); got != result(want, "1") {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}

// A caller says for which tenant it calls, and how long it waits.
func ExampleWithMetadata() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "whoami", func(ctx context.Context, _ struct{}) (string, error) {
		_, limited := ctx.Deadline()
		return fmt.Sprint(farcall.MetadataFrom(ctx)["tenant"], ", limited: ", limited), nil
	})
	o := &farcall.Options{Dialect: farcall.Dialect{TimeoutMember: "timeoutMs"}}
	near, far := farcall.Pipe()
	client, server := farcall.NewPeer(near, nil, o), farcall.NewPeer(far, mux, o)
	defer server.Close()
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(
		farcall.Call[string](farcall.WithMetadata(ctx, "tenant", "blue"), client, "whoami", nil))
	// Output: blue, limited: true <nil>
}
