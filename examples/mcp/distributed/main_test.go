package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// dial returns a client with requests that go to the replicas in turn.
func dial(t *testing.T, replicas ...http.Handler) *mcp.Client {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replicas[n.Add(1)%int64(len(replicas))].ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := mcp.Dial(t.Context(), server.URL, &mcp.ClientOptions{
		Era: "modern",
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"cups":2}`)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func replica(name string, keys ...[]byte) http.Handler {
	return mcphttp.NewHandler(newServer(name, keys...), nil)
}

// The two rounds of a call are served by two replicas, also while the key is being changed, and not
// with different keys.
func TestReplicas(t *testing.T) {
	old, next := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for name, test := range map[string]struct {
		a, b [][]byte
		ok   bool
	}{
		"one key":        {[][]byte{old}, [][]byte{old}, true},
		"a change":       {[][]byte{old, next}, [][]byte{next, old}, true},
		"different keys": {[][]byte{old}, [][]byte{next}, false},
	} {
		c := dial(t, replica("a", test.a...), replica("b", test.b...))
		for range 4 {
			got, err := mcp.CallTool[string](t.Context(), c, "order", nil)
			crossed := got == "2 cups, asked by a, served by b" || got == "2 cups, asked by b, served by a"
			if (err == nil) != test.ok || crossed != test.ok {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

func TestKey(t *testing.T) {
	for _, key := range []string{"", "00", strings.Repeat("x", 64)} {
		if err := run(t.Context(), []string{"127.0.0.1:0"}, key); err == nil {
			t.Errorf("the key %q was accepted", key)
		}
	}
}
