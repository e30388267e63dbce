package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func callOf(tool string) *relay.Forward {
	return &relay.Forward{
		Method: "tools/call", Params: jsonrpc.Raw(`{"name":"` + tool + `","arguments":{"a":"v"}}`),
	}
}

// Only what the server has surely not seen was not sent.
func TestForwardNotSent(t *testing.T) {
	for name, all := range map[string]replies{"modern": modernFake(nil), "legacy": legacyFake(nil)} {
		t.Run(name, func(t *testing.T) {
			entered := make(chan struct{})
			all["tools/list"] = `{"tools":[]}`
			all["tools/call"] = do(func(ctx context.Context, _ map[string]any) (any, error) {
				close(entered)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			c, f := mustPipe(t, all, nil)
			failed := make(chan error, 1)
			go func() {
				_, _, err := c.Forward(t.Context(), callOf("x"))
				failed <- err
			}()
			<-entered
			f.peer.Close()
			if err := <-failed; !errors.Is(err, farcall.ErrClosed) || errors.Is(err, farcall.ErrNotSent) {
				t.Errorf("under way: %v", err)
			}
			if _, _, err := c.Forward(t.Context(), callOf("x")); !errors.Is(err, farcall.ErrClosed) ||
				!errors.Is(err, farcall.ErrNotSent) {
				t.Errorf("ended before: %v", err)
			}
			c.Close()
			if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x"}); !errors.Is(err,
				farcall.ErrClosed) || !errors.Is(err, farcall.ErrNotSent) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

// A connection that cannot be made again carries nothing.
func TestForwardNoLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{f: &fakeServer{t: t, replies: legacyFake(replies{"x": `{"a":1}`})}}
		c := connectProcess(t, p, ClientOptions{})
		defer c.Close()
		p.exit()
		synctest.Wait()
		if raw, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x"}); err != nil ||
			string(raw) != `{"a":1}` || p.starts != 2 {
			t.Error(string(raw), err, p.starts)
		}
		p.exit()
		synctest.Wait()
		p.failing = 100
		if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x"}); !errors.Is(err,
			farcall.ErrNotSent) || !strings.Contains(err.Error(), "cannot start") {
			t.Error(err)
		}
	})
}

func TestForwardHTTPNotSent(t *testing.T) {
	for _, test := range []struct {
		era string
		all replies
	}{{revModern, modernFake(nil)}, {revLegacy, legacyFake(nil)}} {
		t.Run(test.era, func(t *testing.T) {
			var broken, refused atomic.Bool
			f, url := httpFake(t, test.all,
				func(_ *fakeServer, w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if !broken.Load() {
						return false
					}
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
					}
					conn.Close() // it has read the request
					return true
				})
			f.set("x", `{}`)
			dialer := &net.Dialer{}
			transport := &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					if refused.Load() {
						return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
					}
					return dialer.DialContext(ctx, network, address)
				},
			}
			c := mustDial(t, url,
				&ClientOptions{
					Era: test.era, HTTP: &mcphttp.DialOptions{HTTP: &http.Client{Transport: transport}},
				})
			if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x"}); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x"}); err == nil ||
				errors.Is(err, farcall.ErrNotSent) {
				t.Errorf("broken off: %v", err)
			}
			refused.Store(true)
			if _, _, err := c.Forward(t.Context(), callOf("x")); !errors.Is(err, farcall.ErrNotSent) ||
				!errors.Is(err, mcphttp.ErrConnect) {
				t.Errorf("refused: %v", err)
			}
			var r route // of a request that was sent, without a way back for its answer
			r.connected.Store(true)
			if r.none(&net.OpError{Op: "dial"}) {
				t.Error("a lost answer")
			}
		})
	}
}

// A session that the server has forgotten is begun again, without the caller's
// doing.
func TestForwardSessionLost(t *testing.T) {
	var session atomic.Value
	session.Store("s1")
	lost := 0
	f, url := httpFake(t, legacyFake(replies{"tools/call": `{ "content":[]}`}),
		func(_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if strings.Contains(string(body), `"initialize"`) || r.Method != http.MethodPost ||
				r.Header.Get("Mcp-Session-Id") == session.Load() {
				return false
			}
			http.Error(w, "no such session", http.StatusNotFound)
			return true
		})
	c := mustDial(t, url, &ClientOptions{Era: "legacy", OnSessionLost: func() { lost++ }})
	for i, want := range []string{"s1", "s2", "s3"} {
		session.Store(want)
		if i == 2 {
			if err := c.Notify(t.Context(), "notifications/roots/list_changed", nil); err != nil ||
				f.count("notifications/roots/list_changed") != 1 {
				t.Error(err)
			}
		}
		raw, in, err := c.Forward(t.Context(), callOf("x"))
		if err != nil || string(raw) != `{ "content":[]}` || in.Name != revLegacy || lost != i {
			t.Errorf("%s, %v, %v, %d lost", raw, in, err, lost)
		}
	}
	session.Store("s9") // which the new session will not be
	if _, _, err := c.Forward(t.Context(), callOf("x")); !errors.Is(err, mcphttp.ErrSessionLost) ||
		!errors.Is(err, farcall.ErrNotSent) {
		t.Error(err)
	}
}

