package mcp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// mounts are the ways to serve a server. Each returns what connects a client to it.
var mounts = map[string]func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error){
	"Server.Serve": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overPipe(t, func(tr farcall.Transport) error { return s.Serve(t.Context(), tr) })
	},
	"Serve without options": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overPipe(t, func(tr farcall.Transport) error { return Serve(t.Context(), s, tr, nil) })
	},
	"Serve with options": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overPipe(t, func(tr farcall.Transport) error {
			return Serve(t.Context(), s, tr, &farcall.Options{MaxBatch: 9})
		})
	},
	"NewHandler without options": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overHandler(t, mcphttp.NewHandler(s, nil))
	},
	"NewHandler with options": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overHandler(t, mcphttp.NewHandler(s, &mcphttp.Options{MaxMessage: 1 << 20}))
	},
	"NewHandler with RPC": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overHandler(t, mcphttp.NewHandler(s, &mcphttp.Options{RPC: &farcall.Options{MaxBatch: 9}}))
	},
	"Routes": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		h, end := s.Routes(&farcall.Options{}, 0, nil)
		return overHTTPServer(t, h, end)
	},
	"as a handler": func(t *testing.T, s *Server) func(*ClientOptions) (*Client, error) {
		return overPipe(t, func(tr farcall.Transport) error {
			p := farcall.NewPeer(tr, s, &farcall.Options{Dialect: mcphttp.Dialect(), Logger: s.logger()})
			<-p.Done()
			return p.Close()
		})
	},
}

func overPipe(
	t *testing.T, serve func(farcall.Transport) error,
) func(*ClientOptions) (*Client, error) {
	t.Helper()
	return func(o *ClientOptions) (*Client, error) {
		mine, theirs := farcall.Pipe()
		served := make(chan error, 1)
		go func() { served <- serve(theirs) }()
		t.Cleanup(func() { _ = mine.Close(); <-served })
		return Connect(t.Context(), mine, o)
	}
}

func overHandler(t *testing.T, h *mcphttp.Handler) func(*ClientOptions) (*Client, error) {
	t.Helper()
	return overHTTPServer(t, h, h.Shutdown)
}

func overHTTPServer(
	t *testing.T, h http.Handler, end func(context.Context) error,
) func(*ClientOptions) (*Client, error) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() { _ = end(context.Background()); server.Close() })
	return func(o *ClientOptions) (*Client, error) { return Dial(t.Context(), server.URL+"/mcp", o) }
}

// The interceptors and the logger of a server hold whatever mounts it, and run once.
func TestPolicyHoldsWhateverMounts(t *testing.T) {
	for name, mount := range mounts {
		for _, rev := range era.Revisions() {
			if name == "as a handler" && rev.Handshake {
				continue // it has no sessions
			}
			t.Run(name+" "+rev.Name, func(t *testing.T) { testPolicy(t, rev, mount) })
		}
	}
}

