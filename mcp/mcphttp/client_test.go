package mcphttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := http1test.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestDialRefusesAddresses(t *testing.T) {
	for _, address := range []string{
		"", "localhost:1", "ftp://x/", "http://", "/mcp", "http://a b/",
		"%",
	} {
		if c, err := mcphttp.Dial(address, nil); err == nil {
			t.Errorf("%q: %v", address, c)
		}
	}
}

func TestAnswers(t *testing.T) {
	one, note := result(1), notice
	send := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{contentType}
			io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   []string
		err    error
	}{
		{"json", send("application/json", one), []string{one}, nil},
		{"json with charset", send("Application/JSON; charset=utf-8", one), []string{one}, nil},
		{"no content type", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, " "+one)
		}, []string{" " + one}, nil},
		{
			"wrong json is for the caller to refuse", send("application/json", `{"jsonrpc"]`),
			[]string{`{"jsonrpc"]`},
			nil,
		},
		{"half json", send("application/json", `{"jsonrpc":`), nil, mcphttp.ErrConnect},
		{"no json", send("application/json", ""), nil, mcphttp.ErrConnect},
		{"events", send("text/event-stream", event("", note)+event("", one)), []string{note, one}, nil},
		{
			"events with charset, priming and comments",
			send("text/event-stream; charset=utf-8",
				": hi\n\n"+event("1", "")+"event: ping\ndata: x\n\n"+event("", one)),
			[]string{one},
			nil,
		},
		{"accepted", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
		}, nil, nil},
		{"accepted with words", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, "Accepted")
		}, nil, nil},
		{"no content", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}, nil, nil},
		{"html", send("text/html", "<html>"), nil, farcall.ErrProtocol},
		{
			"too large", send("application/json", `"`+strings.Repeat("x", 5000)+`"`), nil,
			farcall.ErrProtocol,
		},
		{"too large, length unknown", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range 100 {
				io.WriteString(w, strings.Repeat(" ", 1000))
				w.(http.Flusher).Flush()
			}
		}, nil, farcall.ErrProtocol},
		{
			"event too large", send("text/event-stream", event("", strings.Repeat("x", 5000))), nil,
			farcall.ErrProtocol,
		},
		{"endless line", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}, nil, farcall.ErrProtocol},
		{"endless headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, nil, farcall.ErrProtocol},
		{
			"broken events without ids", send("text/event-stream", event("", note)),
			[]string{note},
			mcphttp.ErrConnect,
		},
		{"broken json", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "{")
			breakOff()
		}, nil, mcphttp.ErrConnect},
		{"bad gateway", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusBadGateway)
		}, nil, mcphttp.ErrConnect},
		{"error of the server", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusInternalServerError)
		}, nil, farcall.ErrProtocol},
		{"not modified", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotModified)
		}, nil, farcall.ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, serve(t, c.answer), &mcphttp.DialOptions{MaxMessage: 4096, MaxEvent: 4096})
			got, err := exchange(t.Context(), x, call(1, "x"))
			if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestStatelessStreamThatBreaksIsLost(t *testing.T) {
	gets := 0
	x := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			gets++
		}
		events(w, event("7", ""), event("8", notice))
	}), nil)
	_, err := exchange(t.Context(), x, stateless(1, "x", ""))
	if !errors.Is(err, mcphttp.ErrConnect) || !strings.Contains(err.Error(), "lost") || gets != 0 {
		t.Errorf("%v, %d GETs", err, gets)
	}
}