// A call with an answer that is lost with the session may have had its effect.
func TestForwardAnswerLost(t *testing.T) {
	var taken atomic.Int32
	f, url := httpFake(t, legacyFake(replies{"tools/list": `{"tools":[]}`}),
		func(_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if r.Method == http.MethodGet && taken.Load() == 1 {
				http.Error(w, "no such session", http.StatusNotFound)
				return true
			}
			if !strings.Contains(string(body), `"tools/call"`) || taken.Add(1) > 1 {
				return false
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 1\nretry: 20\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
			return true
		})
	f.set("tools/call", `{"content":[]}`)
	c := mustDial(t, url, &ClientOptions{Era: "legacy"})
	_, _, err := c.Forward(t.Context(), callOf("x"))
	if !errors.Is(err, mcphttp.ErrSessionLost) || errors.Is(err, farcall.ErrNotSent) ||
		!strings.Contains(err.Error(), "may or may not") || taken.Load() != 1 {
		t.Errorf("%v, called %d times", err, taken.Load())
	}
	if _, _, err := c.Forward(t.Context(), callOf("x")); err != nil || f.count("initialize") != 2 {
		t.Error(err)
	}
}

// Where a server of the other era has taken the place of the last one, the params
// are translated to that.
func TestForwardServerChanges(t *testing.T) {
	var old atomic.Bool
	f, url := httpFake(t, legacyFake(modernFake(replies{"x": `{}`})),
		func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, body []byte) bool {
			if strings.Contains(string(body), spec.MetaProtocolVersion) == old.Load() {
				http.Error(w, "what is that?", http.StatusBadRequest)
				return true
			}
			return false
		})
	c := mustDial(t, url, nil)
	for _, want := range []string{revModern, revLegacy} {
		old.Store(want == revLegacy)
		_, in, err := c.Forward(t.Context(),
			&relay.Forward{Method: "x", Params: paramsIn(era.Latest(), `"a":1`)})
		if err != nil || in.Name != want || f.last("x")["a"] != 1.0 {
			t.Errorf("in %v, %v", in, err)
		}
	}
	if got := fmt.Sprint(f.last("x")); got != "map[_meta:map[x:1] a:1]" {
		t.Error(got)
	}
}

