package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// capturing is an MCP server that keeps what it was sent.
type capturing struct {
	*httptest.Server

	mu   sync.Mutex
	all  []string // requests as text
	seen map[string]int
}

func newCapturing(t *testing.T, eras string) *capturing {
	t.Helper()
	s := mcp.NewServer("captured", "1", &mcp.ServerOptions{Eras: eras})
	mcp.AddTool(s, mcp.Tool{Name: "add"}, func(context.Context, struct{ A, B int }) (string, error) {
		return "3", nil
	})
	c := &capturing{seen: map[string]int{}}
	h := mcphttp.NewHandler(s, nil)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.mu.Lock()
		c.all = append(c.all, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header, " ", string(body)))
		c.seen[r.Method+" "+r.Header.Get("X-Cred")+r.Header.Get("Authorization")]++
		c.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		c.CloseClientConnections()
		c.Close()
		s.Close()
	})
	return c
}

// callers is a gateway with callers that say by a header who they are.
func callers(t *testing.T, u *Upstream) *httptest.Server {
	t.Helper()
	g, err := New(&Config{Upstreams: []*Upstream{u}}, &Options{Owner: func(r *http.Request) string {
		return r.Header.Get("X-Who")
	}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), upstreamKey{},
			&guard.Principal{ID: r.Header.Get("X-Who"), Kind: "user"})
		g.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = g.Shutdown(ctx)
	})
	return web
}

const callersSecret = "s3cr3t-of-the-caller"

// callAs makes a call as a principal with many credentials.
func callAs(t *testing.T, web *httptest.Server, who, era string) (string, error) {
	t.Helper()
	h := http.Header{
		"X-Who": {who}, "Authorization": {"Bearer " + callersSecret}, "Dpop": {callersSecret},
		"Cookie":    {"a=" + callersSecret},
		"X-Api-Key": {callersSecret}, "Proxy-Authorization": {callersSecret},
		"Signature": {callersSecret},
	}
	c, err := mcp.Dial(t.Context(), web.URL+"/mcp",
		&mcp.ClientOptions{Era: era, HTTP: &mcphttp.DialOptions{Header: h}})
	if err != nil {
		return "", err
	}
	defer c.Close()
	return mcp.CallTool[string](t.Context(), c, "add", map[string]int{"A": 1, "B": 2})
}

// Each request to the server has the credentials of the principal that it is made for, and nothing
// that the caller has shown to the gateway.
func TestPrincipalsAuth(t *testing.T) {
	for _, eras := range []string{"legacy", "modern"} {
		for _, lifetime := range []string{"principal", "session", "call"} {
			t.Run(eras+" "+lifetime, func(t *testing.T) {
				server := newCapturing(t, eras)
				web := callers(t, &Upstream{
					Name: "a", URL: server.URL, Lifetime: lifetime, Profile: profileMCP,
					Auth: &Credentials{Type: authPrincipals, Principals: map[string]map[string]string{
						"ann": {"X-Cred": "of-ann"}, "bob": {"X-Cred": "of-bob"}, "*": {"X-Cred": "of-others"},
					}},
				})
				for _, era := range []string{"legacy", "modern"} {
					for _, who := range []string{"ann", "bob", "eve"} {
						if got, err := callAs(t, web, who, era); err != nil || got != "3" {
							t.Errorf("%s: %q, %v", who, got, err)
						}
					}
				}
				server.mu.Lock()
				defer server.mu.Unlock()
				for _, text := range server.all {
					if strings.Contains(text, callersSecret) || strings.Contains(text, "X-Who") {
						t.Errorf("the server got what is the caller's: %s", text)
					}
				}
				for _, want := range []string{"POST of-ann", "POST of-bob", "POST of-others"} {
					if server.seen[want] == 0 {
						t.Errorf("no %s: %v", want, server.seen)
					}
				}
				if n := server.seen["POST "] + server.seen["GET "] + server.seen["DELETE "]; n > 0 {
					t.Errorf("%d requests without credentials: %v", n, server.seen)
				}
			})
		}
	}
}

