package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/mcp"
)

// load reads a configuration.
func load(t *testing.T, text string) *gateway.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "farcall.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := gateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Secrets were printed, or could not be used at all: here they come from the
// environment and from files, reach the server, and are never shown: not in the
// status, the page, an error or the log.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t-0f-th3-t3st"
	t.Setenv("GATEWAY_TEST_TOKEN", secret+"-env")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(secret+"-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 1000)
	m := newMock("modern")
	at := m.http(t, "m", func(r *http.Request) {
		seen <- r.Header.Get("Authorization") + r.URL.RawQuery
	})
	path, _, _ := faulty.Command("")
	port := newClosedPort(t)
	c := load(t, `
upstreams:
  web:
    url: `+at.URL+`?key=${GATEWAY_TEST_TOKEN}
    headers: {Authorization: "Bearer ${GATEWAY_TEST_TOKEN}"}
  dead:
    url: http://`+port.addr+`/mcp?key=${GATEWAY_TEST_TOKEN}
    headers: {Authorization: "file:`+dir+`/token"}
  crash:
    command: [`+path+`, it has no configuration, "--key=${GATEWAY_TEST_TOKEN}"]
    env: {FARCALL_FAULTY: crash-start, TOKEN: "file:`+dir+`/token", GORACE: atexit_sleep_ms=0}
  missing:
    command: [/does/not/exist, "--key=${GATEWAY_TEST_TOKEN}"]
  rawdead:
    url: http://`+port.addr+`/?key=${GATEWAY_TEST_TOKEN}
    profile: raw
  rawclosed:
    url: ws://`+port.addr+`/?key=${GATEWAY_TEST_TOKEN}
    profile: raw
  closed:
    url: ws://`+port.addr+`/mcp?key=${GATEWAY_TEST_TOKEN}
`)
	l := newLabOf(t, nil, c)
	client := l.client(t, mcp.ClientOptions{Era: "legacy"})
	wants(t, client, "echo", "hello", "hello")
	if got := received(t, "a request", seen); !strings.Contains(got, "Bearer "+secret+"-env") ||
		!strings.Contains(got, "key="+secret) {
		t.Errorf("the server was sent %q", got)
	}
	names, missing := toolsOf(t, client)
	slices.Sort(missing)
	if len(names) != 3 || len(missing) != 4 {
		t.Errorf("%v, missing %v", names, missing)
	}
	said := map[string]string{"status": l.get(t, "/api/status"), "page": l.get(t, "/")}
	for _, name := range []string{"dead", "crash", "missing", "closed", "rawdead", "rawclosed"} {
		if !strings.HasPrefix(name, "raw") {
			r, err := l.post(t.Context(), "/mcp/"+name, initialize)
			if err != nil || r.err == nil {
				t.Fatalf("%s: %v, %v", name, r, err)
			}
			said["error of "+name] = r.body
		}
		r, err := l.post(t.Context(), "/rpc/"+name, `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		if err != nil || r.err == nil {
			t.Fatalf("%s: %v, %v", name, r, err)
		}
		said["error of JSON-RPC of "+name] = r.body
		if _, err := l.post(t.Context(), "/rpc/"+name, `{"jsonrpc":"2.0","method":"x"}`); err != nil {
			t.Error(err)
		}
	}
	r, err := l.modern(t.Context(), "tools/list", "", "")
	if err != nil {
		t.Fatal(err)
	}
	said["list"] = r.body
	said["log"] = l.log.String()
	said["status at last"] = l.get(t, "/api/status")
	for what, text := range said {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s has a secret: …%s…", what, text[max(0, i-200):min(len(text), i+50)])
		}
	}
}

// A duplicate tool name aborted a gateway, and names changed when a server was
// added: here both are shown with their prefix, nothing else changes its name, and
// those of before are served on as long as they are clear.
func TestNames(t *testing.T) {
	a, b := newMock("legacy"), newMock("legacy")
	redefine(a, "only a has it", "x")
	one, two := a.tcp(t, "a"), b.tcp(t, "b")
	l := newLab(t, nil, one)
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	if names, _ := toolsOf(t, c); !slices.Equal(names, []string{"ask", "echo", "fickle", "wait"}) &&
		!slices.Equal(names, []string{"echo", "wait", "ask", "fickle"}) {
		t.Error(names)
	}
	if err := l.Reload(config(one, two)); err != nil {
		t.Fatal(err)
	}
	names, missing := toolsOf(t, c)
	slices.Sort(names)
	if want := []string{
		"a__ask", "a__echo", "a__wait", "b__ask", "b__echo", "b__wait",
		"fickle",
	}; !slices.Equal(names, want) || missing != nil {
		t.Errorf("%v, missing %v", names, missing)
	}
	wants(t, c, "fickle", "", "called")
	wants(t, c, "b__echo", "hello", "hello")
}

// Each child had one environment for all, with everything that the gateway has:
// here it has what it is given.
func TestEnvironment(t *testing.T) {
	t.Setenv("GATEWAY_TEST_SECRET", "not for children")
	file := filepath.Join(t.TempDir(), "env")
	u := &gateway.Upstream{
		Name: "sh", Command: []string{"/bin/sh", "-c", "env >" + file + "; exit 1"},
		Env: map[string]string{"MINE": "1"}, Restart: gateway.Restart{Never: true},
	}
	l := newLab(t, nil, u)
	if _, err := l.pipe(t, mcp.ClientOptions{Era: "legacy"}); err == nil {
		t.Error("it is no server")
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "MINE=1\n") ||
		!strings.Contains(string(text), "PATH=") ||
		strings.Contains(string(text), "GATEWAY_TEST_SECRET") {
		t.Errorf("%s, %v", text, err)
	}
}
