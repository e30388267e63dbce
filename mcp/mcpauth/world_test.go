package mcpauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A world is some hosts on its own network, and a clock.
type world struct {
	t  testing.TB
	mu sync.Mutex

	now   time.Time
	hosts map[string]http.Handler
	seen  []string // METHOD https://host/path
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	return &world{t: tb, now: time.Unix(1_900_000_000, 0), hosts: map[string]http.Handler{}}
}

// RoundTrip is the network.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.seen = append(w.seen, r.Method+" "+r.URL.Scheme+"://"+r.URL.Host+r.URL.EscapedPath())
	h := w.hosts[r.URL.Host]
	w.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errors.New("no such host")
	}
	if b, ok := h.(broken); ok && r.URL.Path == "/token" {
		return nil, b.err
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// visits returns what was asked of the network since the last time.
func (w *world) visits() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// client returns one for the server of the world.
func (w *world) client(o *Options) *Client {
	w.t.Helper()
	if o == nil {
		o = &Options{}
	}
	o.HTTP = &http.Client{Transport: w}
	c, err := New(serverURL, o)
	if err != nil {
		w.t.Fatal(err)
	}
	c.now = w.clock
	return c
}

// call sends a request as mcp/mcphttp does.
func (w *world) call(ctx context.Context, c *Client) (status int, err error) {
	for try := 0; ; try++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL, strings.NewReader("{}"))
		if err != nil {
			return 0, err
		}
		if err := c.Authorize(ctx, r); err != nil {
			return 0, err
		}
		resp, err := w.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden ||
			try == 2 {
			return resp.StatusCode, nil
		}
		again, err := c.Challenge(ctx, resp)
		if err != nil || !again {
			return resp.StatusCode, err
		}
	}
}

// must calls and fails the test unless the server is content.
func (w *world) must(c *Client) {
	w.t.Helper()
	if status, err := w.call(w.t.Context(), c); err != nil || status != 200 {
		w.t.Fatalf("the call ends with %d, %v", status, err)
	}
}

const (
	serverURL = "https://mcp.example/mcp"
	asHost    = "as.example"
	asURL     = "https://" + asHost
)

// An mcpServer takes the tokens of one authorization server at a time.
type mcpServer struct {
	w         *world
	as        *authServer
	challenge string                       // of 401
	prm       map[string]map[string]any    // by path
	judge     func(g *given) (int, string) // status and challenge for a good token
	requests  []http.Header
}

// An authServer is an authorization server: it checks requests as a real one does.
type authServer struct {
	w         *world
	issuer    string
	metadata  map[string]any
	at        []string // where the metadata is
	confident bool     // clients have a secret
	rotate    bool
	life      any // expires_in
	nonce     string
	iss       string // in redirects; "": none
	override  func(w http.ResponseWriter, form url.Values) bool

	mu       sync.Mutex
	n        int
	clients  map[string]map[string]any
	codes    map[string]url.Values
	given    map[string]*given // by access token
	refresh  map[string]*given
	forms    []url.Values // of the token endpoint
	headers  []http.Header
	revoked  []string
	requests []url.Values // of the authorization endpoint
}

// given is a token.
type given struct {
	client, scope, resource, subject, kind string
	ends                                   time.Time
}

// newAS adds an authorization server.
func (w *world) newAS(host string) *authServer {
	a := &authServer{
		w: w, issuer: "https://" + host, at: []string{"/.well-known/oauth-authorization-server"},
		life: 3600, iss: "https://" + host,
		clients: map[string]map[string]any{}, codes: map[string]url.Values{}, given: map[string]*given{},
		refresh: map[string]*given{},
	}
	a.metadata = map[string]any{
		"issuer": a.issuer, "authorization_endpoint": a.issuer + "/authorize",
		"token_endpoint":        a.issuer + "/token",
		"registration_endpoint": a.issuer + "/register", "revocation_endpoint": a.issuer + "/revoke",
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"authorization_response_iss_parameter_supported": true,
		"scopes_supported":                               []string{"a", "b", "offline_access"},
	}
	w.hosts[host] = a
	return a
}

// newServer adds the MCP server that takes tokens from as.
func (w *world) newServer(as *authServer) *mcpServer {
	s := &mcpServer{w: w, as: as, challenge: `Bearer error="invalid_token"`}
	s.prm = map[string]map[string]any{
		"/.well-known/oauth-protected-resource/mcp": {
			"resource":              serverURL,
			"authorization_servers": []string{as.issuer},
		},
	}
	w.hosts["mcp.example"] = s
	return s
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	text, err := jsonv2.Append(nil, v)
	if err != nil {
		text = []byte(err.Error())
	}
	_, _ = w.Write(text)
}

// ServeHTTP is the MCP server.
func (s *mcpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if doc, ok := s.prm[r.URL.EscapedPath()]; ok {
		answer(w, 200, doc)
		return
	}
	if r.URL.Path != "/mcp" {
		http.NotFound(w, r)
		return
	}
	s.as.mu.Lock()
	defer s.as.mu.Unlock()
	s.requests = append(s.requests, r.Header.Clone())
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	g := s.as.given[token]
	if g == nil || kind != g.kind || !s.w.clock().Before(g.ends) {
		if s.challenge != "" {
			w.Header().Set("WWW-Authenticate", s.challenge)
		}
		answer(w, 401, "no")
		return
	}
	if s.judge != nil {
		if status, challenge := s.judge(g); status != 200 {
			w.Header().Set("WWW-Authenticate", challenge)
			answer(w, status, "no")
			return
		}
	}
	answer(w, 200, map[string]any{})
}