// Without credentials for a caller nothing is sent, and the error says what is missing.
func TestPrincipalsAuthMissing(t *testing.T) {
	server := newCapturing(t, "legacy")
	web := callers(t, &Upstream{
		Name: "a", URL: server.URL, Lifetime: "principal", Profile: profileMCP,
		Auth: &Credentials{
			Type:       authPrincipals,
			Principals: map[string]map[string]string{"ann": {"X-Cred": "s3cr3t-header"}},
		},
	})
	_, err := callAs(t, web, "eve", "legacy")
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("%v", err)
	}
	if len(server.all) > 0 {
		t.Errorf("%q", server.all)
	}
	p := &perCaller{
		at: mustURL(t, server.URL), all: map[string]map[string]string{"ann": {"X-Cred": "s3cr3t-header"}},
	}
	r := httptest.NewRequest(http.MethodPost, server.URL, nil)
	err = p.Authorize(context.WithValue(t.Context(), upstreamKey{},
		&guard.Principal{ID: "eve", Issuer: "https://id"}), r)
	if err == nil || !strings.Contains(err.Error(), `the principal "https://id|eve"`) {
		t.Errorf("%v", err)
	}
	if err = p.Authorize(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "the caller is unauthenticated") {
		t.Errorf("%v", err)
	}
	ann := context.WithValue(t.Context(), upstreamKey{}, &guard.Principal{ID: "ann"})
	if err = p.Authorize(ann, httptest.NewRequest(http.MethodPost, "http://evil.example/",
		nil)); err == nil {
		t.Error("credentials go to another address")
	}
	if text := fmt.Sprintf("%v %+v %#v", p, p, p); strings.Contains(text, "s3cr3t") {
		t.Error(text)
	}
}

