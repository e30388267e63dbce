package gateway

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/store"
)

// operate asks a gateway as an operator, to change something when there is a body. It returns the
// status and the answer.
func (l *signLab) operate(gateway, path, who, body string) string {
	l.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(l.t.Context(), method, gateway+"/api/v1"+path,
		strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+personKey(who))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(text)))
}

// Wherever the tokens are, an operator sees the sign-ins of all and ends those that are chosen, and
// no others. Without the permission a principal sees its own, and ends none.
func TestOperatorSignIns(t *testing.T) {
	t.Parallel()
	for _, kept := range []string{"memory", "directory", "nodes"} {
		t.Run(kept, func(t *testing.T) {
			var shared []store.Store
			if kept == "nodes" {
				own := store.NewMemory(nil)
				t.Cleanup(func() { _ = own.Close() })
				shared = append(shared, own)
			}
			l := newSignLab(t, "modern", func(c *Config) {
				for i := range c.Guard.Keys {
					c.Guard.Keys[i].Roles = []string{"people"}
				}
				c.Guard.Keys = append(c.Guard.Keys,
					guard.Key{ID: "ops", Hash: hashOfKey(personKey("ops")), Roles: []string{"ops"}})
				c.Guard.Allow = []guard.Rule{
					{Roles: []string{"people"}, Calls: []string{"tools/*", "gateway/status"}},
					{Roles: []string{"ops"}, Calls: []string{"gateway/*"}},
				}
				if kept == "directory" {
					c.SignIn.Dir, c.SignIn.Keys = filepath.Join(t.TempDir(), "sign-in"),
						[]string{strings.Repeat("5e", 32)}
				}
			}, shared...)
			for _, who := range []string{"ann", "bob"} {
				if got, err := l.ask(l.client(who, "", true), true); got != who || err != nil {
					t.Fatal(got, err)
				}
			}
			const ann, bob = `{"principal":"ann","upstream":"far"}`, `{"principal":"bob","upstream":"far"}`
			for _, step := range []struct{ path, who, body, want string }{
				{"/sign-ins", "ops", "", `200 {"signIns":[` + ann + "," + bob + `],"all":true}`},
				{"/sign-ins", "ann", "", `200 {"signIns":[` + ann + `],"all":false}`},
				{"/sign-ins/end", "ann", `{"principal":"ann"}`, "403 "},
				{"/sign-ins/end", "ops", `{}`, "422 "},
				{"/sign-ins/end", "ops", `{"all":true,"principal":"ann"}`, "422 "},
				{"/sign-ins/end", "ops", `{"principal":"an"}`, `200 {"ended":[],"problems":[]}`},
				{
					"/sign-ins/end", "ops", `{"principal":"ann","upstream":"near"}`,
					`200 {"ended":[],"problems":[]}`,
				},
				{"/sign-ins", "ops", "", `200 {"signIns":[` + ann + "," + bob + `],"all":true}`},
				{
					"/sign-ins/end", "ops", `{"principal":"ann","upstream":"far"}`,
					`200 {"ended":[` + ann + `],"problems":[]}`,
				},
				{"/sign-ins", "ann", "", `200 {"signIns":[],"all":false}`},
				{"/sign-ins", "bob", "", `200 {"signIns":[` + bob + `],"all":false}`},
			} {
				if got := l.operate(l.web.URL, step.path, step.who, step.body); !strings.HasPrefix(got,
					step.want) {
					t.Errorf("%s %s by %s: %s, not %s", step.path, step.body, step.who, got, step.want)
				}
			}
			if got := l.client("ann", "", false).tools(t); got != "far__sign_in" {
				t.Errorf("ann, who was signed out, sees %q", got)
			}
			if got, err := l.ask(l.client("bob", "", false), true); got != "bob" || err != nil {
				t.Error(got, err)
			}
		})
	}
}

// Without the store nothing is listed, and nothing ends. Without the authorization server, which
// is not reached, the tokens are removed, too.
func TestOperatorSignInProblems(t *testing.T) {
	t.Parallel()
	l, shared, nodes := signNodes(t, "modern")
	if got, err := l.ask(l.clientAt(nodes[0]+"/mcp", "ann", "", true), true); got != "ann" ||
		err != nil {
		t.Fatal(got, err)
	}
	shared.cut.Store(true)
	for path, body := range map[string]string{"/sign-ins": "", "/sign-ins/end": `{"all":true}`} {
		if got := l.operate(nodes[1], path, "ann", body); !strings.HasPrefix(got, "503 ") {
			t.Errorf("%s without the store: %s", path, got)
		}
	}
	shared.cut.Store(false)
	l.as.CloseClientConnections()
	l.as.Close()
	const ended = `200 {"ended":[{"principal":"ann","upstream":"far"}],"problems":[]}`
	if got := l.operate(nodes[1], "/sign-ins/end", "bob", `{"all":true}`); got != ended {
		t.Error(got)
	}
	signUntil(t, func() bool {
		return l.clientAt(nodes[2]+"/mcp", "ann", "", false).tools(t) == "far__sign_in"
	})
	if got := l.operate(nodes[0], "/sign-ins", "bob", ""); got != `200 {"signIns":[],"all":true}` {
		t.Error(got)
	}
}
