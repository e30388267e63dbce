package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const signInNodesConfig = `
upstreams:
  far: {url: %q, lifetime: principal, auth: {type: sign_in}}
sign_in: {url: "http://127.0.0.1:9", browser: link}
guard:
  keys: [{id: ann, hash: %q}, {id: bob, hash: %q}]
  allow: "*"
`

// A mailHost is an MCP server with its authorization server. Tokens are renewed for each call or
// two, and a refresh token that is used twice ends all of its sign-in.
type mailHost struct {
	*httptest.Server

	tools http.Handler

	mu      sync.Mutex
	n       int
	codes   map[string]url.Values
	access  map[string]string // users
	refresh map[string]string
	spent   map[string]bool
	reused  int
	renewed int
}

func newMailHost(t *testing.T) *mailHost {
	t.Helper()
	h := &mailHost{
		codes: map[string]url.Values{}, access: map[string]string{},
		refresh: map[string]string{}, spent: map[string]bool{},
	}
	s := mcp.NewServer("far", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		return h.userOf(mcphttp.RequestFrom(ctx)), nil
	})
	h.tools = mcphttp.NewHandler(s, nil)
	h.Server = httptest.NewServer(h)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		s.Close()
	})
	return h
}

func (h *mailHost) userOf(r *http.Request) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
}

func (h *mailHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	switch r.URL.Path {
	case "/.well-known/oauth-protected-resource/mcp":
		fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, h.URL+"/mcp", h.URL)
	case "/.well-known/oauth-authorization-server":
		fmt.Fprintf(w,
			`{"issuer":%[1]q,"authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register",
			"code_challenge_methods_supported":["S256"]}`, h.URL)
	case "/register":
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"client_id":"gateway"}`)
	case "/token":
		h.token(w, r.PostForm)
	default:
		if h.userOf(r) == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.tools.ServeHTTP(w, r)
	}
}

func (h *mailHost) token(w http.ResponseWriter, form url.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	user, used := "", form.Get("refresh_token")
	if q := h.codes[form.Get("code")]; q != nil {
		delete(h.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if q.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) {
			user = q.Get("user")
		}
	} else if user = h.refresh[used]; user != "" {
		h.renewed++
		h.spent[used] = true
		delete(h.refresh, used)
	} else if h.spent[used] {
		h.reused++
		clear(h.refresh)
		clear(h.access)
	}
	w.Header().Set("Content-Type", "application/json")
	if user == "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	h.n++
	access, refresh := fmt.Sprint("access-", h.n), fmt.Sprint("refresh-", h.n)
	h.access[access], h.refresh[refresh] = user, user
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","refresh_token":%q,"expires_in":1}`,
		access, refresh)
}

var signInLink = regexp.MustCompile(`/signin\?link=(\w+)`)

