package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var linkIn = regexp.MustCompile(`http://\S+/signin\?link=\w+`)

// In every revision, who has not signed in sees that, gets an address where that can be done, and
// can call then. The other principal has to sign in separately.
func TestSignInEveryRevision(t *testing.T) {
	for _, rev := range era.Revisions() {
		for _, server := range []string{"legacy", "modern"} {
			for _, visits := range []bool{true, false} {
				name := rev.Name + " at " + server
				if visits {
					name += " with pages"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					l := newSignLab(t, server, nil)
					for _, who := range []string{"ann", "bob"} {
						c := l.client(who, rev.Name, visits)
						if got := c.tools(t); got != "far__sign_in" {
							t.Fatalf("before the sign-in %s sees the tools %q", who, got)
						}
						got, err := mcp.CallTool[string](t.Context(), c.Client, "far__whoami", nil)
						asks := visits && (rev.InputRounds || rev.URLElicitationRequired != 0)
						if !asks {
							if err == nil || !strings.Contains(err.Error(), "sign in to far") {
								t.Fatalf("before the sign-in: %q, %v", got, err)
							}
							link := linkIn.FindString(err.Error())
							if page := l.openLink(who, link); !strings.Contains(page, "You may close this window.") {
								t.Fatalf("%s: %s", link, page)
							}
							got, err = mcp.CallTool[string](t.Context(), c.Client, "far__whoami", nil)
						}
						if err != nil || got != who {
							t.Fatalf("after the sign-in: %q, %v", got, err)
						}
						if got := c.tools(t); got != "far__whoami" {
							t.Errorf("after the sign-in %s sees the tools %q", who, got)
						}
						if asks != (len(c.asked) == 1) {
							t.Errorf("%d questions", len(c.asked))
						}
						if visits && rev.ElicitationComplete {
							<-c.completed
						}
					}
				})
			}
		}
	}
}

// Over random sequences of calls, sign-ins, sign-outs, refreshes and restarts of two principals,
// with clients of several revisions and results that are kept, each gets what is its own, or has to
// sign in.
func TestSignInOwnersNeverMix(t *testing.T) {
	for _, server := range []string{"legacy", "modern"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "sign-in")
			l := newSignLab(t, server, func(c *Config) {
				c.SignIn.Dir, c.SignIn.Keys = dir, []string{strings.Repeat("5e", 32)}
				c.Upstreams[0].Cache.TTL = time.Minute
			})
			r := rand.New(rand.NewPCG(3, 4))
			signedIn, outcomes := map[string]bool{}, map[bool]int{}
			clients := map[string]*signClient{}
			for n := range 150 {
				who := []string{"ann", "bob"}[r.IntN(2)]
				rev := era.Revisions()[r.IntN(len(era.Revisions()))].Name
				switch r.IntN(12) {
				case 0:
					link, err := l.g.plan.Load().byName["far"].signIn.Link(t.Context(), l.who(who), nil)
					if err != nil || !strings.Contains(l.openLink(who, link), "You may close this window.") {
						t.Fatal("not signed in", err)
					}
					signedIn[who] = true
				case 1:
					if n, err := l.config.SignOut(t.Context(), func(name, _ string) bool {
						return name == who
					}); err != nil || n > 1 {
						t.Fatal(n, err)
					}
					signedIn[who] = false
				case 2:
					l.forget(who)
				case 3:
					l.mu.Lock()
					l.life = []int{1, 3600}[r.IntN(2)] // the next token has to be renewed at once, or not
					l.mu.Unlock()
				case 4:
					if n%3 == 0 {
						clear(clients)
						l.restart()
					}
				default:
					c := clients[who+rev]
					if c == nil {
						c = l.client(who, rev, false)
						clients[who+rev] = c
					}
					got, err := l.ask(c, r.IntN(2) == 0)
					if err == nil && (got != who || !signedIn[who]) {
						t.Fatalf("%d: %s, signed in: %v, gets what is of %q", n, who, signedIn[who], got)
					}
					outcomes[err == nil]++
				}
			}
			if outcomes[true] < 20 || outcomes[false] < 10 {
				t.Errorf("%d calls had a result, %d an error", outcomes[true], outcomes[false])
			}
		})
	}
}

