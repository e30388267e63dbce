package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// A lab is a gateway, with an HTTP server before it.
type lab struct {
	*gateway.Gateway
	t   *testing.T
	url string
	web *http.Client
	log *logText
}

// logText is what was logged.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newLab(t *testing.T, o *gateway.Options, upstreams ...*gateway.Upstream) *lab {
	t.Helper()
	return newLabOf(t, o, &gateway.Config{Upstreams: upstreams})
}

// newLabOf returns a gateway that shows plain names, unless the configuration says otherwise.
func newLabOf(t *testing.T, o *gateway.Options, c *gateway.Config) *lab {
	t.Helper()
	c.Namespace = cmp.Or(c.Namespace, "auto")
	opts := gateway.Options{}
	if o != nil {
		opts = *o
	}
	text := &logText{}
	opts.Logger = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g, err := gateway.New(c, &opts)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(g)
	l := &lab{
		Gateway: g, t: t, url: front.URL, web: &http.Client{Transport: &http.Transport{}},
		log: text,
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		l.web.CloseIdleConnections()
		front.CloseClientConnections()
		front.Close()
		if t.Failed() {
			t.Logf("log:\n%s", tailOf(text.String(), 3000))
		}
	})
	return l
}

func tailOf(s string, n int) string { return s[max(0, len(s)-n):] }

// child is an upstream that is a faulty child.
func child(name, mode string, args ...string) *gateway.Upstream {
	path, args, _ := faulty.Command(mode, args...)
	return &gateway.Upstream{
		Name: name, Command: append([]string{path}, args...),
		Env: map[string]string{"FARCALL_FAULTY": mode, "GORACE": "atexit_sleep_ms=0"},
	}
}

// over is an upstream at a TCP address, which serves MCP.
func over(t *testing.T, name string, s *mcp.Server) *gateway.Upstream {
	t.Helper()
	url := listen(t, func(conn net.Conn) {
		_ = mcp.Serve(context.Background(), s, stream.New(conn, stream.NDJSON, nil), nil)
	})
	t.Cleanup(s.Close)
	return &gateway.Upstream{Name: name, URL: url}
}

// listen serves each connection to a TCP address.
func listen(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listenOn(t, l, serve)
	return "tcp://" + l.Addr().String()
}

// client is one over HTTP.
func (l *lab) client(t *testing.T, o mcp.ClientOptions) *mcp.Client {
	t.Helper()
	return l.clientAt(t, "/mcp", o)
}

func (l *lab) clientAt(t *testing.T, path string, o mcp.ClientOptions) *mcp.Client {
	t.Helper()
	c, err := mcp.Dial(t.Context(), l.url+path, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// pipe is a client over its own byte stream.
func (l *lab) pipe(t *testing.T, o mcp.ClientOptions) (*mcp.Client, error) {
	t.Helper()
	c, err := mcp.Connect(t.Context(), l.stream(t), &o)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// stream is a connection to the gateway's byte streams.
func (l *lab) stream(t *testing.T) farcall.Transport {
	mine, theirs := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		l.ServeStream(stream.New(theirs, stream.NDJSON, nil), &guard.Conn{Transport: "tcp"})
	})
	tr := stream.New(mine, stream.NDJSON, &stream.Options{MaxMessage: 100 << 20})
	t.Cleanup(func() {
		tr.Close()
		wg.Wait()
	})
	return tr
}

// A reply is the answer of a POST.
type reply struct {
	status int
	header http.Header
	body   string
	result json.RawMessage
	err    *jsonrpc.Error
}

func (r *reply) String() string { return fmt.Sprintf("%d %.1000s", r.status, r.body) }

// about is the data of an error of the way to a server.
type about struct {
	Upstream     string   `json:"upstream"`
	Sent         string   `json:"sent"`
	Retryable    bool     `json:"retryable"`
	RetryAfterMs int      `json:"retryAfterMs"`
	Stderr       []string `json:"stderr"`
}

func aboutOf(t *testing.T, err error) (a about) {
	t.Helper()
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	if err := json.Unmarshal(wire.Data, &a); err != nil {
		t.Fatalf("%v: %s", wire, wire.Data)
	}
	return a
}

// post sends a request; headers are given as "Name: value".
func (l *lab) post(ctx context.Context, path, body string, headers ...string) (*reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	got, err := l.web.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, err
	}
	return readReply(got, string(raw)), nil
}

