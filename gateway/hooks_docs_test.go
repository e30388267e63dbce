package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

func examine(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+os.Getenv("SCAN_TOKEN") {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	var call struct {
		Upstream, Tool string
		Arguments      json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := map[string]string{"decision": "allow"}
	if bytes.Contains(call.Arguments, []byte("confidential")) {
		answer = map[string]string{
			"decision": "deny", "reason": "confidential texts do not go to " + call.Upstream,
		}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}

// The programs of docs/hooks.md do what it says, and its configurations load.
func TestHooksDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SCAN_TOKEN", "t0ken")
	dir := t.TempDir()
	script := filepath.Join(dir, "redact.sh")
	source, err := os.ReadFile("hooks_docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var scanning []gateway.Hook
	for _, b := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(page),
		-1) {
		switch text := b[2]; b[1] {
		case "yaml":
			c, err := gateway.Parse(filepath.Join(dir, "farcall.yaml"), []byte(text))
			if err != nil {
				t.Errorf("%v\n%s", err, text)
				continue
			}
			scanning = c.Hooks
		case "go":
			if !strings.Contains(string(source), text) {
				t.Errorf("this is not in hooks_docs_test.go:\n%s", text)
			}
		case "sh":
			if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("skipped: there is no jq")
	}
	web := httptest.NewServer(http.HandlerFunc(examine))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	scanning[0].URL = web.URL
	s := mcp.NewServer("files", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "echo"}, func(_ context.Context, in textIn) (string, error) {
		return in.Text, nil
	})
	redact := gateway.Hook{On: "after", Command: []string{script}, Timeout: 20 * time.Second}
	c := newLabOf(t, nil,
		&gateway.Config{
			Hooks:     scanning,
			Upstreams: []*gateway.Upstream{{Name: "files", Server: s, Hooks: []gateway.Hook{redact}}},
		}).
		client(t, mcp.ClientOptions{})
	if r, err := c.CallTool(t.Context(), "echo",
		map[string]string{"text": "the key AKIAIOSFODNN7EXAMPLE"}); err != nil ||
		saysOf(r) != "the key [key]" {
		t.Errorf("%+v %v", r, err)
	}
	r, err := c.CallTool(t.Context(), "echo", map[string]string{"text": "confidential"})
	if wire, _ := errors.AsType[*jsonrpc.Error](err); wire == nil ||
		!strings.Contains(string(wire.Data), "do not go to files") {
		t.Errorf("%+v %v", r, err)
	}
}