// ask calls the tool, or reads the resource, and returns its owner.
func (l *signLab) ask(c *signClient, tool bool) (string, error) {
	if tool {
		return mcp.CallTool[string](l.t.Context(), c.Client, "far__whoami", nil)
	}
	r, err := c.Read(l.t.Context(), "far+mail://inbox")
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(r.Contents[0].Text, "inbox of "), nil
}

// A tool that a client knows from before leads to the sign-in, also in a bare form at the address
// of the upstream; and the tool that is listed in the place of all others does nothing else.
func TestSignInTool(t *testing.T) {
	l := newSignLab(t, "modern", nil)
	for _, rev := range []string{"2025-11-25", "2026-07-28"} {
		who := map[string]string{"2025-11-25": "ann", "2026-07-28": "bob"}[rev]
		c := l.client(who, rev, true)
		for range 2 {
			got, err := mcp.CallTool[string](t.Context(), c.Client, "far__sign_in", nil)
			if err != nil || !strings.Contains(got, "You are signed in to far") || len(c.asked) != 1 {
				t.Errorf("%s: %q, %v, %d questions", rev, got, err, len(c.asked))
			}
		}
		if got, err := l.ask(c, false); err != nil || got != who {
			t.Errorf("%q, %v", got, err)
		}
		if out, err := (operator{l.g}).EndSignIns(t.Context(),
			&control.EndSignIns{Principal: who}); err != nil || len(out.Ended) != 1 {
			t.Fatal(out, err)
		}
		if got, err := l.ask(c, false); err != nil || got != who || len(c.asked) != 2 {
			t.Errorf("after a sign-out: %q, %v, %d questions", got, err, len(c.asked))
		}
	}
	if l.revoked != 4 {
		t.Errorf("%d tokens were revoked, not two of each principal", l.revoked)
	}
}

// A user who declines gets an error, and may be asked again.
func TestSignInDeclined(t *testing.T) {
	l := newSignLab(t, "modern", nil)
	c, err := mcp.Dial(t.Context(), l.web.URL+"/mcp/far", &mcp.ClientOptions{
		HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + personKey("ann")}}},
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: spec.ElicitDecline}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if _, err := mcp.CallTool[string](t.Context(), c, "whoami", nil); err == nil ||
			!strings.Contains(err.Error(), "did not agree") {
			t.Error(err)
		}
	}
}

// What the guard does not allow leads to no sign-in.
func TestSignInIsGuarded(t *testing.T) {
	l := newSignLab(t, "modern", func(c *Config) {
		c.Guard.Allow = []guard.Rule{
			{Principals: []string{"ann"}, Calls: []string{"tools/call far/*"}},
			{Calls: []string{"resources/*"}},
		}
	})
	bob := l.client("bob", "", true)
	if got := bob.tools(t); got != "" {
		t.Errorf("bob sees %q", got)
	}
	for _, tool := range []string{"far__sign_in", "far__whoami"} {
		if _, err := mcp.CallTool[string](t.Context(), bob.Client, tool, nil); err == nil ||
			len(bob.asked) > 0 {
			t.Errorf("%s: %v, %d questions", tool, err, len(bob.asked))
		}
	}
	ann := l.client("ann", "", true)
	if got, err := l.ask(ann, true); err != nil || got != "ann" {
		t.Errorf("%q, %v", got, err)
	}
}