func readReply(got *http.Response, body string) *reply {
	r := &reply{status: got.StatusCode, header: got.Header, body: body}
	last := body
	if strings.HasPrefix(got.Header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.Lines(body) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				last = data
			}
		}
	}
	var message struct {
		Result json.RawMessage
		Error  *jsonrpc.Error
	}
	if json.Unmarshal([]byte(last), &message) == nil {
		r.result, r.err = message.Result, message.Error
	}
	return r
}

// modern makes a request of the newest revision. params are members, without
// _meta.
func (l *lab) modern(
	ctx context.Context, method, name, params string, headers ...string,
) (*reply, error) {
	return l.modernAt(ctx, "/mcp", method, name, params, headers...)
}

func (l *lab) modernAt(
	ctx context.Context, path, method, name, params string, headers ...string,
) (*reply, error) {
	if params != "" {
		params += ","
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
	headers = append([]string{"MCP-Protocol-Version: " + modern, "Mcp-Method: " + method}, headers...)
	if name != "" {
		headers = append(headers, "Mcp-Name: "+name)
	}
	return l.post(ctx, path, body, headers...)
}

// say calls a tool, and returns the text of its result.
func say(ctx context.Context, c *mcp.Client, tool, text string) (string, error) {
	r, err := c.CallTool(ctx, tool, map[string]any{"text": text})
	if err != nil {
		return "", err
	}
	if len(r.Content) != 1 || r.IsError {
		return "", fmt.Errorf("%+v", r)
	}
	return r.Content[0].Text, nil
}

// wants calls a tool, which answers in that way.
func wants(t *testing.T, c *mcp.Client, tool, text, want string) {
	t.Helper()
	if got, err := say(t.Context(), c, tool, text); err != nil || got != want {
		t.Errorf("%s: %.200q, %v; not %.200q", tool, got, err, want)
	}
}

// status is what /api/status says.
type status struct {
	Draining  bool
	Sessions  int
	InFlight  int
	Suspended int
	Calls     int
	Errors    int
	Upstreams []struct {
		Name, Target, State, LastError, Revision string
		Connections, Children, Restarts          int
		InFlight, Queued, Calls, Errors          int
		Garbage, Dropped                         int
		Stderr                                   []string
		Tools                                    []struct{ Name, Shown, Blocked, Diff string }
	}
}

func (l *lab) status(t *testing.T) (s status) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.get(t, "/api/status")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// tools are those that the page shows of a server.
func (l *lab) tools(t *testing.T, server string) []control.Tool {
	t.Helper()
	var all control.Tools
	text := l.get(t, "/api/v1/upstreams/"+server+"/tools")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all.Tools
}

func (l *lab) get(t *testing.T, path string) string {
	t.Helper()
	got, err := l.web.Get(l.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// until waits until a condition holds, for 5 s at most.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 2500 {
		if holds() {
			return
		}
		<-tick.C
	}
	t.Fatalf("it did not come to be: %s", what)
}

// received returns what comes from a channel, within 5 s.
func received[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("it did not come: %s", what)
	}
	return v
}

// toolsOf are the names of the tools that a client sees, and what is missing.
func toolsOf(t *testing.T, c *mcp.Client) (names, missing []string) {
	t.Helper()
	var r struct {
		Tools []spec.Tool `json:"tools"`
		Meta  struct {
			Missing []missed `json:"farcall.dev/missing"`
		} `json:"_meta"`
	}
	if err := c.Request(t.Context(), spec.MethodToolsList, nil, &r); err != nil {
		t.Fatal(err)
	}
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	for _, m := range r.Meta.Missing {
		missing = append(missing, m.Upstream+" "+m.State)
	}
	return names, missing
}

type missed struct {
	Upstream string `json:"upstream"`
	State    string `json:"state"`
	Reason   string `json:"reason"`
}
