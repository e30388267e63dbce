package rpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/mcp"
)

// running is a server that serves.
type running struct {
	*Server
	at   []string // its addresses
	stop func() error
}

// run serves math/add and sleep at addresses, until the test ends.
func run(t *testing.T, o *ServeOptions, addrs ...string) *running {
	t.Helper()
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", add)
	farcall.Handle(mux, "sleep", sleep)
	s, err := NewServer(mux, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	open, err := s.Listen(ctx, addrs...)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, len(open))
	r := &running{Server: s}
	for _, l := range open {
		r.at = append(r.at, s.schemes.Text(l.Addr()))
		go func() { ended <- s.Serve(ctx, l) }()
	}
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		var errs []error
		for range open {
			errs = append(errs, <-ended)
		}
		return errors.Join(errs...)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// One port speaks every protocol, and so does a unix socket.
func TestServeEveryProtocol(t *testing.T) {
	t.Parallel()
	s := run(t, nil, "127.0.0.1:0", "unix:"+filepath.Join(t.TempDir(), "s"))
	for _, address := range []string{
		s.at[0], "http://" + s.at[0], "ws://" + s.at[0], "ws://" + s.at[0] + "/rpc", "tcp://" + s.at[0],
		"tcp://" + s.at[0] + "?framing=header",
		"tcp://" + s.at[0] + "?framing=raw", s.at[1], s.at[1] + "?framing=header",
	} {
		c, err := Dial(t.Context(), address, nil)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if sum, err := farcall.Call[float64](t.Context(), c, "math/add", addParams{2, 3}); sum != 5 ||
			err != nil {
			t.Errorf("%s: %v, %v", address, sum, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for path, want := range map[string]string{
		"/healthz": "200 ok\n", "/readyz": "200 ready\n",
		"/rpc/stream?method=math/add&params=[2,3]": "200 data: ",
		"/mcp": `404 {"jsonrpc":"2.0","error":{"code":-32601,"message":"No such path; JSON-RPC is ` +
			`posted to /rpc"},"id":null}`,
		"/": `404 {"jsonrpc":"2.0"`,
	} {
		if got := get(t, "http://"+s.at[0]+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// get returns the status and the body of an answer.
func get(t *testing.T, url string, header ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(answer.StatusCode, " ", string(body))
}

// When the context ends, the calls in flight finish, and ListenAndServe returns nil.
func TestListenAndServeDrains(t *testing.T) {
	t.Parallel()
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	begun, finish := make(chan struct{}), make(chan struct{})
	mux := farcall.NewMux()
	farcall.Handle(mux, "slow", func(context.Context, struct{}) (string, error) {
		close(begun)
		<-finish
		return "done", nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ListenAndServe(ctx, address, mux, nil) }()
	c := dialSoon(t, address)
	defer c.Close()
	answer := make(chan error, 1)
	go func() {
		got, err := farcall.Call[string](context.WithoutCancel(t.Context()), c, "slow", nil)
		if got != "done" {
			err = errors.Join(err, errors.New(got))
		}
		answer <- err
	}()
	<-begun
	cancel()
	close(finish)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// dialSoon dials an address that is about to be listened on.
func dialSoon(t *testing.T, address string) *Client {
	t.Helper()
	for {
		c, err := Dial(t.Context(), address, nil)
		if err == nil {
			return c
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
	}
}

func TestReadyzWhileDraining(t *testing.T) {
	t.Parallel()
	s := served(t, nil)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != "draining\n" {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// While a guard refuses all calls, since its audit has no room, a Server is not ready.
func TestReadyzWithoutRoomForTheAudit(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(audit+".1", []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &guard.Config{Anonymous: true}
	c.Audit.File, c.Audit.MaxSize, c.Audit.Keep = audit, 1900, 1 // no room beside the old file
	g, err := guard.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := served(t, &ServeOptions{Guard: g})
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if answer.Code != http.StatusServiceUnavailable ||
		answer.Body.String() != "calls are refused: the audit is full\n" {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// counting is a service that serves nothing, and counts how often it is shut down.
type counting struct {
	http.Handler
	ended atomic.Int32
}

func (c *counting) Accept(net.Conn) Accepted {
	return Accepted{Serve: func(t farcall.Transport) <-chan struct{} {
		_ = t.Close()
		return nil
	}}
}

func (c *counting) Policy() Policy { return nil }

func (c *counting) Shutdown(context.Context) error {
	c.ended.Add(1)
	return nil
}

// The end of the context of several listeners shuts the service down once.
func TestShutdownOnce(t *testing.T) {
	t.Parallel()
	service := &counting{Handler: http.NotFoundHandler()}
	dir := t.TempDir()
	s := run(t, &ServeOptions{Service: service}, "127.0.0.1:0", "unix:"+filepath.Join(dir, "a"),
		"unix:"+filepath.Join(dir, "b"))
	if got := get(t, "http://"+s.at[0]+"/rpc"); !strings.HasPrefix(got, "404 ") {
		t.Error(got)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if err := s.Shutdown(t.Context()); err != nil || service.ended.Load() != 1 {
		t.Errorf("%d times, %v", service.ended.Load(), err)
	}
}

// ListenAndServe shuts the server down when its listener fails, too.
func TestListenerFails(t *testing.T) {
	t.Parallel()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	service := &counting{Handler: http.NotFoundHandler()}
	s, err := newServer(nil, &ServeOptions{Service: service}, append(port.Schemes(), &port.Scheme{
		Name: "memory", Network: "memory", Part: "name", Example: "memory:x",
		Listen: func(context.Context, string) (net.Listener, error) { return l, nil },
	}))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := s.listenAndServe(t.Context(), "memory:here"); !errors.Is(err, net.ErrClosed) ||
		service.ended.Load() != 1 {
		t.Errorf("shut down %d times, %v", service.ended.Load(), err)
	}
}

// at is a listener at an address that it does not listen on.
type at struct {
	net.Listener
	addr net.Addr
}

func (a at) Addr() net.Addr { return a.addr }

// What is not safe is refused before anything is served, no matter which listener, and what is
// wrong with the options is reported in terms of them.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	keys, err := guard.New(
		&guard.Config{
			Keys: []guard.Key{
				{ID: "a", Hash: "sha256:4a1f0e8c9c0b6f0d2f4f6b7f3f1f1c1b5c5a4d3e2f1a0b9c8d7e6f5a4b3c2d1e"},
			},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	for name, c := range map[string]struct {
		addr string
		o    *ServeOptions
		want string
	}{
		"no guard": {
			":0", nil,
			"rpc: other machines can reach :0, and no guard says who may call what; set " +
				"ServeOptions.Guard, listen on 127.0.0.1:0 or a unix socket, or insist with " +
				"ServeOptions.Insecure",
		},
		"no TLS": {
			":0", &ServeOptions{Guard: keys},
			"rpc: other machines can reach :0, and API keys would cross the network unencrypted; set " +
				"ServeOptions.CertFile",
		},
		"no host": {"7331", nil, `rpc: the address "7331" has no host; write 127.0.0.1:7331`},
		"no key": {
			"127.0.0.1:0", &ServeOptions{CertFile: "c.pem"},
			"rpc: ServeOptions.CertFile is given without ServeOptions.KeyFile; set",
		},
		"no certificate": {
			"127.0.0.1:0", &ServeOptions{KeyFile: "c.pem"},
			"rpc: ServeOptions.KeyFile is given without",
		},
		"authorities": {
			"127.0.0.1:0", &ServeOptions{ClientCAFile: "c.pem"},
			"rpc: ServeOptions.ClientCAFile is given without",
		},
		"no such file": {
			"127.0.0.1:0", &ServeOptions{CertFile: "none.pem", KeyFile: "none.pem"},
			"rpc: cannot use the certificate: none.pem: ",
		},
		"origin": {
			"127.0.0.1:0", &ServeOptions{Origins: []string{"https://h/x"}},
			`rpc: ServeOptions.Origins: "https://h/x" is not an origin; `,
		},
		"proxy": {
			"127.0.0.1:0", &ServeOptions{TrustedProxies: []string{"x"}},
			`rpc: ServeOptions.TrustedProxies: `,
		},
		"no directory": {
			"unix:/no/such/directory/s", nil,
			"rpc: cannot listen on unix:/no/such/directory/s: ",
		},
	} {
		err := ListenAndServe(t.Context(), c.addr, farcall.NewMux(), c.o)
		if !errors.As(err, new(*ServeError)) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = served(t, nil).Serve(t.Context(), at{l, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}})
	if !errors.As(err, new(*ServeError)) ||
		!strings.Contains(err.Error(), "other machines can reach 192.0.2.1:1") {
		t.Errorf("a listener of the program: %v", err)
	}
	if conn, err := l.Accept(); err == nil {
		conn.Close()
		t.Error("the refused listener is open")
	}
}

// A guard is asked about every protocol, and probes need no credentials.
func TestServeGuard(t *testing.T) {
	t.Parallel()
	c := &guard.Config{Anonymous: true, Allow: []guard.Rule{{Calls: []string{"math/*"}}}}
	c.Limits.Connections = 17
	g, err := guard.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := run(t, &ServeOptions{Guard: g}, "127.0.0.1:0")
	if s.o.MaxConnectionsPerClient != 17 {
		t.Error("the bounds of the guard do not count")
	}
	for _, scheme := range []string{"http://", "ws://", "tcp://"} {
		c, err := Dial(t.Context(), scheme+s.at[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := farcall.Call[float64](t.Context(), c, "math/add", addParams{2, 3}); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		if _, err := farcall.Call[any](t.Context(), c, "sleep", nil); err == nil ||
			!strings.Contains(err.Error(), "denied") {
			t.Errorf("%s: %v", scheme, err)
		}
		c.Close()
	}
	if got := get(t, "http://"+s.at[0]+"/healthz"); got != "200 ok\n" {
		t.Error(got)
	}
}

// Web pages of other hosts, and names that are not those of the server, are refused.
func TestServeOrigins(t *testing.T) {
	t.Parallel()
	s := run(t, &ServeOptions{
		Origins: []string{"https://app.example.com"},
		Hosts:   []string{"listed.example"},
	}, "127.0.0.1:0")
	url := "http://" + s.at[0] + "/rpc/stream?method=math/add&params=[2,3]"
	for _, c := range []struct {
		header []string
		want   string
	}{
		{nil, "200 "},
		{[]string{"Host", "listed.example"}, "200 "},
		{[]string{"Host", "evil.example"}, "403 "},
		{[]string{"Origin", "https://app.example.com"}, "200 "},
		{[]string{"Origin", "https://evil.example"}, "403 "},
	} {
		if got := get(t, url, c.header...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: %s", c.header, got)
		}
	}
}

// paged is a page at one path.
type paged struct{ path string }

func (p paged) Has(path string) bool { return path == p.path }

func (p paged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, "page ", r.URL.Path)
}

// A Server is a handler for another http.Server, with a page, and MCP beside the handler.
func TestServeMounted(t *testing.T) {
	t.Parallel()
	tools := mcp.NewServer("s", "1", nil)
	mcp.AddTool(tools, mcp.Tool{Name: "add", Description: "Adds."}, add)
	routes := http.NewServeMux()
	routes.Handle("/", served(t, &ServeOptions{Page: paged{"/"}}))
	routes.Handle("/all/",
		http.StripPrefix("/all",
			served(t, &ServeOptions{Page: http.HandlerFunc(paged{}.ServeHTTP), MCP: tools})))
	server := httptest.NewServer(routes)
	defer server.Close()
	for path, want := range map[string]string{
		"/": "200 page /", "/x": "404 ", "/healthz": "200 ok\n",
		"/all/x": "200 page /x", "/all/rpc": "405 ", "/all/healthz": "200 ok\n",
	} {
		if got := get(t, server.URL+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	c, err := mcp.Dial(t.Context(), server.URL+"/all/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if sum, err := mcp.CallTool[float64](t.Context(), c, "add", addParams{2, 3}); sum != 5 ||
		err != nil {
		t.Errorf("%v, %v", sum, err)
	}
}

// heavy are the packages that only those link who use them.
var heavy = []string{"guard", "mcp", "mcp/mcphttp", "gateway", "cmd/farcall/internal/page"}

// TestImports: package rpc knows a guard, MCP, a gateway and a page by interfaces only.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, p := range heavy {
		if slices.Contains(deps, "github.com/farcall-dev/farcall/"+p) {
			t.Errorf("rpc imports %s", p)
		}
	}
}

// TestSmallProgram: a program that serves and dials links none of them either.
func TestSmallProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "small")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/small")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "nm", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	symbol := regexp.MustCompile(
		` farcall-dev/farcall/([a-z/]+)\.|github\.com/farcall-dev/farcall/([a-z/]+)\.`)
	linked := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if m := symbol.FindStringSubmatch(lines.Text()); m != nil {
			linked[m[1]+m[2]] = true
		}
	}
	if !linked["rpc"] || !linked["wsrpc"] {
		t.Fatalf("the symbols are not read: %v", linked)
	}
	for _, p := range heavy {
		if linked[p] {
			t.Errorf("the program links %s", p)
		}
	}
}