// A principal that is taken out of the configuration is signed out, and its tokens are revoked.
func TestSignInEndsWithThePrincipal(t *testing.T) {
	l := newSignLab(t, "legacy", nil)
	for _, who := range []string{"ann", "bob"} {
		if got, err := l.ask(l.client(who, "", true), true); err != nil || got != who {
			t.Fatalf("%q, %v", got, err)
		}
	}
	without := *l.config
	guarded := *l.config.Guard
	guarded.Keys = guarded.Keys[1:]
	without.Guard = &guarded
	if err := l.g.Reload(&without); err != nil {
		t.Fatal(err)
	}
	l.g.ending.Wait()
	all, _, err := l.g.signIns.Store().List()
	if err != nil || len(all) != 1 || all[0].Principal != "bob" || l.revoked != 2 {
		t.Errorf("%v, %v; %d were revoked", all, err, l.revoked)
	}
	changed := without
	changed.SignIn.URL = "https://other.example"
	if err := l.g.Reload(&changed); err == nil {
		t.Error("sign_in has changed without a restart")
	}
}

// A wrong key keeps the gateway from starting, with an error that says so.
func TestSignInWrongKey(t *testing.T) {
	l := newSignLab(t, "legacy", func(c *Config) {
		c.SignIn.Dir, c.SignIn.Keys = filepath.Join(t.TempDir(), "sign-in"),
			[]string{strings.Repeat("5e", 32)}
	})
	if _, err := l.ask(l.client("ann", "", true), true); err != nil {
		t.Fatal(err)
	}
	wrong := *l.config
	wrong.SignIn.Keys = []string{strings.Repeat("4d", 32)}
	guarded := *l.config.Guard
	guarded.Audit.File = ""
	wrong.Guard = &guarded
	if _, err := New(&wrong, nil); !errors.Is(err, signin.ErrKey) ||
		!strings.Contains(err.Error(), "sign_in") {
		t.Error(err)
	}
	if _, err := wrong.SignOut(t.Context(), func(_, _ string) bool {
		return true
	}); !errors.Is(err, signin.ErrKey) {
		t.Error(err)
	}
	l.restart()
	if got, err := l.ask(l.client("ann", "", false), true); err != nil || got != "ann" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
}

