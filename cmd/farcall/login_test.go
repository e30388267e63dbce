package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// authorizing is an MCP server and its authorization server, in which everybody signs in at once.
type authorizing struct {
	*httptest.Server

	mu      sync.Mutex
	valid   map[string]bool // tokens
	revoked int
	n       int
}

func newAuthorizing(t *testing.T) *authorizing {
	t.Helper()
	s := mcp.NewServer("guarded", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "whoami"}, func(context.Context, struct{}) (string, error) {
		return "ann", nil
	})
	h := mcphttp.NewHandler(s, nil)
	a := &authorizing{valid: map[string]bool{}}
	mux := http.NewServeMux()
	a.Server = httptest.NewServer(mux)
	answer := func(format string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, strings.ReplaceAll(format, "URL", a.URL))
		}
	}
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		ok := a.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		a.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate",
				`Bearer resource_metadata="`+a.URL+`/.well-known/oauth-protected-resource/mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp",
		answer(`{"resource":"URL/mcp","authorization_servers":["URL"],"scopes_supported":["read"]}`))
	mux.HandleFunc("/.well-known/oauth-authorization-server",
		answer(`{"issuer":"URL","authorization_endpoint":"URL/authorize","token_endpoint":"URL/token",
		"registration_endpoint":"URL/register","revocation_endpoint":"URL/revoke","response_types_supported":["code"],"code_challenge_methods_supported":["S256"],
		"token_endpoint_auth_methods_supported":["none"],"grant_types_supported":["authorization_code","refresh_token"]}`))
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"client_id":"registered"}`)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=c&state="+url.QueryEscape(q.Get("state")),
			http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.n++
		token := fmt.Sprintf("s3cr3t-access-%d", a.n)
		a.valid[token] = true
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"access_token":%q,"token_type":"Bearer","expires_in":3600,`+
				`"refresh_token":"s3cr3t-refresh-%d","scope":"read"}`, token, a.n)
	})
	mux.HandleFunc("/revoke", func(_ http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.revoked++
		delete(a.valid, r.PostFormValue("token"))
	})
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
		s.Close()
	})
	return a
}

// home is what programs of a test have for their environment.
type home struct{ vars []string }

func newHome(t *testing.T, more ...string) *home {
	t.Helper()
	dir := t.TempDir()
	return &home{append(more, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "AppData="+dir, "GORACE="+noLinger)}
}

func (h *home) program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := program(t, args...)
	cmd.Env = append(slices.DeleteFunc(cmd.Env, func(v string) bool {
		return strings.HasPrefix(v, storeVar+"=")
	}), h.vars...)
	return cmd
}

// run runs a program that must end with a code.
func (h *home) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, err := h.program(t, args...).CombinedOutput()
	got := 0
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // it is never wrapped
		got = exit.ExitCode()
	}
	if got != code || strings.Contains(string(out), "s3cr3t") {
		t.Fatalf("farcall %q: exit status %d, want %d\n%s", args, got, code, out)
	}
	return string(out)
}

// login runs farcall login, and is the browser.
func (h *home) login(t *testing.T, args ...string) string {
	t.Helper()
	cmd := h.program(t, append([]string{"login", "--no-browser"}, args...)...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if address := strings.TrimSpace(lines.Text()); strings.HasPrefix(address, "http://") {
			resp, err := http.Get(address)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !strings.Contains(string(body), "You may close this window.") {
				t.Errorf("%s", body)
			}
		}
	}
	if err := cmd.Wait(); err != nil || strings.Contains(stdout.String()+said.String(), "s3cr3t") {
		t.Fatalf("%v\n%s%s", err, said.String(), stdout.String())
	}
	return stdout.String()
}

// What is got with a login is used by the other commands, until the logout.
func TestLogin(t *testing.T) {
	server := newAuthorizing(t)
	at := server.URL + "/mcp"
	h := newHome(t)
	if out := h.run(t, exitProtocol, "mcp", "tools", at); !strings.Contains(out,
		"run: farcall login "+at) {
		t.Errorf("no advice: %s", out)
	}
	if out := h.run(t, exitOK, "login", "--list"); !strings.Contains(out, "there are no logins") {
		t.Errorf("%s", out)
	}
	out := h.login(t, at)
	for _, want := range []string{
		"logged in to " + at, "issuer   " + server.URL,
		"client   registered", "scopes   read", "renewed without you", "tokens.json",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nhas not: %s", out, want)
		}
	}
	if out := h.run(t, exitOK, "mcp", "tools", at); !strings.Contains(out, "whoami") {
		t.Errorf("%s", out)
	}
	if out := h.run(t, exitOK, "mcp", "call", strings.TrimPrefix(server.URL, "http://"),
		"whoami"); !strings.Contains(out, "ann") {
		t.Errorf("%s", out)
	}
	if out := h.run(t, exitOK, "login", "--list"); !strings.Contains(out, at) ||
		!strings.Contains(out, "scopes   read") {
		t.Errorf("%s", out)
	}
	if out := h.run(t, exitOK, "mcp", "call", "whoami", "--", os.Args[0], "bridge", "stdio",
		at); !strings.Contains(out, "ann") ||
		!strings.Contains(out, "with the login of 'farcall login "+at) {
		t.Errorf("%s", out)
	}
	if out := h.run(t, exitOK, "logout", at); !strings.Contains(out, "logged out of "+at) ||
		server.revoked == 0 {
		t.Errorf("%s, %d revoked", out, server.revoked)
	}
	h.run(t, exitProtocol, "mcp", "tools", at)
	if out := h.run(t, exitFailure, "logout", at); !strings.Contains(out, "not logged in") {
		t.Errorf("%s", out)
	}
}

// Tokens that others can read are not used, and the store that the environment names is.
func TestLoginStore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: there are no such modes")
	}
	server := newAuthorizing(t)
	at := server.URL + "/mcp"
	path := filepath.Join(t.TempDir(), "mine.json")
	h := newHome(t, storeVar+"="+path)
	h.login(t, at)
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "s3cr3t-access") {
		t.Errorf("%s, %v", text, err)
	}
	h.run(t, exitOK, "mcp", "tools", at)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mcp", "tools", at},
		{"login", "--list"},
		{"bridge", "stdio", at},
		{"login", "--no-browser", at},
	} {
		if out := h.run(t, exitFailure, args...); !strings.Contains(out,
			"others can read the token store") {
			t.Errorf("%q: %s", args, out)
		}
	}
}

func TestLoginUsage(t *testing.T) {
	h := newHome(t)
	for want, args := range map[string][]string{
		"one TARGET is needed":        {"login"},
		"has no place for":            {"login", "--list", "x:1"},
		"cannot log in to":            {"login", "tcp://x:1"},
		"cannot read --client-secret": {"login", "--client-secret-file", "none", "http://localhost:1"},
		"in clear text":               {"login", "http://a.example/mcp"},
		"secret needs its ID": {
			"login", "--client-secret-file", writeFile(t, "s3cr3t"),
			"http://localhost:1",
		},
	} {
		if out := h.run(t, exitUsage, args...); !strings.Contains(out, want) {
			t.Errorf("%q: %s", args, out)
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Logins at the same time, in their own processes, do not lose one another.
func TestLoginsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	const n = 12
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s := &tokenStore{Store: mcpauth.NewFileStore(path), name: path}
			if err := s.keep(t.Context(), fmt.Sprintf("https://h/%d", i), &login{Target: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := &tokenStore{Store: mcpauth.NewFileStore(path), name: path}
	if all, err := s.logins(t.Context()); err != nil || len(all) != n {
		t.Errorf("%d logins, %v", len(all), err)
	}
}
