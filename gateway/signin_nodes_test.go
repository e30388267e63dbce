package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

// A signStore is a store that the nodes may be cut off from.
type signStore struct {
	store.Store
	cut atomic.Bool
}

func (s *signStore) Put(ctx context.Context, r *store.Record) (uint64, error) {
	if s.cut.Load() {
		return 0, store.ErrUnavailable
	}
	return s.Store.Put(ctx, r)
}

func (s *signStore) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if s.cut.Load() {
		return nil, store.ErrUnavailable
	}
	return s.Store.Get(ctx, owner, id)
}

// signNodes makes a lab with three nodes, and a balancer at its address that sends each request to
// the next one. It returns the addresses of the nodes.
func signNodes(t *testing.T, server string) (l *signLab, shared *signStore, addresses []string) {
	t.Helper()
	kept := store.NewMemory(nil)
	t.Cleanup(func() { _ = kept.Close() })
	shared = &signStore{Store: kept}
	l = newSignLab(t, server, func(c *Config) {
		c.Guard.Allow = []guard.Rule{{Calls: []string{"*"}}}
	}, shared)
	all := []*Gateway{l.g}
	for range 2 {
		c, guarded := *l.config, *l.config.Guard
		guarded.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
		c.Guard = &guarded
		g, err := New(&c, &Options{Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := g.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		all = append(all, g)
	}
	for _, g := range all {
		s := httptest.NewServer(g)
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		addresses = append(addresses, s.URL)
	}
	var next atomic.Int32
	l.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all[int(next.Add(1))%len(all)].ServeHTTP(w, r)
	})
	return l, shared, addresses
}

// A call that waits at one node goes on when the browser has signed in by way of others. The
// principal is signed in at each, and no other is. Expired tokens are renewed once by all. A
// sign-out holds at all.
func TestSignInOfNodes(t *testing.T) {
	t.Parallel()
	l, _, nodes := signNodes(t, "modern")
	l.life = 2 // seconds
	asking := l.clientAt(nodes[0]+"/mcp", "ann", "", true)
	if got, err := l.ask(asking, true); got != "ann" || err != nil || len(asking.asked) != 1 {
		t.Fatalf("%q, %v, %d questions", got, err, len(asking.asked))
	}
	var anns []*signClient
	for _, at := range nodes {
		anns = append(anns, l.clientAt(at+"/mcp", "ann", "", false))
		if got := l.clientAt(at+"/mcp", "bob", "", false).tools(t); got != "far__sign_in" {
			t.Errorf("bob sees %q", got)
		}
	}
	for renewed, round := 0, 0; renewed < 3; round++ {
		var wg sync.WaitGroup
		for _, c := range anns {
			wg.Go(func() { // with a refresh token that was used twice, ann would have to sign in
				if got, err := l.ask(c, true); got != "ann" || err != nil {
					t.Errorf("round %d: %q, %v", round, got, err)
				}
			})
		}
		if wg.Wait(); t.Failed() {
			return
		}
		l.mu.Lock()
		renewed = l.renewed
		l.mu.Unlock()
	}
	const listed = `{"signIns":[{"principal":"ann","upstream":"far"}],"all":true}`
	if got := l.operate(nodes[1], "/sign-ins", "bob", ""); got != "200 "+listed {
		t.Error(got)
	}
	const ended = `{"ended":[{"principal":"ann","upstream":"far"}],"problems":[]}`
	if got := l.operate(nodes[2], "/sign-ins/end", "bob", `{"principal":"ann"}`); got != "200 "+ended {
		t.Error(got)
	}
	if l.revoked == 0 {
		t.Error("no token was revoked")
	}
	for _, c := range anns {
		signUntil(t, func() bool { return c.tools(t) == "far__sign_in" })
	}
}