// ServeHTTP is the authorization server.
func (a *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch path := r.URL.EscapedPath(); {
	case slices.Contains(a.at, path):
		answer(w, 200, a.metadata)
	case path == "/register":
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		a.n++
		id := fmt.Sprintf("client-%d", a.n)
		a.clients[id] = body
		reply := maps.Clone(body)
		reply["client_id"] = id
		if a.confident {
			reply["client_secret"] = "secret&of=" + id
		}
		answer(w, 201, reply)
	case path == "/token":
		_ = r.ParseForm()
		a.forms, a.headers = append(a.forms, r.PostForm), append(a.headers, r.Header.Clone())
		if a.override == nil || !a.override(w, r.PostForm) {
			a.token(w, r)
		}
	case path == "/revoke":
		_ = r.ParseForm()
		a.revoked = append(a.revoked, r.PostForm.Get("token"))
	default:
		http.NotFound(w, r)
	}
}

func (a *authServer) refuse(w http.ResponseWriter, code, text string) {
	answer(w, 400, map[string]string{"error": code, "error_description": text})
}

func (a *authServer) token(w http.ResponseWriter, r *http.Request) {
	form := r.PostForm
	id := form.Get("client_id")
	if user, secret, ok := r.BasicAuth(); ok {
		id, _ = url.QueryUnescape(user)
		if s, _ := url.QueryUnescape(secret); s != "secret&of="+id {
			a.refuse(w, "invalid_client", "wrong secret")
			return
		}
	}
	if a.nonce != "" && !strings.Contains(decoded(r.Header.Get("DPoP")), `"nonce":"`+a.nonce+`"`) {
		w.Header().Set("DPoP-Nonce", a.nonce)
		a.refuse(w, "use_dpop_nonce", "")
		return
	}
	g := &given{
		client: id, scope: form.Get("scope"), resource: form.Get("resource"),
		subject: form.Get("subject_token"),
	}
	switch form.Get("grant_type") {
	case "authorization_code":
		q := a.codes[form.Get("code")]
		delete(a.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		switch {
		case q == nil:
			a.refuse(w, "invalid_grant", "unknown code "+form.Get("code"))
			return
		case q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]),
			q.Get("redirect_uri") != form.Get("redirect_uri"),
			q.Get("client_id") != id, q.Get("resource") != form.Get("resource"):
			a.refuse(w, "invalid_grant", "it does not fit the authorization request")
			return
		}
		g.scope = q.Get("scope")
	case "refresh_token":
		old := a.refresh[form.Get("refresh_token")]
		if old == nil || old.client != id {
			a.refuse(w, "invalid_grant", "unknown refresh token "+form.Get("refresh_token"))
			return
		}
		if a.rotate {
			delete(a.refresh, form.Get("refresh_token"))
		}
		g = &given{client: id, scope: old.scope, resource: old.resource}
	}
	a.issue(w, g, r.Header.Get("DPoP") != "", form.Get("grant_type"))
}

func (a *authServer) issue(w http.ResponseWriter, g *given, bound bool, grant string) {
	a.n++
	access := fmt.Sprintf("access-%s-%d", a.issuer[len("https://"):], a.n)
	g.kind = "Bearer"
	if bound {
		g.kind = "DPoP"
	}
	life := time.Hour
	if n, ok := a.life.(int); ok {
		life = time.Duration(n) * time.Second
	}
	g.ends = a.w.clock().Add(life)
	a.given[access] = g
	reply := map[string]any{
		"access_token": access, "token_type": g.kind, "scope": g.scope,
		"expires_in": a.life,
	}
	if strings.Contains(g.scope, "offline_access") && (grant != "refresh_token" || a.rotate) {
		refresh := fmt.Sprintf("refresh-%d", a.n)
		a.refresh[refresh] = g
		reply["refresh_token"] = refresh
	}
	answer(w, 200, reply)
}

// decoded is the payload of a JWT.
func decoded(jwt string) string {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return ""
	}
	b, _ := base64.RawURLEncoding.DecodeString(parts[1])
	return string(b)
}

// user signs in at once. edit changes what the browser comes back with.
func (a *authServer) user(
	edit func(q url.Values),
) func(context.Context, string, func(string) (string, error)) (*url.URL, error) {
	return func(
		_ context.Context, redirect string, begin func(string) (string, error),
	) (*url.URL, error) {
		if redirect == DefaultRedirect {
			redirect = "http://127.0.0.1:5555/callback"
		}
		address, err := begin(redirect)
		if err != nil {
			return nil, err
		}
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		q := u.Query()
		as := a
		a.w.mu.Lock()
		if other, ok := a.w.hosts[u.Host].(*authServer); ok {
			as = other
		}
		a.w.mu.Unlock()
		as.mu.Lock()
		defer as.mu.Unlock()
		as.n++
		code := fmt.Sprintf("code-%d", as.n)
		as.codes[code] = q
		as.requests = append(as.requests, q)
		back := url.Values{"code": {code}, "state": {q.Get("state")}}
		if as.iss != "" {
			back.Set("iss", as.iss)
		}
		if edit != nil {
			edit(back)
		}
		return url.Parse(redirect + "?" + back.Encode())
	}
}

// simple is a world with one server and one authorization server.
func simple(t *testing.T) (*world, *mcpServer, *authServer) {
	t.Helper()
	w := newWorld(t)
	as := w.newAS(asHost)
	return w, w.newServer(as), as
}