// A browser that shows credentials signs in for their principal only, and one without any for no
// principal where the configuration wants them. Credentials that are wrong are an error, and no
// other path is open.
func TestSignInBrowsers(t *testing.T) {
	l := newSignLab(t, "legacy", func(c *Config) { c.SignIn.Browser = browserPrincipal })
	link, err := l.g.plan.Load().byName["far"].signIn.Link(t.Context(), l.who("ann"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{
		"":               http.StatusForbidden,
		personKey("bob"): http.StatusForbidden, "wrong": http.StatusUnauthorized,
		personKey("ann"): http.StatusOK,
	} {
		for _, address := range []string{link, l.web.URL + "/mcp"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if address == link && resp.StatusCode != want ||
				address != link && key == "" && resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%q at %s: %s", key, address, resp.Status)
			}
		}
	}
	if page := l.openLink("ann", link); page != "no start page" {
		t.Errorf("a browser without credentials sees %s", page)
	}
}

// Without a word about browsers they are bound where they can show credentials, and otherwise a
// notice names the risk.
func TestSignInBrowserDefault(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		browser, mtls string
		bound, notice bool
	}{
		{"", "", false, true},
		{"browser: link", "", false, false},
		{"browser: principal", "", true, false},
		{"", "mtls: {san: '*.example.org', ca: ca.pem}", true, false},
		{"browser: link", "mtls: {san: '*.example.org', ca: ca.pem}", false, false},
	} {
		dir := t.TempDir()
		text := fmt.Sprintf(`
upstreams:
  far: {url: https://far.example/mcp, lifetime: principal, auth: {type: sign_in}}
sign_in:
  url: https://tools.example.com
  keys: [%s]
  dir: tokens
  %s
guard:
  keys: {id: ann, hash: %q}
  allow: "*"
  %s
`, strings.Repeat("ab", 32), at.browser, hashOfKey(personKey("ann")), at.mtls)
		file := filepath.Join(dir, "farcall.yaml")
		err := errors.Join(os.WriteFile(file, []byte(text), 0o600),
			os.WriteFile(filepath.Join(dir, "ca.pem"), nil, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		c, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		noticed := slices.ContainsFunc(c.Notices(), func(p Problem) bool {
			return strings.Contains(p.Message, "any browser may follow the link")
		})
		if c.bindsBrowsers() != at.bound || noticed != at.notice {
			t.Errorf("%+v: bound %v, notice %v", at, c.bindsBrowsers(), noticed)
		}
	}
}

// The tool for the sign-in is there whatever is chosen of the upstream, at every kind of address;
// and what is not chosen stays out.
func TestSignInWhereToolsAreChosen(t *testing.T) {
	l := newSignLab(t, "modern", func(c *Config) {
		c.Upstreams[0].Tools = Filter{
			Allow: []string{"who*"}, Deny: []string{"sign_*"},
			Rename: map[string]string{"whoami": "me", "sign_in": "x"},
		}
		c.Endpoints = []*Endpoint{
			{Name: "team", Tools: []string{"far/whoami"}},
			{Name: "mail", Tools: []string{}, Resources: []string{"far/mail:*"}},
			{Name: "search", Search: &Search{}},
		}
	})
	for n, at := range []struct{ path, before, after string }{
		{"/mcp", "far__sign_in", "far__me"},
		{"/mcp/far", "sign_in", "me"},
		{"/mcp/team", "far__sign_in", "far__me"},
		{"/mcp/mail", "far__sign_in", ""},
		{"/mcp/search", "search_tools call_tool", "search_tools call_tool"},
	} {
		who := []string{"ann", "bob"}[n%2]
		c := l.clientAt(at.path, who, "", true)
		if got := c.tools(t); got != at.before {
			t.Errorf("%s: before the sign-in: %q", at.path, got)
		}
		tool, args := at.before, any(nil)
		if strings.Contains(tool, "call_tool") {
			tool, args = "call_tool", map[string]any{"name": "far__sign_in", "arguments": map[string]any{}}
		}
		if _, err := mcp.CallTool[string](t.Context(), c.Client, tool, args); err != nil ||
			len(c.asked) != 1 {
			t.Errorf("%s: %v, %d questions", at.path, err, len(c.asked))
		}
		if got := c.tools(t); got != at.after {
			t.Errorf("%s: after the sign-in: %q", at.path, got)
		}
		if _, err := l.config.SignOut(t.Context(), func(_, _ string) bool { return true }); err == nil {
			t.Error("tokens in memory were ended from outside")
		}
		if out, err := (operator{l.g}).EndSignIns(t.Context(),
			&control.EndSignIns{All: true}); err != nil || len(out.Problems) > 0 {
			t.Fatal(out, err)
		}
	}
}

// A caller without its own credentials owns nothing, and gets an error that says so.
func TestSignInAnonymous(t *testing.T) {
	l := newSignLab(t, "legacy", func(c *Config) { c.Guard.Anonymous = true })
	for _, rev := range era.Revisions() {
		c, err := mcp.Dial(t.Context(), l.web.URL+"/mcp", &mcp.ClientOptions{Era: rev.Name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mcp.CallTool[string](t.Context(), c, "far__sign_in", nil); err == nil ||
			!strings.Contains(err.Error(), "shows no credentials") {
			t.Errorf("%s: %v", rev.Name, err)
		}
		c.Close()
	}
}

// What could not be pinned is withheld, and pins of other upstreams do not fail for it.
func TestSignInWithLock(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "farcall.lock")
	l := newSignLab(t, "modern", nil)
	if changes, count, err := l.g.Pin(t.Context(), lock, true); err != nil || count != 0 ||
		changes != "" {
		t.Fatalf("%q, %d, %v", changes, count, err)
	}
	locked := *l.config
	locked.Lock = lock
	if err := l.g.Reload(&locked); err != nil {
		t.Fatal(err)
	}
	c := l.client("ann", "", true)
	if _, err := mcp.CallTool[string](t.Context(), c.Client, "far__whoami", nil); err == nil ||
		len(c.asked) != 1 {
		t.Errorf("%v, %d questions", err, len(c.asked))
	}
	if got := c.tools(t); got != "" {
		t.Errorf("what is not pinned is shown: %q", got)
	}
}