// The headers that mirror arguments are those of the tool as it is now, and calls
// that need to know it at once list the tools once.
func TestForwardHeaders(t *testing.T) {
	tool := func(name string) string {
		return `{"ttlMs":0,"tools":[{"name":"x","inputSchema":{"type":"object",` +
			`"properties":{"a":{"type":"string","x-mcp-header":"` + name + `"}}}},` +
			`{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"object",` +
			`"x-mcp-header":"A"}}}}]}`
	}
	var want atomic.Value
	want.Store("Old")
	f, url := httpFake(t, modernFake(replies{"tools/list": tool("Old")}),
		func(_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if !strings.Contains(string(body), `"tools/call"`) {
				return false
			}
			var m struct{ ID json.RawMessage }
			json.Unmarshal(body, &m)
			w.Header().Set("Content-Type", "application/json")
			if r.Header.Get("Mcp-Param-"+want.Load().(string)) != "v" {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"Header mismatch"}}`,
					m.ID)
				return true
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
			return true
		})
	c := mustDial(t, url, nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := c.Forward(t.Context(), callOf("x")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := f.count("tools/list"); n != 1 {
		t.Errorf("listed %d times", n)
	}
	want.Store("New")
	f.set("tools/list", tool("New"))
	if _, _, err := c.Forward(t.Context(), callOf("x")); err != nil || f.count("tools/list") != 2 {
		t.Error(err)
	}
	want.Store("Unknown")
	if _, _, err := c.Forward(t.Context(), callOf("x")); !errors.Is(err, spec.HeaderMismatch) {
		t.Error(err)
	}
	if _, _, err := c.Forward(t.Context(), callOf("bad")); err == nil ||
		!strings.Contains(err.Error(), "cannot be called over HTTP") {
		t.Error(err)
	}
	if _, _, err := c.Forward(t.Context(),
		&relay.Forward{Method: "tools/call", Params: jsonrpc.Raw(`{"name":5}`)}); !errors.Is(err,
		spec.HeaderMismatch) {
		t.Error(err) // that is for the server to say
	}
}

// A listing that ends with the call that it was made for is no help to the others.
func TestForwardListsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan context.Context, 10)
		var stuck atomic.Bool
		stuck.Store(true)
		p := &process{f: &fakeServer{t: t, replies: legacyFake(replies{"tools/call": `{"content":[]}`})}}
		p.f.set("tools/list", do(func(ctx context.Context, _ map[string]any) (any, error) {
			begun <- ctx
			if stuck.Load() {
				<-ctx.Done()
			}
			return `{"tools":[{"name":"x","inputSchema":{"type":"object"},` +
				`"execution":{"taskSupport":"required"}}]}`, nil
		}))
		c := connectProcess(t, p, ClientOptions{})
		defer p.exit()
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		failed, done := make(chan error, 1), make(chan error, 1)
		go func() {
			_, _, err := c.Forward(ctx, callOf("x"))
			failed <- err
		}()
		<-begun
		go func() {
			_, _, err := c.Forward(t.Context(), callOf("x"))
			done <- err
		}()
		synctest.Wait()
		stuck.Store(false)
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-done; err != nil || p.f.last("tools/call")["task"] == nil {
			t.Error(err, p.f.last("tools/call"))
		}
	})
}

// How long a call may take is the Forward's to say; progress extends it.
func TestForwardTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{f: &fakeServer{t: t, replies: legacyFake(nil)}}
		p.f.set("x", do(func(ctx context.Context, params map[string]any) (any, error) {
			for i := range 5 {
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
				farcall.Progress(ctx, map[string]int{"progress": i})
			}
			return `{}`, nil
		}))
		c := connectProcess(t, p, ClientOptions{Timeout: time.Second})
		defer p.exit()
		defer c.Close()
		begun := time.Now()
		_, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x", Timeout: 30 * time.Second})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 30*time.Second {
			t.Error(err, time.Since(begun))
		}
		reports := 0
		if _, _, err := c.Forward(t.Context(),
			&relay.Forward{Method: "x", Timeout: 30 * time.Second, OnProgress: func(jsonrpc.Raw) {
				reports++
			}}); err != nil || reports != 5 {
			t.Error(err, reports)
		}
		if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "x"}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Nothing is done about what is up to the caller.
func TestForwardErrors(t *testing.T) {
	c, f := mustPipe(t, legacyFake(replies{"tools/list": `{"tools":[]}`}), &ClientOptions{
		Ask: func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
			t.Error("asked")
			return nil, nil
		},
	})
	for _, test := range []struct{ give, want jsonrpc.Code }{
		{spec.URLElicitationRequired, spec.URLElicitationRequired},
		{-32002, jsonrpc.InvalidParams}, // the resource is not there
		{-5, -5},
	} {
		f.set("tools/call", jsonrpc.Errorf(test.give, "no"))
		_, _, err := c.Forward(t.Context(), callOf("x"))
		if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != test.want ||
			errors.Is(err, farcall.ErrNotSent) {
			t.Errorf("%d: %v", test.give, err)
		}
	}
}

// A list that goes round in circles is not asked for again with each call.
func TestForwardEndlessTools(t *testing.T) {
	var lists atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ ID json.RawMessage }
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &m) != nil {
			return
		}
		result := `"content":[]`
		switch r.Header.Get("Mcp-Method") {
		case "server/discover":
			result = `"supportedVersions":["` + revModern + `"],"capabilities":{"tools":{}}`
		case "tools/list":
			lists.Add(1)
			result = `"tools":[],"nextCursor":"again","ttlMs":0,"cacheScope":"private"`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",`+
				`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x","version":"1"}},%s}}`, m.ID, result)
	}))
	defer server.Close()
	c := mustDial(t, server.URL, nil)
	for range 3 {
		if _, _, err := c.Forward(t.Context(),
			&relay.Forward{Method: "tools/call", Params: jsonrpc.Raw(`{"name":"x"}`)}); err != nil {
			t.Error(err)
		}
	}
	if n := lists.Load(); n != 2 {
		t.Errorf("%d pages were asked for", n)
	}
}
