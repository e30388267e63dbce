package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// connect connects a client with a server in memory, until the end of the test.
func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	near, far := farcall.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	c, err := mcp.Connect(t.Context(), near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestTenant(t *testing.T) {
	var log bytes.Buffer
	h := mcphttp.NewHandler(newServer(slog.New(slog.NewTextHandler(&log, nil))), nil)
	server := httptest.NewServer(h)
	defer server.Close()
	for _, era := range []string{"modern", "legacy"} {
		log.Reset()
		c, err := mcp.Dial(t.Context(), server.URL, &mcp.ClientOptions{
			Era: era, HTTP: &mcphttp.DialOptions{Header: http.Header{"X-Tenant": {"acme"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := mcp.CallTool[found](t.Context(), c, "orders",
			map[string]any{"tenant": "other", "limit": 1})
		if err != nil || got.Tenant != "acme" || !slices.Equal(got.Orders, []string{"42 apples"}) {
			t.Errorf("%s: %+v, %v", era, got, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "msg=tools/call name=orders client=farcall") {
			t.Errorf("%s: the log is\n%s", era, log.String())
		}
	}
}

// Without a header there is no tenant, whatever the arguments say; what the middleware refuses is
// logged, too.
func TestNoTenant(t *testing.T) {
	var log bytes.Buffer
	c := connect(t, newServer(slog.New(slog.NewTextHandler(&log, nil))), nil)
	result, err := c.CallTool(t.Context(), "orders", map[string]any{"tenant": "other"})
	if err != nil || !result.IsError || !strings.Contains(result.Content[0].Text, "X-Tenant") {
		t.Errorf("%+v, %v", result, err)
	}
	if !strings.Contains(log.String(), `error="no tenant`) {
		t.Errorf("the log is\n%s", log.String())
	}
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, newServer(slog.New(slog.DiscardHandler)), nil)
		began := time.Now()
		result, err := c.CallTool(t.Context(), "wait", nil)
		if took := time.Since(began); err != nil || !result.IsError || took != 5*time.Second {
			t.Errorf("%+v, %v after %v", result, err, took)
		}
		if !strings.Contains(result.Content[0].Text, context.DeadlineExceeded.Error()) {
			t.Errorf("%q", result.Content[0].Text)
		}
	})
}
