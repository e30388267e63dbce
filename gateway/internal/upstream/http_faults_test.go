package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// answer is what a proxy, or a server that breaks, answers to a call.
func answer(status int, header, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for line := range strings.Lines(header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// TestHTTPFaults has each call answered by a fault. It is made again only where that is safe.
func TestHTTPFaults(t *testing.T) {
	t.Parallel()
	const (
		again   = "Retry-After: 0"
		isJSON  = "Content-Type: application/json"
		busyRPC = `{"jsonrpc":"2.0","id":null,"error":{"code":-32010,"message":"Overloaded",` +
			`"data":{"sent":"no","retryAfterMs":1}}}`
	)
	abort := func(w http.ResponseWriter) {
		answer(200, isJSON, `{"jsonrpc":`)(w)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, c := range map[string]struct {
		fault func(http.ResponseWriter)
		code  jsonrpc.Code
		sent  string
		safe  bool   // it is made again whatever it does
		fails int    // failures that the breaker counts of each attempt
		text  string // in the error
	}{
		"502": {
			answer(502, "", "bad"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 502",
		},
		"503": {
			answer(503, "", "no"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 503",
		},
		"503, Retry-After": {
			answer(503, again, "no"), jsonrpc.Unavailable, "no", true, 1,
			"has not begun tools/call; call it again in 1ms",
		},
		"503, Overloaded": {
			answer(503, isJSON, busyRPC), jsonrpc.Overloaded, "no", true, 0,
			"has not begun tools/call; call it again in 1ms: Overloaded",
		},
		"429, Retry-After": {
			answer(429, again, "no"), jsonrpc.Unavailable, "no", true, 1,
			"has not begun tools/call; call it again in 1ms",
		},
		"504": {
			answer(504, "", "late"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 504",
		},
		"504, Retry-After": {
			answer(504, again, "late"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 504",
		},
		"500": {
			answer(500, "", "oops"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 500",
		},
		"500, a page": {
			answer(500, "Content-Type: text/html", "<html>"), jsonrpc.Unavailable,
			"unknown", false, 1, "HTTP status 500",
		},
		"500, Retry-After": {
			answer(500, again, "oops"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 500",
		},
		"520": {
			answer(520, "", "oops"), jsonrpc.Unavailable, "unknown", false, 1,
			"HTTP status 520",
		},
		"501": {
			answer(501, "", "no"), jsonrpc.InternalError, "unknown", false, 0,
			"HTTP status 501",
		},
		"shorter than said": {
			answer(200, isJSON+"\nContent-Length: 1000", `{"jsonrpc":`),
			jsonrpc.Unavailable, "unknown", false, 1, "the answer is incomplete",
		},
		"cut off": {
			answer(200, isJSON, `{"jsonrpc":`), jsonrpc.Unavailable, "unknown", false,
			1, "the answer is incomplete",
		},
		"cut off at a }": {
			answer(200, isJSON+"\nTransfer-Encoding: identity", `{"jsonrpc":"2.0","x":{}`),
			jsonrpc.Unavailable, "unknown", false, 1, "the answer is incomplete",
		},
		"empty": {
			answer(200, isJSON, ""), jsonrpc.Unavailable, "unknown", false, 1,
			"the answer is incomplete",
		},
		"reset": {
			abort, jsonrpc.Unavailable, "unknown", false, 1,
			"the answer is incomplete",
		},
		"no JSON": {
			answer(200, isJSON, "{]}"), jsonrpc.InternalError, "unknown", false, 0,
			"could not be carried out",
		},
		"a page": {
			answer(200, "Content-Type: text/html", "<html>"), jsonrpc.InternalError,
			"unknown", false, 0, "text/html",
		},
		"a stream cut off": {
			answer(200, "Content-Type: text/event-stream", ": hello\n\n"),
			jsonrpc.Unavailable, "unknown", false, 1, "the event stream ended",
		},
	} {
		for _, eras := range []string{legacy, modern} {
			for _, idempotent := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, eras, idempotent), func(t *testing.T) {
					t.Parallel()
					u, calls := faulty(t, eras, c.fault)
					call := toolCall("which", "x", Caller{})
					call.Idempotent = idempotent
					_, err := do(t.Context(), u, call)
					d := dataOf(t, err, c.code)
					attempts := 1
					if c.safe || idempotent && c.fails > 0 {
						attempts = 2
					}
					if n := int(calls.Load()); n != attempts {
						t.Errorf("it was made %d times, want %d", n, attempts)
					}
					retryable := c.safe || idempotent && c.fails > 0
					if d.Upstream != "web" || d.Sent != c.sent || d.Retryable != retryable ||
						(d.RetryAfterMS > 0) != c.safe {
						t.Errorf("%+v", d)
					}
					if text := err.Error(); !strings.Contains(text, "web") || !strings.Contains(text, c.text) ||
						strings.Contains(text, "mcp: ") ||
						strings.Contains(text, "farcall: ") || strings.Contains(text, "mcphttp: ") {
						t.Error(text)
					}
					if u.pool.breaker.failures != c.fails*attempts {
						t.Errorf("the breaker has counted %d failures", u.pool.breaker.failures)
					}
				})
			}
		}
	}
}

// faulty is an upstream at a server over HTTP; its calls of tools meet a fault.
func faulty(t *testing.T, eras string, fault func(http.ResponseWriter)) (*Upstream, *atomic.Int32) {
	t.Helper()
	l := newLab(t, eras)
	c := &child{lab: l, n: 1, server: mcp.NewServer("lab", "1", &mcp.ServerOptions{Eras: eras})}
	c.tools()
	calls := new(atomic.Int32)
	h := mcphttp.NewHandler(c.server, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"method":"tools/call"`)) {
			calls.Add(1)
			fault(w)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	}))
	u := New(
		&Options{Name: "web", Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
			return mcp.Dial(ctx, web.URL, o)
		}})
	t.Cleanup(func() {
		l.close(u)
		web.CloseClientConnections()
		web.Close()
		c.server.Close()
	})
	return u, calls
}

// TestComeBack waits as long as a busy server wants, unless that is too long, and until then only.
func TestComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var after time.Duration
		free := time.Now()
		began := 0
		u := New(
			&Options{
				Name: "lab", BreakAfter: 1,
				Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
					return mcp.Connect(ctx, playing(t, func(context.Context) (any, error) {
						began++
						if wait := time.Until(free); wait > 0 {
							return nil, &jsonrpc.Error{
								Code: jsonrpc.Overloaded, Message: "Overloaded",
								Data: fmt.Appendf(nil, `{"sent":"no","retryAfterMs":%d}`, after.Milliseconds()),
							}
						}
						return jsonrpc.Raw(`{"content":[{"type":"text","text":"done"}]}`), nil
					}), o)
				},
			})
		defer func() { _ = u.Close(t.Context()) }()
		mustDo(t, u, toolCall("x", "", Caller{}), "done")

		begin := time.Now()
		after, free, began = 2*time.Second, begin.Add(2*time.Second), 0
		mustDo(t, u, toolCall("x", "", Caller{}), "done")
		if took := time.Since(begin); took < after || took > after*5/4+time.Millisecond || began != 2 {
			t.Errorf("%d attempts in %v", began, took)
		}

		after, free, began = time.Minute, time.Now().Add(time.Minute), 0
		_, err := do(t.Context(), u, toolCall("x", "", Caller{}))
		if d := dataOf(t, err, jsonrpc.Overloaded); d.Sent != "no" || !d.Retryable ||
			d.RetryAfterMS != 60_000 || began != 1 {
			t.Errorf("%d attempts: %v %+v", began, err, d)
		}

		after, began = 4*time.Second, 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := do(ctx, u, toolCall("x", "", Caller{})); !errors.Is(err, context.DeadlineExceeded) ||
			began != 1 {
			t.Errorf("%d attempts: %v", began, err)
		}
	})
}

// playing is the calling end of a server with tools that are one function.
func playing(t *testing.T, tool func(context.Context) (any, error)) farcall.Transport {
	t.Helper()
	mine, theirs := farcall.Pipe()
	peer := farcall.NewPeer(theirs,
		farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			switch req.Method {
			case "initialize":
				return jsonrpc.Raw(
					`{"protocolVersion":"` + legacy +
						`","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`), nil
			case "tools/call":
				return tool(ctx)
			}
			return nil, jsonrpc.MethodNotFound
		}), &farcall.Options{Dialect: mcphttp.Dialect()})
	t.Cleanup(func() { _ = peer.Close() })
	return mine
}

// TestBreakerWaits for a server that wants to be left alone for longer, up to a bound.
func TestBreakerWaits(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]time.Duration{
		0:           10 * time.Second,
		time.Second: 10 * time.Second, 20 * time.Second: 20 * time.Second, time.Hour: maxBreak,
	} {
		b := breaker{after: 1, pause: 10 * time.Second}
		now := time.Now()
		b.fail(now, 0, after)
		if _, ok, wait := b.peek(now); ok || wait != want {
			t.Errorf("%v: %v", after, wait)
		}
	}
}
