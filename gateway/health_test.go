package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
)

// ready is what /readyz answers.
func (l *lab) ready(t *testing.T) (status int, text string) {
	t.Helper()
	got, err := l.web.Get(l.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(body)
}

// A server that is required is started before any call and looked for while it is away, and /readyz
// says what is missing; one that is only preloaded does not matter there.
func TestRequiredServer(t *testing.T) {
	var there atomic.Bool
	s := mcp.NewServer("files", "1", nil)
	t.Cleanup(s.Close)
	files := listen(t, func(conn net.Conn) {
		if !there.Load() {
			conn.Close()
			return
		}
		_ = mcp.Serve(context.Background(), s, stream.New(conn, stream.NDJSON, nil), nil)
	})
	nowhere := listen(t, func(conn net.Conn) { conn.Close() })
	l := newLab(t, nil,
		&gateway.Upstream{
			Name: "files", URL: files, Required: true, HealthCheck: 10 * time.Millisecond,
			Breaker: gateway.Breaker{After: 1000, For: time.Second},
		},
		&gateway.Upstream{Name: "notes", URL: nowhere, Preload: true},
	)
	var status int
	var text string
	until(t, "the server was looked for in vain", func() bool {
		status, text = l.ready(t)
		return strings.Contains(text, "files is required and down since")
	})
	if status != http.StatusServiceUnavailable || strings.Contains(text, "notes") {
		t.Errorf("without the server: %d %s", status, text)
	}
	there.Store(true)
	until(t, "the server is there", func() bool {
		status, text = l.ready(t)
		return status == http.StatusOK
	})
	if text != "ready\n" {
		t.Errorf("with the server: %s", text)
	}
}

// A server that is preloaded is started with the gateway, and once.
func TestPreload(t *testing.T) {
	var connections atomic.Int32
	s := mcp.NewServer("notes", "1", nil)
	t.Cleanup(s.Close)
	url := listen(t, func(conn net.Conn) {
		connections.Add(1)
		_ = mcp.Serve(context.Background(), s, stream.New(conn, stream.NDJSON, nil), nil)
	})
	l := newLab(t, nil, &gateway.Upstream{Name: "notes", URL: url, Preload: true})
	until(t, "the server is up", func() bool { return l.status(t).Upstreams[0].State == "up" })
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// While the audit of the guard has no room, calls are refused, and /readyz says so and why, without
// the name of the file.
func TestReadyWithoutRoomForTheAudit(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(audit+".1", []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := guarded(allow("dev", "*"))
	g.Audit.File, g.Audit.MaxSize, g.Audit.Keep = audit, 1900, 1 // no room beside the old file
	l := newLabOf(t, nil, &gateway.Config{
		Guard: g, Upstreams: []*gateway.Upstream{{Name: "one", Server: newShop("one", "").Server}},
	})
	call := func() *reply {
		got, err := l.modern(t.Context(), "tools/call", "add", `"name":"add","arguments":{"text":"a"}`,
			as("dev"))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := call(); got.status != http.StatusServiceUnavailable {
		t.Errorf("a call was not refused: %+v", got)
	}
	status, text := l.ready(t)
	if status != http.StatusServiceUnavailable || text != "calls are refused: the audit is full\n" {
		t.Errorf("without room: %d %q", status, text)
	}
	if err := os.Remove(audit + ".1"); err != nil {
		t.Fatal(err)
	}
	until(t, "there is room", func() bool { status, _ := l.ready(t); return status == http.StatusOK })
	if got := call(); got.status != http.StatusOK {
		t.Errorf("with room again: %+v", got)
	}
}
