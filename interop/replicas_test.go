package interop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp/era"
)

// typeScriptUser is the client of the TypeScript SDK, in its own process that is used a line at a
// time.
type typeScriptUser struct {
	rounds io.Writer
	lines  *bufio.Scanner
}

// useTypeScript returns when the client is connected.
func useTypeScript(t *testing.T, url, revision string) *typeScriptUser {
	t.Helper()
	// it ends on its own, later than t.Context
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := nodeCommand(t, ctx, "mcp-user.mjs", url, revision)
	cmd.Stderr = os.Stderr
	// It prints one for each call otherwise, when there are many.
	cmd.Env = append(cmd.Env, "NODE_OPTIONS=--disable-warning=MaxListenersExceededWarning")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		in.Close() // it ends its session, and itself
		defer time.AfterFunc(waitLimit, cancel).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("typescript %s: %v", revision, err)
		}
	})
	u := &typeScriptUser{in, bufio.NewScanner(out)}
	if !u.lines.Scan() || u.lines.Text() != revision {
		t.Fatalf("typescript %s: it speaks %q", revision, u.lines.Text())
	}
	return u
}

// use makes some rounds of all that there is, and returns what has failed.
func (u *typeScriptUser) use(rounds int) (failed []string, err error) {
	if _, err := fmt.Fprintln(u.rounds, rounds); err != nil {
		return nil, err
	}
	if !u.lines.Scan() {
		return nil, fmt.Errorf("it has ended: %w", cmp.Or(u.lines.Err(), io.EOF))
	}
	return failed, json.Unmarshal(u.lines.Bytes(), &failed)
}

// TestMCPReplicas has three processes of the gateway behind a round robin, and clients of every
// revision, ours and others, that use tools, resources and prompts, and are asked. One process is
// killed: they go on.
func TestMCPReplicas(t *testing.T) {
	t.Parallel()
	ours := serveOurs(t)
	key := filepath.Join(t.TempDir(), "session.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5e", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	var replicas []*far
	for range 3 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		config := filepath.Join(t.TempDir(), "farcall.yaml")
		text := fmt.Sprintf("listen: %s\nsessions: {keys: 'file:%s', advertise: "+
			"'http://%s'}\nupstreams: {ours: {url: '%s'}}\n", address, key, address, ours.http)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, starts(t, "serve", "--config", config))
	}
	var next, dead atomic.Int64
	dead.Store(-1)
	front := httptest.NewServer(
		&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			i := next.Add(1) % 3
			if i == dead.Load() {
				i = (i + 1) % 3
			}
			r.Out.URL.Scheme, r.Out.URL.Host = "http", replicas[i].address
			// Otherwise the proxy may break an answer that begins before it has seen the end of the body:
			// its server closes the body then, which its client takes for a failure of the request.
			if body, err := io.ReadAll(r.In.Body); err == nil && len(body) > 0 {
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
			}
		}})
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	place := &place{http: front.URL + "/mcp/ours"}

	type user interface {
		revision() string
		lists(ctx context.Context) (tools, resources, templates, prompts []string, err error)
		call(ctx context.Context, tool string, args any) (string, error)
		read(ctx context.Context, uri string) (string, error)
		prompt(ctx context.Context, name string, args map[string]string) (string, error)
	}
	users := map[string]user{}
	for _, rev := range era.Revisions() {
		users["farcall "+rev.Name] = useAs(t, place, "http", rev.Name)
		users["go-sdk "+rev.Name] = useGoSDK(t, place, "http", rev.Name)
		if rev.Handshake {
			users["mcp-go "+rev.Name] = useMCPGo(t, place, "http", rev.Name)
		}
	}
	scripts := map[string]*typeScriptUser{}
	if findNode() == "" && os.Getenv("CI") == "" {
		t.Log("without the TypeScript client: there is no Node.js of version 22 or later on this machine")
	} else {
		for _, rev := range era.Revisions() {
			scripts["typescript "+rev.Name] = useTypeScript(t, place.http, rev.Name)
		}
	}
	use := func(when string) {
		for name, u := range scripts {
			if failed, err := u.use(4); err != nil || len(failed) > 0 {
				t.Errorf("%s, %s: %q, %v", when, name, failed, err)
			}
		}
		for name, u := range users {
			ctx := within(t)
			rev := era.Lookup(u.revision())
			for range 4 {
				if tools, _, _, _, err := u.lists(ctx); err != nil || len(tools) == 0 {
					t.Errorf("%s, %s: lists: %d tools, %v", when, name, len(tools), err)
				}
				if rev.Elicitation {
					if text, err := u.call(ctx, "ask", nil); err != nil || !strings.Contains(text, "Ada") {
						t.Errorf("%s, %s: ask: %s, %v", when, name, text, err)
					}
				}
				if text, err := u.read(ctx, "note://numbered/7"); err != nil || text == "" {
					t.Errorf("%s, %s: read: %s, %v", when, name, text, err)
				}
				if text, err := u.prompt(ctx, "greet", map[string]string{"name": "Bob"}); err != nil ||
					text == "" {
					t.Errorf("%s, %s: prompt: %s, %v", when, name, text, err)
				}
			}
		}
	}
	use("with all three")
	dead.Store(1)
	if err := replicas[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-replicas[1].ended
	use("with one killed")
}