// A sign-in begins at one node, and its browser comes to the others: the principal is signed in at
// all, and no other is. All nodes together send each refresh token once, also when one is killed.
// An operator of any node signs a principal out of all. Without a quorum no token is renewed, and
// the pages answer 503.
func TestClusterSignIns(t *testing.T) {
	t.Parallel()
	host := newMailHost(t)
	hash := func(who string) string {
		sum := sha256.Sum256([]byte(keyOf(who)))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	n := startNodes(t, fmt.Sprintf(signInNodesConfig, host.URL+"/mcp", hash("ann"), hash("bob")))
	calls := func(i int, who string) string {
		c, err := mcp.Dial(t.Context(), n.all[i].addrs[0]+"/mcp", &mcp.ClientOptions{
			HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + keyOf(who)}}},
		})
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		got, err := mcp.CallTool[string](t.Context(), c, "far__whoami", nil)
		if err != nil {
			return err.Error()
		}
		return "served " + got
	}
	link := signInLink.FindStringSubmatch(calls(0, "ann"))
	if link == nil {
		t.Fatal(calls(0, "ann"))
	}
	host.signIn(t, n, link[1])
	for i := range n.all {
		until(t, "served ann", func() string { return calls(i, "ann") })
		if got := calls(i, "bob"); !strings.Contains(got, "sign in") {
			t.Errorf("bob at node %d: %s", i, got)
		}
	}
	ops := func(i int, args ...string) string {
		key := filepath.Join(t.TempDir(), "bob.key")
		if err := os.WriteFile(key, []byte(keyOf("bob")), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := execute(t,
			append([]string{"admin", args[0], n.all[i].addrs[0], "--bearer", key}, args[1:]...)...)
		return fmt.Sprint(code, " ", stdout, stderr)
	}
	if got := ops(1, "sign-ins"); !strings.Contains(got, "ann        far") {
		t.Error(got)
	}
	if got := ops(2, "end-sign-ins", "--principal", "ann"); got != "0 signed ann out of far\n" {
		t.Error(got)
	}
	for i := range n.all {
		until(t, "sign in", func() string { return signInLink.ReplaceAllString(calls(i, "ann"), "") })
	}
	host.signIn(t, n, signInLink.FindStringSubmatch(calls(0, "ann"))[1])
	for i := range n.all {
		until(t, "served ann", func() string { return calls(i, "ann") })
	}
	all := func(nodes int) {
		var wg sync.WaitGroup
		for i := range nodes {
			wg.Go(func() {
				if got := calls(i, "ann"); got != "served ann" {
					t.Errorf("node %d: %s", i, got)
				}
			})
		}
		wg.Wait()
	}
	for host.count(&host.renewed) < 5 && !t.Failed() {
		all(3)
	}
	host.quiet(t)
	if err := n.all[2].cmd.Process.Kill(); err != nil { // between two renewals
		t.Fatal(err)
	}
	until(t, "served ann", func() string { return calls(0, "ann") })
	all(2)
	if err := n.all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "does not decide since", n.ready(t, 0))
	before := host.count(&host.renewed)
	until(t, "call again later", func() string { return calls(0, "ann") })
	// A leader without a quorum still reads for some seconds, and knows that the link was used.
	until(t, "503", func() string {
		code, page := n.send(t, 0, asking(t, "/signin?link="+link[1], ""))
		if code != http.StatusServiceUnavailable && code != http.StatusForbidden {
			t.Errorf("a page without a quorum: %d %s", code, page)
		}
		return strconv.Itoa(code)
	})
	if after := host.count(&host.renewed); after > before+1 || host.count(&host.reused) > 0 {
		t.Errorf("%d refreshes without a quorum, %d tokens were used twice", after-before,
			host.count(&host.reused))
	}
}

// quiet waits until no node has renewed a token for a second: what a sign-in has begun is over
// then.
func (h *mailHost) quiet(t *testing.T) {
	t.Helper()
	last, at := -1, time.Now()
	until(t, "quiet", func() string {
		if n := h.count(&h.n); n != last {
			last, at = n, time.Now()
		}
		if time.Since(at) < time.Second {
			return "busy"
		}
		return "quiet"
	})
}

func (h *mailHost) count(n *int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *n
}

// signIn goes on with a link at one node, and comes back to another one.
func (h *mailHost) signIn(t *testing.T, n *nodes, link string) {
	t.Helper()
	if code, page := n.send(t, 1, asking(t, "/signin?link="+link, "")); code != http.StatusOK ||
		!strings.Contains(page, "<b>ann</b>") {
		t.Fatalf("%d %s", code, page)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.PostForm(n.all[1].addrs[0]+"/signin", url.Values{"link": {link}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	there, err := resp.Location()
	if err != nil {
		t.Fatal(resp.Status, err)
	}
	q := there.Query()
	q.Set("user", "ann")
	h.mu.Lock()
	h.codes["code"] = q
	h.mu.Unlock()
	back := asking(t,
		"/signin/callback/far?"+url.Values{"code": {"code"}, "state": {q.Get("state")}}.Encode(), "")
	for _, c := range resp.Cookies() {
		back.AddCookie(c)
	}
	if code, page := n.send(t, 2, back); code != http.StatusOK ||
		!strings.Contains(page, "You may close this window.") {
		t.Fatalf("%d %s", code, page)
	}
	if code, page := n.send(t, 0, back); code != http.StatusForbidden {
		t.Errorf("a callback counts twice: %d %s", code, page)
	}
}

func keyOf(who string) string { return "key-of-" + who + strings.Repeat("k", 32) }
