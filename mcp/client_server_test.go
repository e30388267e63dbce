package mcp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// bothServer is a server with something of everything.
func bothServer(t *testing.T) *Server {
	t.Helper()
	s := NewServer("both", "1", nil)
	t.Cleanup(s.Close)
	type in struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	type sum struct {
		Sum int `json:"sum"`
	}
	AddTool(s, Tool{Name: "add", Description: "Adds"}, func(ctx context.Context, in in) (sum, error) {
		for i := range 3 {
			if err := Progress(ctx, float64(i), 3, ""); err != nil {
				return sum{}, err
			}
		}
		return sum{in.A + in.B}, nil
	})
	AddTool(s, Tool{Name: "greet", Description: "Greets"},
		func(ctx context.Context, _ struct{}) (string, error) {
			who, err := Elicit[struct {
				Name string `json:"name"`
			}](ctx, "Who are you?")
			return "hello " + who.Name, err
		})
	AddTool(s, Tool{Name: "fail", Description: "Fails"},
		func(context.Context, struct{}) (string, error) { return "", errors.New("no such thing") })
	s.AddResource(Resource{URI: "test:a", Name: "a"},
		func(_ context.Context, uri string) ([]ResourceContents, error) {
			return []ResourceContents{{URI: uri, Text: "A"}}, nil
		})
	return s
}

func testBoth(
	t *testing.T, rev *era.Revision, s *Server, connect func(*ClientOptions) (*Client, error),
) {
	t.Helper()
	changed, listening := make(chan string, 8), make(chan struct{}, 8)
	c, err := connect(&ClientOptions{
		Era: rev.Name,
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: spec.ElicitAccept, Content: []byte(`{"name":"Bob"}`)}, nil
		},
		OnListChanged:     func(kind string) { changed <- kind },
		OnResourceUpdated: func(uri string) { changed <- uri },
		OnListening:       func(spec.SubscriptionFilter) { listening <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if info := c.Server(); info.Name != "both" || info.Revision != rev.Name {
		t.Errorf("server %+v", info)
	}
	tools, err := c.Tools(t.Context())
	if err != nil || len(tools) != 3 {
		t.Fatal(tools, err)
	}
	var reports atomic.Int32
	got, err := CallTool[struct {
		Sum int `json:"sum"`
	}](OnProgress(t.Context(), func(spec.ProgressNotificationParams) {
		reports.Add(1)
	}), c, "add", map[string]int{"a": 2, "b": 3})
	if err != nil || got.Sum != 5 || reports.Load() != 3 {
		t.Errorf("add: %v, %v, %d reports", got, err, reports.Load())
	}
	var failed *ToolError
	if _, err := CallTool[string](t.Context(), c, "fail", nil); !errors.As(err, &failed) ||
		!strings.Contains(err.Error(), "no such thing") {
		t.Errorf("fail: %v", err)
	}
	if rev.Elicitation {
		if got, err := CallTool[string](t.Context(), c, "greet", nil); err != nil || got != "hello Bob" {
			t.Errorf("greet: %v, %v", got, err)
		}
	}
	if r, err := c.Read(t.Context(), "test:a"); err != nil || r.Contents[0].Text != "A" {
		t.Errorf("read: %v, %v", r, err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		over <- c.Listen(ctx,
			spec.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"test:a"}})
	}()
	select {
	case <-listening:
	case err := <-over:
		t.Fatalf("listen: %v", err)
	}
	s.ResourceUpdated("test:a")
	s.AddTool(Tool{Name: "later", InputSchema: []byte(`{"type":"object"}`)},
		func(context.Context, jsonrpc.Raw) (*ToolResult, error) { return &ToolResult{}, nil })
	seen := map[string]bool{}
	for range 2 {
		select {
		case what := <-changed:
			seen[what] = true
		case <-ctx.Done():
		}
	}
	if !seen["test:a"] || !seen["tools"] {
		t.Errorf("told of %v", seen)
	}
	if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 4 {
		t.Errorf("%d tools, %v", len(tools), err)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("listen: %v", err)
	}
}

// One client and one server, in every revision and over every transport.
func TestClientAndServer(t *testing.T) {
	for _, rev := range era.Revisions() {
		t.Run(rev.Name+" stream", func(t *testing.T) {
			s := bothServer(t)
			mine, theirs := farcall.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.Serve(t.Context(), theirs) }()
			testBoth(t, rev, s, func(o *ClientOptions) (*Client, error) {
				return Connect(t.Context(), mine, o)
			})
			<-served
		})
		t.Run(rev.Name+" http", func(t *testing.T) {
			s := bothServer(t)
			h := mcphttp.NewHandler(s, nil)
			server := httptest.NewServer(h)
			defer server.Close()
			defer h.Shutdown(t.Context())
			testBoth(t, rev, s, func(o *ClientOptions) (*Client, error) {
				return Dial(t.Context(), server.URL, o)
			})
		})
	}
	t.Run("HTTP+SSE", func(t *testing.T) {
		s := bothServer(t)
		h := mcphttp.NewHandler(s, nil)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /sse", h.ServeSSE)
		mux.HandleFunc("/messages", h.ServeMessages)
		server := httptest.NewServer(mux)
		defer server.Close()
		defer h.Shutdown(t.Context())
		testBoth(t, era.LatestLegacy(), s, func(o *ClientOptions) (*Client, error) {
			o.Era = "auto"
			return Dial(t.Context(), server.URL+"/sse", o)
		})
	})
}
