package signin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
)

// A world is a network with MCP servers that each take the tokens of one authorization server each,
// and the service of a gateway.
type world struct {
	t     *testing.T
	svc   *Service
	store *Store
	ups   map[string]*Upstream
	log   *bytes.Buffer
	net   *world // with the authorization servers; itself, or that of another node

	mu      sync.Mutex
	n       int
	life    int                          // of tokens in seconds
	codes   map[string]url.Values        // by code: the authorization request, with the user
	access  map[string]string            // by token: host and user
	refresh map[string]string            // by token: the same
	seen    map[string]map[string]string // by host and principal: the user with a token that came
	secrets []string
	revoked int
	renewed int
	docs    bool              // client ID metadata documents are supported
	keeps   bool              // refresh tokens do not change
	bare    bool              // there are no refresh tokens
	down    bool              // no token is issued
	spent   map[string]string // by refresh token that was used: host and user
	reused  int
	during  func() error // a refresh, after it: what the client gets in place of an answer
	clients []string
}

const public = "https://tools.example"

func newWorld(t *testing.T, store *Store, o *Options) *world {
	t.Helper()
	w := &world{
		t: t, store: store, log: &bytes.Buffer{}, ups: map[string]*Upstream{}, life: 3600,
		codes: map[string]url.Values{}, access: map[string]string{}, refresh: map[string]string{},
		seen: map[string]map[string]string{},
	}
	w.net, w.spent = w, map[string]string{}
	w.begin(o)
	t.Cleanup(func() {
		w.svc.Close()
		for _, secret := range w.secrets {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("the log has the secret %s:\n%s", secret, w.log)
			}
		}
	})
	return w
}

