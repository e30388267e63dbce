package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A signLab is an MCP server, the authorization server that its tokens come from, and a gateway
// before it.
type signLab struct {
	t        *testing.T
	as, far  *httptest.Server
	web      *httptest.Server
	g        *Gateway
	config   *Config
	log      *lockedBuffer
	auditing string
	shared   store.Store // nil: the gateway is no node

	mu      sync.Mutex
	n       int
	life    int
	codes   map[string]url.Values // authorization requests, with the user
	access  map[string]string     // users
	refresh map[string]string
	renewed int
	revoked int
	secrets []string
	used    map[string]int // calls by user
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newSignLab makes a lab with a server that speaks the eras. edit changes the configuration of the
// gateway.
func newSignLab(t *testing.T, eras string, edit func(*Config), shared ...store.Store) *signLab {
	t.Helper()
	l := &signLab{
		t: t, life: 3600, codes: map[string]url.Values{}, access: map[string]string{},
		refresh: map[string]string{}, used: map[string]int{},
		log: &lockedBuffer{}, auditing: filepath.Join(t.TempDir(), "audit.jsonl"),
	}
	s := mcp.NewServer("far", "1", &mcp.ServerOptions{Eras: eras})
	mcp.AddTool(s, mcp.Tool{
		Name: "whoami", Annotations: &spec.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
	}, func(ctx context.Context, _ struct{}) (string, error) {
		return l.userOf(mcphttp.RequestFrom(ctx)), nil
	})
	s.AddResource(mcp.Resource{URI: "mail://inbox", Name: "inbox"},
		func(ctx context.Context, uri string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{
					{URI: uri, Text: "inbox of " + l.userOf(mcphttp.RequestFrom(ctx))},
				},
				nil
		})
	h := mcphttp.NewHandler(s, nil)
	l.as = httptest.NewServer(http.HandlerFunc(l.serveAS))
	l.far = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/.well-known/oauth-protected-resource/mcp":
			fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, l.far.URL+"/mcp", l.as.URL)
		case l.userOf(r) == "":
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	}))
	l.web = httptest.NewUnstartedServer(nil)
	l.config = &Config{
		Upstreams: []*Upstream{{
			Name: "far", URL: l.far.URL + "/mcp", Lifetime: "principal",
			Profile: profileMCP, Auth: &Credentials{Type: authSignIn},
		}},
		Guard: &guard.Config{},
	}
	l.config.SignIn.URL = "http://" + l.web.Listener.Addr().String()
	l.config.Guard.Audit.File = l.auditing
	for _, who := range []string{"ann", "bob"} {
		l.config.Guard.Keys = append(l.config.Guard.Keys,
			guard.Key{ID: who, Hash: hashOfKey(personKey(who))})
	}
	if edit != nil {
		edit(l.config)
	}
	for _, s := range shared {
		l.shared = s
	}
	l.start()
	t.Cleanup(func() {
		l.stop()
		for _, server := range []*httptest.Server{l.far, l.as} {
			server.CloseClientConnections()
			server.Close()
		}
		s.Close()
		audit := readText(t, l.auditing)
		for _, secret := range l.secrets {
			if strings.Contains(l.log.String()+audit, secret) {
				t.Errorf("the log or the audit has the secret %s", secret)
			}
		}
	})
	return l
}

// start starts a gateway at the address of the lab.
func (l *signLab) start() {
	l.t.Helper()
	g, err := New(l.config,
		&Options{
			Shared: l.shared,
			Logger: slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
	if err != nil {
		l.t.Fatal(err)
	}
	l.g = g
	l.web.Config.Handler = g
	l.web.Start()
}

func (l *signLab) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.web.CloseClientConnections()
	l.web.Close()
	_ = l.g.Shutdown(ctx)
}

func personKey(who string) string { return "key-of-" + who + strings.Repeat("k", 32) }

func hashOfKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// userOf returns the user of the token that a request has.
func (l *signLab) userOf(r *http.Request) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	user := l.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	l.used[user]++
	return user
}

func (l *signLab) secret(kind string) string {
	l.n++
	s := fmt.Sprintf("s3cret-%s-%d", kind, l.n)
	l.secrets = append(l.secrets, s)
	return s
}