// signUntil waits until what a message between nodes brings about has happened.
func signUntil(t *testing.T, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatal("it does not happen")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Without the store, pages answer 503, and a call of a principal that may have signed in elsewhere
// gets an error that says that it may be made again.
func TestSignInWithoutQuorum(t *testing.T) {
	t.Parallel()
	l, shared, nodes := signNodes(t, "legacy")
	if got, err := l.ask(l.clientAt(nodes[0]+"/mcp", "ann", "", true), true); got != "ann" ||
		err != nil {
		t.Fatal(got, err)
	}
	ann, bob := l.clientAt(nodes[1]+"/mcp", "ann", "", false),
		l.clientAt(nodes[1]+"/mcp", "bob", "", false)
	if got, err := l.ask(ann, true); got != "ann" || err != nil {
		t.Fatal(got, err)
	}
	_, err := l.ask(bob, true)
	link := linkIn.FindString(err.Error())
	shared.cut.Store(true)
	defer shared.cut.Store(false)
	resp, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(string(text), "does not answer") {
		t.Errorf("%s: %s", resp.Status, text)
	}
	if got, err := l.ask(ann, true); got != "ann" || err != nil {
		t.Errorf("a token in memory: %q, %v", got, err)
	}
	_, err = l.ask(bob, true)
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok ||
		!strings.Contains(e.Message, "does not answer") ||
		!strings.Contains(string(e.Data), `"retryable":true`) {
		t.Errorf("a call that needs the store: %v", err)
	}
}

// Sign-ins are listed as shared. A directory keeps them with their node, and a notice says so.
func TestSignInIsShared(t *testing.T) {
	for _, dir := range []string{"", "dir: tokens"} {
		file := filepath.Join(t.TempDir(), "farcall.yaml")
		text := fmt.Sprintf(`
upstreams:
  far: {url: https://far.example/mcp, lifetime: principal, auth: {type: sign_in}}
cluster: nats://127.0.0.1
guard: {keys: {id: ann, hash: %q}, allow: "*"}
sign_in:
  url: https://tools.example.com
  keys: [%s]
  %s
`, hashOfKey(personKey("ann")), strings.Repeat("ab", 32), dir)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		shared, own := c.Shared()
		if is, not := slices.Contains(shared, "sign-ins to upstreams"),
			slices.Contains(own, "sign-ins to upstreams"); is == not || is != (dir == "") {
			t.Errorf("%q: shared %q, own %q", dir, shared, own)
		}
		noticed := slices.ContainsFunc(c.Notices(), func(p Problem) bool {
			return strings.Contains(p.Message, "do not share sign-ins")
		})
		if noticed != (dir != "") {
			t.Errorf("%q: notices %v", dir, c.Notices())
		}
		if _, err := c.SignOut(t.Context(), func(_, _ string) bool { return false }); dir == "" &&
			(err == nil || !strings.Contains(err.Error(), "cluster")) {
			t.Errorf("a command without the store: %v", err)
		}
	}
}

// A principal that another node has in its configuration is not signed out by one that has not, and
// that one ends while it waits for the configurations to agree.
func TestSignInOfNodesThatDiffer(t *testing.T) {
	t.Parallel()
	kept := store.NewMemory(nil)
	t.Cleanup(func() { _ = kept.Close() })
	l := newSignLab(t, "legacy", func(c *Config) { c.digest = []byte("both") }, kept)
	if got, err := l.ask(l.client("bob", "", true), true); got != "bob" || err != nil {
		t.Fatal(got, err)
	}
	c, guarded := *l.config, *l.config.Guard
	guarded.Audit.File = ""
	guarded.Keys = guarded.Keys[:1]
	c.Guard, c.digest = &guarded, []byte("ann alone")
	g, err := New(&c, &Options{Shared: kept})
	if err != nil {
		t.Fatal(err)
	}
	signUntil(t, func() bool { return len(g.node.Status().Differ) > 0 })
	again := c
	if err := g.Reload(&again); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := l.ask(l.client("bob", "", false), true); got != "bob" || err != nil {
		t.Errorf("bob was signed out: %q, %v", got, err)
	}
}