func TestPeerSeesTheStatusAndTheError(t *testing.T) {
	x := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`)
	}), nil)
	peer := farcall.NewClient(x, nil, nil)
	defer peer.Close()
	err := peer.Call(t.Context(), "x", nil, nil)
	var status *mcphttp.StatusError
	if !errors.Is(err, jsonrpc.MethodNotFound) || !errors.As(err, &status) || status.Status != 404 {
		t.Error(err)
	}
}

func TestHeaders(t *testing.T) {
	latest, legacy := era.Latest(), era.LatestLegacy()
	old := era.Revisions()[0]
	for _, c := range []struct {
		name  string
		rev   *era.Revision
		frame string
		want  map[string]string // "": must be absent
	}{
		{"stateless", nil, stateless(1, "tools/call", `"name":"add",`), map[string]string{
			"Mcp-Protocol-Version": latest.Name, "Mcp-Method": "tools/call", "Mcp-Name": "add",
			"Mcp-Session-Id": "",
			"Content-Type":   "application/json", "Accept": "application/json, text/event-stream",
		}},
		{
			"name in base64", latest, stateless(1, "tools/call", `"name":"Hello, \u4e16界",`),
			map[string]string{"Mcp-Name": "=?base64?SGVsbG8sIOS4lueVjA==?="},
		},
		{"name after the rest", latest, `{"params":{"_meta":{},"uri":"file:///a b"},` +
			`"method":"resources/read","id":"x"}`, map[string]string{
			"Mcp-Protocol-Version": latest.Name, "Mcp-Method": "resources/read", "Mcp-Name": "file:///a b",
		}},
		{
			"the body's revision counts", latest, `{"jsonrpc":"2.0","id":1,"method":"server/discover",` +
				`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"}}}`,
			map[string]string{
				"Mcp-Protocol-Version": "2031-01-01", "Mcp-Method": "server/discover", "Mcp-Name": "",
			},
		},
		{
			"an invalid name", latest, stateless(1, "tools/list", `"name":"x",`),
			map[string]string{"Mcp-Name": ""},
		},
		{
			"task", latest, stateless(1, "tasks/get", `"taskId":"t1",`),
			map[string]string{"Mcp-Name": "t1"},
		},
		{
			"undecided", nil, call(1, "ping"),
			map[string]string{
				"Mcp-Protocol-Version": "", "Mcp-Method": "", "Mcp-Name": "",
				"Mcp-Session-Id": "s-1",
			},
		},
		{
			"legacy", legacy, call(1, "ping"),
			map[string]string{
				"Mcp-Protocol-Version": legacy.Name, "Mcp-Method": "", "Mcp-Session-Id": "s-1",
				"Accept": "application/json, text/event-stream",
			},
		},
		{
			"oldest", old, call(1, "ping"),
			map[string]string{"Mcp-Protocol-Version": "", "Mcp-Session-Id": "s-1"},
		},
		{
			"initialize", legacy, initialize,
			map[string]string{"Mcp-Protocol-Version": "", "Mcp-Session-Id": ""},
		},
		{
			"response", legacy, result(1),
			map[string]string{"Mcp-Protocol-Version": legacy.Name, "Mcp-Session-Id": "s-1"},
		},
		{
			"batch", legacy, "[" + call(1, "a") + "," + call(2, "b") + "]",
			map[string]string{"Mcp-Protocol-Version": legacy.Name, "Mcp-Session-Id": "s-1"},
		},
		{
			"of the call", legacy, call(1, "x"),
			map[string]string{
				"Mcp-Param-Region": "eu", "X-All": "call", "X-Dial": "dial",
				"Authorization": "Bearer a",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got http.Header
			x := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				w.Header().Set("Mcp-Session-Id", "s-1")
				w.WriteHeader(http.StatusAccepted)
			}),
				&mcphttp.DialOptions{
					Header: http.Header{"x-dial": {"dial"}, "X-All": {"dial"}, "authorization": {"Bearer a"}},
				})
			if _, err := exchange(t.Context(), x, initialize); err != nil {
				t.Fatal(err)
			}
			if x.Session() != "s-1" {
				t.Errorf("the session is %q", x.Session())
			}
			x.Use(c.rev)
			ctx := mcphttp.WithHeader(t.Context(),
				http.Header{"mcp-param-region": {"us"}, "x-all": {"call"}, "mcp-session-id": {"forged"}})
			ctx = mcphttp.WithHeader(ctx, http.Header{"Mcp-Param-Region": {"eu"}})
			if session, ok := c.want["Mcp-Session-Id"]; ok && session == "" {
				ctx = t.Context()
			}
			if _, err := exchange(ctx, x, c.frame); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if values := got[name]; strings.Join(values, "|") != want {
					t.Errorf("%s: %q, want %q", name, values, want)
				}
			}
		})
	}
}