// serveAS is the authorization server. The user is the one that the browser names.
func (l *signLab) serveAS(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		fmt.Fprintf(w,
			`{"issuer":%[1]q,"authorization_endpoint":"%[2]s/authorize","token_endpoint":"%[2]s/token","registration_endpoint":"%[2]s/register",
			"revocation_endpoint":"%[2]s/revoke","code_challenge_methods_supported":["S256"]}`, l.as.URL,
			l.as.URL)
	case "/register":
		fmt.Fprint(w, `{"client_id":"gateway"}`)
	case "/authorize":
		code := l.secret("code")
		q := r.URL.Query()
		q.Set("user", r.Header.Get("Test-User"))
		l.codes[code] = q
		w.Header().Set("Location",
			q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode())
		w.WriteHeader(http.StatusFound)
	case "/revoke":
		l.revoked++
		delete(l.access, r.PostForm.Get("token"))
		delete(l.refresh, r.PostForm.Get("token"))
	case "/token":
		l.token(w, r.PostForm)
	}
}

func (l *signLab) token(w http.ResponseWriter, form url.Values) {
	user := ""
	if code := form.Get("code"); code != "" {
		q := l.codes[code]
		delete(l.codes, code)
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if q.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) &&
			q.Get("redirect_uri") == form.Get("redirect_uri") {
			user = q.Get("user")
		}
	} else {
		user = l.refresh[form.Get("refresh_token")]
		delete(l.refresh, form.Get("refresh_token"))
		l.renewed++
	}
	if user == "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	access, refresh := l.secret("access"), l.secret("refresh")
	l.access[access], l.refresh[refresh] = user, user
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","refresh_token":%q,"expires_in":%d}`,
		access, refresh, l.life)
}

// browser is that of a user.
type browser struct {
	http.RoundTripper
	user string
}

// RoundTrip names the user, as a cookie of the authorization server would.
func (b browser) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Test-User", b.user)
	return b.RoundTripper.RoundTrip(r)
}

var startLink = regexp.MustCompile(`name="link" value="(\w+)"`)

// openLink signs a user in at a link, and returns the last page.
func (l *signLab) openLink(user, link string) string {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err.Error()
	}
	c := &http.Client{Jar: jar, Transport: browser{&http.Transport{DisableKeepAlives: true}, user}}
	page := func(resp *http.Response, err error) string {
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return html.UnescapeString(string(text))
	}
	found := startLink.FindStringSubmatch(page(c.Get(link)))
	if found == nil {
		return "no start page"
	}
	return page(c.PostForm(l.config.SignIn.URL+"/signin", url.Values{"link": {found[1]}}))
}

// A signClient is a client of a principal; its user signs in when asked, if it can be asked.
type signClient struct {
	*mcp.Client
	changed, completed chan string
	asked              chan string
}

func (l *signLab) client(who, era string, visits bool) *signClient {
	l.t.Helper()
	return l.clientAt("/mcp", who, era, visits)
}

func (l *signLab) clientAt(path, who, era string, visits bool) *signClient {
	l.t.Helper()
	c := &signClient{
		changed: make(chan string, 100), completed: make(chan string, 100),
		asked: make(chan string, 100),
	}
	o := &mcp.ClientOptions{
		Era:  era,
		HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + personKey(who)}}},
		OnListChanged: func(kind string) {
			c.changed <- kind
		}, OnElicitationComplete: func(id string) { c.completed <- id },
	}
	if visits {
		o.Elicit = func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			c.asked <- p.URL
			if page := l.openLink(who, p.URL); !strings.Contains(page, "You may close this window.") {
				l.t.Errorf("the page: %s", page)
			}
			return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
		}
	}
	var err error
	if strings.HasPrefix(path, "/") {
		path = l.web.URL + path
	}
	if c.Client, err = mcp.Dial(l.t.Context(), path, o); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	return c
}

// tools are the names that a client is shown.
func (c *signClient) tools(t *testing.T) string {
	t.Helper()
	var names []string
	all, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range all {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// restart ends the gateway and starts another one at the same address.
func (l *signLab) restart() {
	l.t.Helper()
	address := l.web.Listener.Addr().String()
	l.stop()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.web = &httptest.Server{Listener: listener, Config: &http.Server{}}
	l.start()
}

// forget has the server refuse the access tokens of a user.
func (l *signLab) forget(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, whose := range l.access {
		if whose == user {
			delete(l.access, token)
		}
	}
}

// who is the principal of a key.
func (l *signLab) who(id string) signin.Who {
	return signin.Who{Owner: ownerOf("key", "", id), Name: id}
}