// begin starts a service, as a process does.
func (w *world) begin(o *Options) {
	w.t.Helper()
	var options Options
	if o != nil {
		options = *o
	}
	options.Store, options.URL, options.Name = w.store, public, "Tools"
	options.Find = func(name string) *Upstream { return w.ups[name] }
	options.Names = func() []string { return []string{"a", "b"} }
	options.Logger = slog.New(slog.NewTextHandler(w.log, nil))
	w.svc = New(&options)
	for _, name := range []string{"a", "b"} {
		u, err := w.svc.NewUpstream(name, "https://"+name+".example/mcp", mcpauth.Options{
			HTTP: &http.Client{Transport: w.net}, MetadataURL: public + ClientPath, Name: "Tools",
			Target: name,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.ups[name] = u
	}
}

// RoundTrip is the network: NAME.example is an MCP server, as.NAME.example its authorization
// server.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	if err := w.serve(rec, r); err != nil {
		return nil, err
	}
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

func (w *world) serve(rec *httptest.ResponseRecorder, r *http.Request) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	host, isAS := strings.CutPrefix(r.URL.Host, "as.")
	switch {
	case isAS:
		w.serveAS(rec, r, host)
		if during := w.during; during != nil && r.PostForm.Get("refresh_token") != "" {
			w.mu.Unlock() // it may last
			err = during()
			w.mu.Lock()
		}
	case r.URL.Path == "/.well-known/oauth-protected-resource/mcp":
		answer(rec, 200, map[string]any{
			"resource":              "https://" + host + "/mcp",
			"authorization_servers": []string{"https://as." + host},
		})
	default:
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		at, user, _ := strings.Cut(w.access[token], " ")
		if who := r.Header.Get("Test-Principal"); who != "" && token != "" {
			if w.seen[host] == nil {
				w.seen[host] = map[string]string{}
			}
			w.seen[host][who] = user + "@" + at
		}
		if at != host {
			rec.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			rec.WriteHeader(http.StatusUnauthorized)
		}
	}
	return err
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

// serveAS is an authorization server.
func (w *world) serveAS(rec http.ResponseWriter, r *http.Request, host string) {
	self := "https://as." + host
	_ = r.ParseForm()
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		answer(rec, 200, map[string]any{
			"issuer": self, "authorization_endpoint": self + "/authorize", "token_endpoint": self + "/token",
			"registration_endpoint": self + "/register",
			"revocation_endpoint":   self + "/revoke", "code_challenge_methods_supported": []string{"S256"},
			"client_id_metadata_document_supported": w.docs,
			"token_endpoint_auth_methods_supported": []string{"none"},
		})
	case "/register":
		w.n++
		answer(rec, 201, map[string]any{"client_id": fmt.Sprintf("client-%d", w.n)})
	case "/revoke":
		w.revoked++
		delete(w.access, r.PostForm.Get("token"))
		delete(w.refresh, r.PostForm.Get("token"))
	case "/token":
		if w.down {
			rec.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.token(rec, r.PostForm, host)
	default:
		rec.WriteHeader(http.StatusNotFound)
	}
}

func (w *world) token(rec http.ResponseWriter, form url.Values, host string) {
	user := ""
	switch form.Get("grant_type") {
	case "authorization_code":
		q := w.codes[form.Get("code")]
		delete(w.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if q == nil || q.Get("host") != host ||
			q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			q.Get("redirect_uri") != form.Get("redirect_uri") ||
			q.Get("client_id") != form.Get("client_id") || q.Get("resource") != "https://"+host+"/mcp" {
			answer(rec, 400,
				map[string]string{"error": "invalid_grant", "error_description": "no: " + form.Get("code")})
			return
		}
		user = q.Get("user")
		w.clients = append(w.clients, q.Get("client_id"))
	case "refresh_token":
		used := form.Get("refresh_token")
		at, who, _ := strings.Cut(w.refresh[used], " ")
		if whose := w.spent[used]; whose != "" { // RFC 9700 §4.14.2
			w.reused++
			maps.DeleteFunc(w.refresh, func(_, of string) bool { return of == whose })
			maps.DeleteFunc(w.access, func(_, of string) bool { return of == whose })
		}
		if delete(w.refresh, used); at == host {
			w.spent[used] = at + " " + who
		}
		if at != host {
			answer(rec, 400, map[string]string{"error": "invalid_grant"})
			return
		}
		user = who
		w.renewed++
	}
	access, refresh := w.secret("access"), w.secret("refresh")
	if used := form.Get("refresh_token"); w.keeps && used != "" {
		refresh = used
		delete(w.spent, used)
	}
	if w.bare {
		refresh = ""
	}
	w.access[access], w.refresh[refresh] = host+" "+user, host+" "+user
	answer(rec, 200,
		map[string]any{
			"access_token": access, "token_type": "Bearer", "refresh_token": refresh,
			"expires_in": w.life,
		})
}

func (w *world) secret(kind string) string {
	w.n++
	s := fmt.Sprintf("s3cret-%s-%d", kind, w.n)
	w.secrets = append(w.secrets, s)
	return s
}

// A browser is a person's.
type browser struct {
	w       *world
	user    string
	cookies map[string]string
	owner   string // the owner of the credentials that it shows the gateway
}

func (w *world) browser(user string) *browser {
	return &browser{w: w, user: user, cookies: map[string]string{}}
}

// send sends a request to the gateway, and fails the test when the page has a secret.
func (b *browser) send(
	method, address string, form url.Values, header ...string,
) *httptest.ResponseRecorder {
	b.w.t.Helper()
	r := httptest.NewRequest(method, address, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	rec := httptest.NewRecorder()
	b.w.svc.ServeHTTP(rec, r, b.owner)
	for _, c := range rec.Result().Cookies() {
		if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode ||
			!strings.HasPrefix(c.Name, "__Host-") {
			b.w.t.Errorf("the cookie %v", c)
		}
		b.cookies[c.Name] = c.Value
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	for _, secret := range b.w.secrets {
		if strings.Contains(rec.Body.String(), secret) {
			b.w.t.Errorf("a page has the secret %s: %s", secret, rec.Body)
		}
	}
	return rec
}

var linkField = regexp.MustCompile(`name="link" value="(\w+)"`)

// open opens a link and presses the button. It returns where the authorization server is; "" when
// the gateway refuses.
func (b *browser) open(link string) string {
	b.w.t.Helper()
	start := b.send("GET", link, nil)
	found := linkField.FindStringSubmatch(start.Body.String())
	if found == nil {
		return ""
	}
	return b.send("POST", public+Path, url.Values{"link": {found[1]}}, "Origin", public,
		"Sec-Fetch-Site", "same-origin").Header().Get("Location")
}

// consent signs in at the authorization server. It returns where that sends the browser to.
func (b *browser) consent(address string) string {
	b.w.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.w.t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", b.user)
	q.Set("host", strings.TrimPrefix(u.Host, "as."))
	b.w.net.mu.Lock()
	code := b.w.net.secret("code")
	b.w.net.codes[code] = q
	b.w.net.mu.Unlock()
	return q.Get("redirect_uri") + "?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
}

// back is the browser that comes back. It reports whether the page says that it is signed in.
func (b *browser) back(address string) bool {
	b.w.t.Helper()
	rec := b.send("GET", address, nil)
	return rec.Code == 200 && strings.Contains(rec.Body.String(), "You may close this window.")
}

// signIn does all of it.
func (b *browser) signIn(upstream string, who Who) bool {
	b.w.t.Helper()
	link, err := b.w.ups[upstream].Link(b.w.t.Context(), who, nil)
	if err != nil {
		b.w.t.Fatal(err)
	}
	there := b.open(link)
	return there != "" && b.back(b.consent(there))
}

// call makes a call at an upstream for a principal, as the transport does.
func (w *world) call(upstream string, who Who) (status int, err error) {
	u := w.ups[upstream]
	for range 3 {
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost,
			"https://"+upstream+".example/mcp", http.NoBody)
		if err != nil {
			return 0, err
		}
		r.Header.Set("Test-Principal", who.Name)
		if err := u.Authorize(w.t.Context(), who, r); err != nil {
			return 0, err
		}
		resp, err := w.net.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			return resp.StatusCode, nil
		}
		if again, err := u.Challenge(w.t.Context(), who, resp); err != nil || !again {
			return 401, err
		}
	}
	return 0, errors.New("again and again")
}

// rightful fails the test when an upstream has seen a token that is not the principal's own.
func (w *world) rightful() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for host, all := range w.seen {
		for who, user := range all {
			if user != who+"@"+host && user != "@" { // "@": a token that counts no more
				w.t.Fatalf("%s has got the token of %s for %s", host, user, who)
			}
		}
	}
}

func (w *world) ready(upstream string, who Who) bool {
	w.t.Helper()
	ready, err := w.ups[upstream].Ready(w.t.Context(), who)
	if err != nil {
		w.t.Fatal(err)
	}
	return ready
}

func person(name string) Who { return Who{idOf(name, "").Owner, name} }

// pass lets time pass in a bubble.
func pass(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	<-ctx.Done()
}

// raw sends a request with a URL as it is.
func (b *browser) raw(method string, u *url.URL, form url.Values) *httptest.ResponseRecorder {
	r := &http.Request{
		Method: method, URL: u, Host: "tools.example", Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(form.Encode())),
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	rec := httptest.NewRecorder()
	b.w.svc.ServeHTTP(rec, r, "")
	return rec
}

func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 'A' || r > 'Z' })
}
