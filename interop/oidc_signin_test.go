package interop

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// principalsSignIn has two principals of a gateway sign in to an upstream at the provider: each is
// for the upstream the user that has signed in, also when tokens are renewed, after a restart, and
// when the other one is signed out.
func principalsSignIn(t *testing.T, p *provider) {
	t.Helper()
	g := newGuarded(t, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, dir := l.Addr().String(), t.TempDir()
	l.Close()
	var keys []string
	for _, who := range []string{"ann", "bob"} {
		keys = append(keys,
			fmt.Sprintf(`{id: %s, hash: "sha256:%x"}`, who, sha256.Sum256([]byte(personKey(who)))))
	}
	config := fmt.Sprintf(`guard: {keys: [%s], audit: {file: audit.jsonl}}
sign_in: {url: "http://%s", keys: ["file:sign-in.key"], dir: sign-in}
upstreams:
  far: {url: "%s/mcp", lifetime: principal, auth: {type: sign_in, dpop: true}}
`, strings.Join(keys, ", "), address, g.URL)
	file := filepath.Join(dir, "farcall.yaml")
	for name, text := range map[string]string{
		"farcall.yaml": config,
		"sign-in.key":  strings.Repeat("5e", 32),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := func() *far {
		return starts(t, "serve", "--config", file, "--listen", address, "--log", "text",
			"--log-level", "debug")
	}
	f := serve()
	people := []*person{newPerson(t, "ann", address), newPerson(t, "bob", address)}
	for _, who := range people {
		who.is(t, 1)
	}
	g.mu.Lock()
	first := *g.claims[len(g.claims)-1]
	g.mu.Unlock()
	for time.Now().Unix() <= first.Expires { // both, at the same time, past the end of their tokens
		var wg sync.WaitGroup
		for _, who := range people {
			wg.Go(func() { who.is(t, 1) })
		}
		wg.Wait()
	}
	p.waitFor(t, "granted refresh_token to "+first.ClientID)
	f.stop()
	f2 := serve()
	for _, who := range people {
		who.dial(t)
		who.is(t, 1) // without another sign-in
	}
	out, err := exec.Command(farcallPath, "logout", "--config", file, "--principal", "ann",
		"--upstream", "far").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "signing ann out of far") {
		t.Fatalf("%v\n%s", err, out)
	}
	p.waitFor(t, "revoked")
	out, err = exec.Command(farcallPath, "login", "--list", "--config", file).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "far  bob" {
		t.Errorf("%v\n%s", err, out)
	}
	people[1].is(t, 1)
	people[0].is(t, 2) // ann is asked again
	files, err := filepath.Glob(filepath.Join(dir, "sign-in", "*"))
	if err != nil || len(files) == 0 {
		t.Errorf("%v, %v", files, err)
	}
	var text strings.Builder
	text.WriteString(f.output() + f2.output())
	for _, name := range append(files, filepath.Join(dir, "audit.jsonl")) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(string(b))
	}
	// A JWT has dots, which the sealed parts of files have not: these may begin like one by chance.
	if found := regexp.MustCompile(`eyJ[\w-]+\.[\w.-]*|access_token":"|code_verifier=|refresh_token=`).
		FindString(text.String()); found != "" {
		t.Errorf("the log, the audit or the files of the gateway have %.60q", found)
	}
}

func personKey(who string) string { return "key-of-" + who + strings.Repeat("k", 32) }

// A person is a principal of a gateway with a client, and the user of the provider of that name
// with a browser.
type person struct {
	name, address string
	client        *mcp.Client
	mu            sync.Mutex
	asked         int
}

func newPerson(t *testing.T, name, address string) *person {
	t.Helper()
	p := &person{name: name, address: address}
	p.dial(t)
	return p
}

func (p *person) dial(t *testing.T) {
	t.Helper()
	if p.client != nil {
		p.client.Close()
	}
	var err error
	p.client, err = mcp.Dial(t.Context(), "http://"+p.address+"/mcp", &mcp.ClientOptions{
		HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + personKey(p.name)}}},
		Elicit: func(_ context.Context, q *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			p.mu.Lock()
			p.asked++
			p.mu.Unlock()
			signInAs(t, p.name, q.URL)
			return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.client.Close() })
}

// is fails the test unless the upstream takes the principal for the user of that name, which was
// asked so often.
func (p *person) is(t *testing.T, asked int) {
	t.Helper()
	got, err := mcp.CallTool[string](t.Context(), p.client, "far__whoami", nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || got != p.name || p.asked != asked {
		t.Errorf("%s is %q for the upstream, and was asked %d times; %v", p.name, got, p.asked, err)
	}
}