func TestHeadersThatCannotBeSent(t *testing.T) {
	x := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
	}), nil)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"x",` +
			`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"a\r\nb: c"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x\r\ny",` +
			`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"a"}}}`,
	} {
		if _, err := exchange(t.Context(), x, frame); !errors.Is(err, farcall.ErrProtocol) {
			t.Errorf("%s: %v", frame, err)
		}
	}
}

func TestSession(t *testing.T) {
	for _, bad := range []string{"a b", "ä", "\x7f"} {
		x := offline(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Mcp-Session-Id", bad)
			sendJSON(w, 200, result(0))
		}, nil)
		if _, err := exchange(t.Context(), x, initialize); !errors.Is(err, farcall.ErrProtocol) ||
			x.Session() != "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var log recorder
	session := "one"
	x := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		body := log.note(r)
		switch {
		case body == initialize:
			w.Header().Set("Mcp-Session-Id", session)
			sendJSON(w, 200, result(0))
		case r.Header.Get("Mcp-Session-Id") != session:
			http.Error(w, "unknown session", http.StatusNotFound)
		case strings.Contains(body, "nosuch"):
			sendJSON(w, 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`)
		default:
			sendJSON(w, 200, result(1))
		}
	}), nil)
	x.Use(era.LatestLegacy())
	must := func(frame string) {
		t.Helper()
		if _, err := exchange(t.Context(), x, frame); err != nil {
			t.Fatal(err)
		}
	}
	must(initialize)
	must(call(1, "a"))
	if _, err := exchange(t.Context(), x, call(1, "nosuch")); errors.Is(err, mcphttp.ErrSessionLost) ||
		!errors.Is(err, jsonrpc.MethodNotFound) {
		t.Error("an unknown method is no lost session:", err)
	}
	session = "two"
	_, err := exchange(t.Context(), x, call(1, "b"))
	var status *mcphttp.StatusError
	if !errors.Is(err, mcphttp.ErrSessionLost) || !errors.As(err, &status) {
		t.Error(err)
	}
	must(initialize)
	must(call(1, "c"))
	if err := x.EndSession(t.Context()); err != nil {
		t.Error(err)
	}
	if err := x.EndSession(t.Context()); err != nil || x.Session() != "" {
		t.Error(err)
	}
	seen := log.seen()
	if n := len(seen); !strings.HasPrefix(seen[n-1], "DELETE") ||
		strings.HasPrefix(seen[n-2], "DELETE") {
		t.Error("not one DELETE:", seen)
	}
}

func TestCloseEndsTheSession(t *testing.T) {
	for _, status := range []int{200, 202, 404, 405, 500} {
		var log recorder
		hang := make(chan struct{})
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body := log.note(r)
			switch {
			case r.Method == http.MethodDelete:
				if r.Header.Get("Mcp-Session-Id") != "s" {
					t.Error("no session")
				}
				w.WriteHeader(status)
			case body == initialize:
				w.Header().Set("Mcp-Session-Id", "s")
				sendJSON(w, 200, result(0))
			default:
				close(hang)
				<-r.Context().Done()
			}
		})
		x, err := mcphttp.Dial(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exchange(t.Context(), x, initialize); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := exchange(context.Background(), x, call(1, "hang"))
			ended <- err
		}()
		<-hang
		if err := errors.Join(x.Close(), x.Close()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
		if seen := log.seen(); seen[len(seen)-1] != "DELETE " {
			t.Error(seen)
		}
		if _, err := exchange(t.Context(), x, call(1, "x")); !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
		if err := x.Listen(t.Context(), nil, nil); !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
		if err := x.SSE(t.Context(), ignore); !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestRedirects(t *testing.T) {
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request reached the other origin, with %q", r.Header.Get("Authorization"))
	})
	for _, c := range []struct {
		name, to string
		status   int
		ok       bool
	}{
		{"307", "/there", 307, true},
		{"308", "/there", 308, true},
		{"302 loses the POST", "/there", 302, false},
		{"301 loses the POST", "/there", 301, false},
		{"another origin", other, 307, false},
		{"another origin, GET", other, 303, false},
		{"loop", "/", 307, false},
		{"another scheme", "file:///etc/passwd", 307, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/there" && r.Method == http.MethodPost {
					if r.Header.Get("Authorization") != "Bearer a" {
						t.Error("no credentials")
					}
					if body := bodyOf(r); body != call(1, "x") {
						t.Error(body)
					}
					sendJSON(w, 200, result(1))
					return
				}
				http.Redirect(w, r, c.to, c.status)
			}), &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer a"}}})
			got, err := exchange(t.Context(), x, call(1, "x"))
			if c.ok != (err == nil && len(got) == 1) || !c.ok && !errors.Is(err, farcall.ErrProtocol) {
				t.Errorf("%q, %v", got, err)
			}
			if err := x.SSE(t.Context(), ignore); err == nil {
				t.Error("SSE followed")
			}
			if err := x.Listen(t.Context(), nil, nil); err == nil {
				t.Error("Listen followed")
			}
		})
	}
}

type tokens struct {
	t          *testing.T
	token      string
	challenges int
	fail       error
	refuse     bool
}

func (a *tokens) Authorize(_ context.Context, r *http.Request) error {
	r.Header.Set("Authorization", a.token)
	r.URL.RawQuery = "token=x" // its own copy
	return nil
}

func (a *tokens) Challenge(_ context.Context, r *http.Response) (bool, error) {
	a.challenges++
	if r.Header.Get("WWW-Authenticate") == "" {
		a.t.Error("no challenge")
	}
	a.token += "+"
	return !a.refuse, a.fail
}

func TestAuthorizer(t *testing.T) {
	broken := errors.New("no browser")
	for _, c := range []struct {
		name       string
		auth       tokens
		enough     int
		challenges int
		status     int
		err        error
	}{
		{"good at once", tokens{}, 0, 0, 200, nil},
		{"once", tokens{}, 1, 1, 200, nil},
		{"step up", tokens{}, 2, 2, 200, nil},
		{"signs in, proves, steps up", tokens{}, 3, 3, 200, nil},
		{"never", tokens{}, 100, 3, 403, farcall.ErrProtocol},
		{"gives up", tokens{refuse: true}, 1, 1, 401, farcall.ErrProtocol},
		{"fails", tokens{fail: broken}, 1, 1, 0, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.auth.t = t
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if body := bodyOf(r); body != call(1, "x") {
					t.Error(body)
				}
				if n := len(r.Header.Get("Authorization")); n < c.enough {
					w.Header().Set("WWW-Authenticate", "Bearer")
					http.Error(w, "no", http.StatusUnauthorized+2*min(n, 1))
					return
				}
				sendJSON(w, 200, result(1))
			})
			x := open(t, url, &mcphttp.DialOptions{Authorize: &c.auth})
			_, err := exchange(t.Context(), x, call(1, "x"))
			if !errors.Is(err, c.err) || c.auth.challenges != c.challenges {
				t.Errorf("%v after %d challenges", err, c.auth.challenges)
			}
			var status *mcphttp.StatusError
			if errors.As(err, &status) && status.Status != c.status || errors.Is(err, mcphttp.ErrConnect) {
				t.Error(err)
			}
		})
	}
}

// TestServerAsks has a server ask something on the stream of a call, which the
// peer answers with its own exchange before it reads on.
func TestServerAsks(t *testing.T) {
	answered := make(chan string, 1)
	x := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		body := bodyOf(r)
		if !strings.Contains(body, "method") {
			answered <- body
			w.WriteHeader(http.StatusAccepted)
			return
		}
		events(w, event("", `{"jsonrpc":"2.0","id":"q","method":"ask"}`))
		<-answered
		events(w, event("", result(1)))
	}), nil)
	m := farcall.NewMux()
	asked := 0
	m.Handle("ask", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		asked++
		return "yes", nil
	}))
	peer := farcall.NewClient(x, m, nil)
	defer peer.Close()
	if err := peer.Call(t.Context(), "x", nil, nil); err != nil || asked != 1 {
		t.Error(err, asked)
	}
}

func TestReplyRefuses(t *testing.T) {
	no := errors.New("no")
	for _, kind := range []string{"application/json", "text/event-stream"} {
		x := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, event("1", result(1)))
		}), nil)
		//nolint:errorlint // it must be the very error
		if err := x.Exchange(t.Context(), []byte(call(1, "x")), func([]byte) error {
			return no
		}); err != no {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
