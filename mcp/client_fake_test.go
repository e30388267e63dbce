package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const (
	revModern = "2026-07-28"
	revLegacy = "2025-11-25"
)

// replies are what a fake server replies, by method: JSON, or an error, or what a
// function returns.
type replies map[string]any

// A fakeServer replies from a table and notes what it got.
type fakeServer struct {
	t *testing.T

	mu      sync.Mutex
	replies replies
	got     []string // METHOD PARAMS
	headers []http.Header
	peer    *farcall.Peer
}

func modernFake(more replies) replies {
	all := replies{"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"logging":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},
		"instructions":"be nice","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`}
	maps.Copy(all, more)
	return all
}

func legacyFake(more replies) replies {
	all := replies{
		"initialize": `{"protocolVersion":"2025-11-25","serverInfo":{"name":"fake","version":"1"},"capabilities":{"tools":{"listChanged":true},"logging":{},
			"resources":{"subscribe":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}}`,
		"notifications/initialized": `null`,
	}
	maps.Copy(all, more)
	return all
}

func (f *fakeServer) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	f.mu.Lock()
	f.got = append(f.got, strings.TrimSpace(req.Method+" "+string(req.Params)))
	answer, ok := f.replies[req.Method]
	f.mu.Unlock()
	switch a := answer.(type) {
	case string:
		return jsonrpc.Raw(a), nil
	case error:
		return nil, a
	case func(ctx context.Context, params map[string]any) (any, error):
		var params map[string]any
		if len(req.Params) > 0 {
			if err := json.Unmarshal(req.Params, &params); err != nil {
				f.t.Error(err)
			}
		}
		r, err := a(ctx, params)
		if s, is := r.(string); is {
			r = jsonrpc.Raw(s)
		}
		return r, err
	}
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found: %s", req.Method)
	}
	return answer, nil
}

// do is shorter to write in a table.
func do(
	f func(ctx context.Context, params map[string]any) (any, error),
) func(context.Context, map[string]any) (any, error) {
	return f
}

// count returns how many messages of a method came.
func (f *fakeServer) count(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.got {
		if name, _, _ := strings.Cut(m, " "); name == method {
			n++
		}
	}
	return n
}

// last returns the params of the last message of a method.
func (f *fakeServer) last(method string) map[string]any {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var params map[string]any
	for _, m := range f.got {
		if name, raw, _ := strings.Cut(m, " "); name == method && raw != "" {
			params = nil
			if err := json.Unmarshal([]byte(raw), &params); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return params
}

func (f *fakeServer) set(method string, answer any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[method] = answer
}

// pipeFake connects a client with a fake server in memory.
func pipeFake(t *testing.T, all replies, o *ClientOptions) (*Client, *fakeServer, error) {
	t.Helper()
	f := &fakeServer{t: t, replies: all}
	mine, theirs := farcall.Pipe()
	f.peer = farcall.NewPeer(theirs, f, &farcall.Options{Dialect: mcphttp.Dialect()})
	t.Cleanup(func() { f.peer.Close() })
	c, err := Connect(t.Context(), mine, o)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, f, err
}

func mustPipe(t *testing.T, all replies, o *ClientOptions) (*Client, *fakeServer) {
	t.Helper()
	c, f, err := pipeFake(t, all, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, f
}

// httpFake serves a fake over HTTP. gate may answer a request itself, and reports
// whether it has.
func httpFake(
	t *testing.T, all replies,
	gate func(f *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool,
) (*fakeServer, string) {
	t.Helper()
	f := &fakeServer{t: t, replies: all}
	responder := farcall.NewResponder(f, &farcall.Options{Dialect: mcphttp.Dialect()})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.headers = append(f.headers, r.Header.Clone())
		f.mu.Unlock()
		if gate != nil && gate(f, w, r, body) {
			return
		}
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		answer := responder.Respond(r.Context(), nil, body, nil)
		if answer == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"initialize"`) {
			w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", f.count("initialize")))
		}
		w.Write(answer)
	}))
	t.Cleanup(s.Close)
	return f, s.URL
}

func mustDial(t *testing.T, target string, o *ClientOptions) *Client {
	t.Helper()
	c, err := Dial(t.Context(), target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// warnings collects what OnWarning receives.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, err.Error())
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}