func testPolicy(
	t *testing.T, rev *era.Revision,
	mount func(*testing.T, *Server) func(*ClientOptions) (*Client, error),
) {
	var seen, log counted
	deny := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
			seen.add(r.Method)
			if r.Method == spec.MethodToolsCall && bytes.Contains(r.Params, []byte(`"secret"`)) {
				return nil, jsonrpc.Errorf(-1234, "denied")
			}
			return next.ServeRPC(ctx, r)
		})
	}
	s := NewServer("x", "1", &ServerOptions{
		RPC:    &farcall.Options{Interceptors: []farcall.Interceptor{deny}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	AddTool(s, Tool{Name: "secret"}, func(context.Context, struct{}) (string, error) {
		return "SECRET", nil
	})
	AddTool(s, Tool{Name: "open"}, func(context.Context, struct{}) (string, error) {
		return "open", nil
	})
	AddTool(s, Tool{Name: "panics"}, func(context.Context, struct{}) (string, error) { panic("ouch") })
	c, err := mount(t, s)(&ClientOptions{Era: rev.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.CallTool(t.Context(), "secret", nil)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != -1234 {
		t.Errorf("the denied call: %v, %v", r, err)
	}
	if got, err := CallTool[string](t.Context(), c, "open", nil); got != "open" || err != nil {
		t.Errorf("the other call: %q, %v", got, err)
	}
	if _, err := c.CallTool(t.Context(), "panics", nil); err == nil {
		t.Error("a panic without an error")
	}
	if n := seen.count(spec.MethodToolsCall); n != 3 {
		t.Errorf("the interceptor saw %d calls of 3", n)
	}
	if rev.Handshake {
		// calls do not wait for notifications that came before them
		seen.await(t, spec.NotificationInitialized)
		if first := spec.MethodInitialize; seen.count(first) != 2 {
			t.Errorf("the interceptor saw %d times %s", seen.count(first), first)
		}
	}
	if n := log.count("ouch"); n != 1 {
		t.Errorf("the panic is %d times in the log", n)
	}
}

// counted counts texts, and what is written to it that has one.
type counted struct {
	mu   sync.Mutex
	all  []string
	more chan struct{} // closed when there is another one; nil: not waited for
}

func (c *counted) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, text)
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// await waits until there is a text that has a part.
func (c *counted) await(t *testing.T, part string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for c.count(part) == 0 {
		c.mu.Lock()
		if c.more == nil {
			c.more = make(chan struct{})
		}
		more := c.more
		c.mu.Unlock()
		if c.count(part) > 0 {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("there is no %s", part)
		}
	}
}

func (c *counted) Write(p []byte) (int, error) {
	c.add(string(p))
	return len(p), nil
}

func (c *counted) count(part string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.all {
		if bytes.Contains([]byte(text), []byte(part)) {
			n++
		}
	}
	return n
}

// An interceptor that loses the values of the context ends no check of the server.
func TestInterceptorLosesContext(t *testing.T) {
	lose := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
			return next.ServeRPC(context.Background(), r)
		})
	}
	s := NewServer("x", "1",
		&ServerOptions{RPC: &farcall.Options{Interceptors: []farcall.Interceptor{lose}}})
	if _, err := s.ServeRPC(t.Context(),
		&farcall.Request{Method: spec.MethodToolsList, ID: jsonrpc.IntID(1)}); !errors.Is(err,
		errLostEntry) {
		t.Error(err)
	}
}

// ServerOptions.Owner owns sessions over HTTP, too, and sees the request.
func TestOwnerOfServerOwnsSessions(t *testing.T) {
	s := NewServer("x", "1", &ServerOptions{Owner: func(ctx context.Context) string {
		return mcphttp.RequestFrom(ctx).Header.Get("X-User")
	}})
	h, end := s.Routes(&farcall.Options{}, 0, nil)
	c := newHTTPClient(s, "X-User", "alice")
	testOwnerOfSessions(t, c, c.handler.(*mcphttp.Handler).Shutdown)
	c = newHTTPClient(s, "X-User", "alice")
	c.handler = h
	testOwnerOfSessions(t, c, end)
}

func testOwnerOfSessions(t *testing.T, c *httpClient, end func(context.Context) error) {
	t.Helper()
	c.begin(legacyName)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if got := c.send(ping); !bytes.Contains(got, []byte(`"result"`)) {
		t.Errorf("the owner: %s", got)
	}
	for _, other := range []string{"bob", ""} {
		c.header.Set("X-User", other)
		if got := c.send(ping); !bytes.Contains(got, []byte("Session not found")) {
			t.Errorf("%q uses the session of another caller: %s", other, got)
		}
	}
	_ = end(t.Context())
}

// What a handler without options has of the server's.
func TestHTTPOptions(t *testing.T) {
	s := NewServer("x", "1",
		&ServerOptions{HTTP: &mcphttp.Options{Hosts: []string{"tools.example.com"}}})
	for host, want := range map[string]int{
		"tools.example.com": http.StatusMethodNotAllowed,
		"evil.example.com":  http.StatusForbidden,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPut, "/mcp", nil)
		r.Host = host
		mcphttp.NewHandler(s, nil).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
}