// A token that is bound to a key of the caller is of no use to the gateway, and none is no
// reason to send the call without.
func TestPassthroughRefused(t *testing.T) {
	p := &perCaller{at: mustURL(t, "http://a.example"), pass: true}
	for name, who := range map[string]*guard.Principal{
		"unauthenticated": nil,
		"no token":        {ID: "ann"},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://a.example/", nil)
		if err := p.Authorize(context.WithValue(t.Context(), upstreamKey{}, who), r); err == nil ||
			r.Header.Get("Authorization") != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !bound(&guard.Principal{Claims: map[string]any{"cnf": map[string]any{"jkt": "x"}}}) ||
		bound(&guard.Principal{}) {
		t.Error("which tokens are bound?")
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCheckAuth(t *testing.T) {
	some := map[string]map[string]string{"*": {"X": "s3cr3t"}}
	for want, u := range map[string]*Upstream{
		"": {Auth: &Credentials{Type: authOAuth}},
		" ": {
			Auth:     &Credentials{Type: authExchange, ClientID: "x", Secret: "s3cr3t", Audience: "y"},
			Lifetime: "principal",
		},
		"  ":                         {Auth: &Credentials{Type: authPassthrough}, Lifetime: "call"},
		"   ":                        {},
		"the profile raw":            {Auth: &Credentials{Type: authOAuth}, Profile: profileRaw},
		"principals goes by who":     {Auth: &Credentials{Type: authPrincipals, Principals: some}},
		"token_exchange goes by who": {Auth: &Credentials{Type: authExchange}, Lifetime: "shared"},
		"passthrough goes by who":    {Auth: &Credentials{Type: authPassthrough}},
		"client_credentials needs":   {Auth: &Credentials{Type: authClient, ClientID: "x"}},
		"no client_id": {
			Auth:     &Credentials{Type: authExchange, Secret: "s3cr3t"},
			Lifetime: "call",
		},
		"principals has no headers": {Auth: &Credentials{Type: authPrincipals}, Lifetime: "call"},
		"principals is for":         {Auth: &Credentials{Type: authOAuth, Principals: some}},
		"audience is for":           {Auth: &Credentials{Type: authOAuth, Audience: "x"}},
		"store is for": {
			Auth: &Credentials{Type: authClient, ClientID: "x", Secret: "s3cr3t", Store: "f"},
		},
		"a secret and a key": {
			Auth: &Credentials{Type: authClient, ClientID: "x", Secret: "s3cr3t", Key: "s3cr3t"},
		},
		"tokens for http://a.example": {
			Auth: &Credentials{Type: authPassthrough}, Lifetime: "call",
			URL: "http://a.example/mcp",
		},
		"    ": {
			Auth: &Credentials{Type: authPassthrough}, Lifetime: "call",
			URL: "http://127.0.0.1:1/mcp",
		},
		"     ":                   {Auth: &Credentials{Type: authWorkload, AssertionFile: "f"}},
		"workload_identity needs": {Auth: &Credentials{Type: authWorkload}},
		"assertion_file is for": {
			Auth: &Credentials{Type: authClient, ClientID: "x", Secret: "s3cr3t", AssertionFile: "f"},
		},
		"key, and no client_id": {
			Auth: &Credentials{Type: authWorkload, Key: "s3cr3t", AssertionFile: "f"},
		},
		"private key is not in PEM": {
			Auth: &Credentials{Type: authClient, ClientID: "x", Key: "s3cr3t"},
		},
		"is no scope":                 {Auth: &Credentials{Type: authOAuth, Scopes: []string{"a b"}}},
		"would go over the network":   {Auth: &Credentials{Type: authOAuth}, URL: "http://a.example/mcp"},
		"there is no type":            {Auth: &Credentials{Type: "magic"}},
		"metadata document is at a U": {Auth: &Credentials{Type: authOAuth, MetadataURL: "http://x/"}},
	} {
		u.Name = "a"
		if u.URL == "" {
			u.URL = "https://a.example/mcp"
		}
		message, hint := u.checkAuth()
		want = strings.TrimSpace(want)
		if (message == "") != (want == "") || !strings.Contains(message, want) ||
			message != "" && hint == "" || strings.Contains(message+hint, "s3cr3t") {
			t.Errorf("%s: %s; %s", want, message, hint)
		}
		auth, err := u.authorizer(nil)
		if (err == nil) != (want == "") || err == nil && (auth == nil) != (u.Auth == nil) {
			t.Errorf("%s: %v, %v", want, auth, err)
		}
	}
}

// Who has logged in for a server is who calls it, and who has not learns how.
func TestOAuthNeedsLogin(t *testing.T) {
	resource := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(resource.Close)
	web := callers(t, &Upstream{
		Name: "a", URL: resource.URL + "/mcp", Profile: profileMCP,
		Auth: &Credentials{Type: authOAuth, Store: t.TempDir() + "/tokens.json"},
	})
	_, err := callAs(t, web, "ann", "legacy")
	if err == nil {
		t.Fatal("a call without a login")
	}
	t.Log(err)
	u := &Upstream{
		Name: "a", URL: resource.URL + "/mcp",
		Auth: &Credentials{Type: authOAuth, Store: t.TempDir() + "/tokens.json"},
	}
	auth, err := u.authorizer(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, u.URL, nil)
	_, err = auth.Challenge(t.Context(),
		&http.Response{
			StatusCode: http.StatusUnauthorized, Request: r,
			Header: http.Header{"Www-Authenticate": {"Bearer"}},
		})
	if err == nil || !strings.Contains(err.Error(), "farcall login --store") ||
		!strings.Contains(err.Error(), resource.URL) {
		t.Errorf("%v", err)
	}
}

// The platform's JWT gets a token for a server, and is read again for the next one.
func TestWorkloadIdentity(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	var asked []string
	mux := http.NewServeMux()
	as := httptest.NewServer(mux)
	t.Cleanup(as.Close)
	document := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.ReplaceAll(text, "URL", as.URL))
		}
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp",
		document(`{"resource":"URL/mcp","authorization_servers":["URL"]}`))
	mux.HandleFunc("/.well-known/oauth-authorization-server",
		document(`{"issuer":"URL","token_endpoint":"URL/token"}`))
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.PostFormValue("grant_type")+" "+r.PostFormValue("assertion"))
		fmt.Fprintf(w, `{"access_token":"access-%d","token_type":"Bearer","expires_in":1}`, len(asked))
	})
	text := "upstreams:\n  a: {url: '" + as.URL +
		"/mcp', auth: {type: workload_identity, assertion_file: token}}\n"
	config := filepath.Join(dir, "farcall.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(config)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := c.Upstreams[0].authorizer(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, aud := range []string{as.URL, as.URL + "/token", "https://other.example"} {
		claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"aud":%q}`, aud))
		if err := os.WriteFile(file, []byte("e30."+claims+".c2ln\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if i > 0 { // without the token of before
			if auth, err = c.Upstreams[0].authorizer(nil); err != nil {
				t.Fatal(err)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, as.URL+"/mcp", nil)
		err := auth.Authorize(t.Context(), r)
		if i == 2 {
			if err == nil || len(asked) != 2 || strings.Contains(err.Error(), claims) {
				t.Errorf("another's JWT: %v, %q", err, asked)
			}
			continue
		}
		if want := mcpauth.GrantAssertion + " e30." + claims + ".c2ln"; err != nil ||
			r.Header.Get("Authorization") != fmt.Sprintf("Bearer access-%d", i+1) || asked[i] != want {
			t.Errorf("%v, %q, %q", err, r.Header, asked)
		}
	}
}
