package interop

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// provider is an OpenID provider that is not ours: npm's oidc-provider.
type provider struct {
	issuer string

	mu   sync.Mutex
	said []string
	more chan struct{} // closed when there is output
}

// newProvider starts one that knows the client "workload" by a key.
func newProvider(t *testing.T, key *ecdsa.PublicKey) *provider {
	t.Helper()
	point, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	jwks := fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","x":%q,"y":%q}]}`, b64(point[1:33]),
		b64(point[33:]))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := nodeCommand(t, ctx, "oidc-provider.mjs", jwks)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &provider{more: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the provider said:\n%s", strings.Join(p.said, "\n"))
		}
	})
	p.issuer = strings.TrimPrefix(p.waitFor(t, "ready "), "ready ")
	return p
}

// waitFor waits for a line that begins so.
func (p *provider) waitFor(t *testing.T, start string) string {
	t.Helper()
	timeout := time.After(waitLimit)
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.said, func(line string) bool { return strings.HasPrefix(line, start) })
		more := p.more
		p.mu.Unlock()
		if i >= 0 {
			return p.said[i]
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("the provider does not say %q", start)
		}
	}
}

// tokenClaims are those of an access token that are looked at.
type tokenClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	ClientID string `json:"client_id"`
	Scope    string `json:"scope"`
	Expires  int64  `json:"exp"`
	Confirm  struct {
		Thumbprint string `json:"jkt"`
	} `json:"cnf"`
}

func part(text string, into any) error {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// verify checks a token of the provider with its keys.
func (p *provider) verify(token string) (*tokenClaims, error) {
	words := strings.Split(token, ".")
	if len(words) != 3 {
		return nil, errors.New("it is no JWT")
	}
	var header struct{ Alg, Kid string }
	claims := &tokenClaims{}
	if err := errors.Join(part(words[0], &header), part(words[1], claims)); err != nil {
		return nil, err
	}
	resp, err := http.Get(p.issuer + "/jwks")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var set struct{ Keys []struct{ Kid, N, E string } }
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		return nil, err
	}
	signature, err := base64.RawURLEncoding.DecodeString(words[2])
	if err != nil || header.Alg != "RS256" {
		return nil, fmt.Errorf("alg %s, %w", header.Alg, err)
	}
	sum := sha256.Sum256([]byte(words[0] + "." + words[1]))
	for _, k := range set.Keys {
		n, err1 := base64.RawURLEncoding.DecodeString(k.N)
		e, err2 := base64.RawURLEncoding.DecodeString(k.E)
		if k.Kid != header.Kid || err1 != nil || err2 != nil {
			continue
		}
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
		if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
			return nil, err
		}
		if claims.Issuer != p.issuer || time.Now().Unix() >= claims.Expires {
			return nil, fmt.Errorf("issuer %s, expired at %d", claims.Issuer, claims.Expires)
		}
		return claims, nil
	}
	return nil, errors.New("its key is unknown")
}

// guarded is an MCP server for which one needs a token of a provider.
type guarded struct {
	*httptest.Server

	mu     sync.Mutex
	claims []*tokenClaims
	scheme string
}

func newGuarded(t *testing.T, p *provider) *guarded {
	t.Helper()
	s := mcp.NewServer("guarded", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "hello"}, func(context.Context, struct{}) (string, error) {
		return "come in", nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, token, _ := strings.Cut(mcphttp.RequestFrom(ctx).Header.Get("Authorization"), " ")
		claims, err := p.verify(token)
		if err != nil {
			return "", err
		}
		return claims.Subject, nil
	})
	h := mcphttp.NewHandler(s, nil)
	g := &guarded{}
	mux := http.NewServeMux()
	g.Server = httptest.NewServer(mux)
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp",
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"resource":"%s/mcp","authorization_servers":[%q],"scopes_supported":["read"]}`,
				g.URL, p.issuer)
		})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		claims, err := p.verify(token)
		if err == nil && claims.Audience != g.URL+"/mcp" {
			err = fmt.Errorf("it is for %q", claims.Audience)
		}
		if err == nil && (scheme == "DPoP") != (claims.Confirm.Thumbprint != "") {
			err = errors.New("it is bound, or not, and was sent otherwise")
		}
		if err == nil && scheme == "DPoP" {
			err = proved(r, claims.Confirm.Thumbprint)
		}
		if err != nil {
			w.Header().Set("WWW-Authenticate",
				`Bearer resource_metadata="`+g.URL+`/.well-known/oauth-protected-resource/mcp"`)
			if token != "" {
				w.Header().Set("WWW-Authenticate", scheme+` error="invalid_token"`)
				t.Logf("the server refuses a token: %v", err)
			}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		g.mu.Lock()
		g.claims, g.scheme = append(g.claims, claims), scheme
		g.mu.Unlock()
		h.ServeHTTP(w, r)
	})
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
		s.Close()
	})
	return g
}

// proved checks that a proof is made with the key of that thumbprint (RFC 7638), for the request.
func proved(r *http.Request, thumbprint string) error {
	words := strings.Split(r.Header.Get("DPoP"), ".")
	if len(words) != 3 {
		return errors.New("there is no proof")
	}
	var header struct {
		JWK struct{ Kty, Crv, X, Y string }
	}
	var claims struct{ HTM, HTU, ATH string }
	if err := errors.Join(part(words[0], &header), part(words[1], &claims)); err != nil {
		return err
	}
	k := header.JWK
	sum := sha256.Sum256(fmt.Appendf(nil, `{"crv":%q,"kty":%q,"x":%q,"y":%q}`, k.Crv, k.Kty, k.X, k.Y))
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(token))
	b64 := base64.RawURLEncoding.EncodeToString
	if b64(sum[:]) != thumbprint || claims.HTM != r.Method ||
		claims.HTU != "http://"+r.Host+r.URL.Path || claims.ATH != b64(hash[:]) {
		return fmt.Errorf("the proof is for %+v", claims)
	}
	x, err1 := base64.RawURLEncoding.DecodeString(k.X)
	y, err2 := base64.RawURLEncoding.DecodeString(k.Y)
	signature, err3 := base64.RawURLEncoding.DecodeString(words[2])
	key, err4 := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
	if err := errors.Join(err1, err2, err3, err4); err != nil || len(signature) != 64 {
		return fmt.Errorf("the proof's key or signature: %w", err)
	}
	sum = sha256.Sum256([]byte(words[0] + "." + words[1]))
	if !ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(signature[:32]),
		new(big.Int).SetBytes(signature[32:])) {
		return errors.New("the proof is not signed with its key")
	}
	return nil
}

var (
	formAction = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)
	promptName = regexp.MustCompile(`name="(prompt|link)" value="([^"]*)"`)
)

// signIn is the user ann and a browser: it goes where it is sent, and fills in the forms of the
// provider.
func signIn(t *testing.T, address string) {
	t.Helper()
	signInAs(t, "ann", address)
}

// signInAs is signIn of any user. It begins at the provider, or at the start page of a gateway.
func signInAs(t *testing.T, user, address string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{
		Jar: jar, Timeout: waitLimit,
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	resp, err := browser.Get(address)
	for range 5 {
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.Contains(string(body), "You may close this window.") {
			return
		}
		action, prompt := formAction.FindSubmatch(body), promptName.FindSubmatch(body)
		if action == nil || prompt == nil {
			t.Fatalf("%s: %d %s", resp.Request.URL, resp.StatusCode, body)
		}
		form := url.Values{string(prompt[1]): {string(prompt[2])}, "login": {user}, "password": {"any"}}
		at, err2 := resp.Request.URL.Parse(html.UnescapeString(string(action[1])))
		if err2 != nil {
			t.Fatal(err2)
		}
		resp, err = browser.PostForm(at.String(), form)
	}
	t.Fatal("the forms have no end")
}

// homely is farcall with its own home.
func homely(home string, args ...string) *exec.Cmd {
	cmd := exec.Command(farcallPath, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "FARCALL_STORE=")
	return cmd
}

// login runs farcall login and signs in.
func login(t *testing.T, home string, args ...string) string {
	t.Helper()
	cmd := homely(home, append([]string{"login", "--no-browser"}, args...)...)
	var out strings.Builder
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if address := strings.TrimSpace(lines.Text()); strings.HasPrefix(address, "http://") {
			signIn(t, address)
		}
		out.WriteString(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// A user signs in at a provider that is not ours: by discovery, registration, PKCE and resource
// indicators; tokens come to their end and are renewed, with a key (DPoP, with nonces) and without;
// a gateway has its own credentials.
func TestOIDCProvider(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, &key.PublicKey)
	for _, kind := range []string{"Bearer", "DPoP"} {
		t.Run(kind, func(t *testing.T) {
			g := newGuarded(t, p)
			home := t.TempDir()
			args := []string{g.URL + "/mcp"}
			if kind == "DPoP" {
				args = append(args, "--dpop")
			}
			out := login(t, home, args...)
			for _, want := range []string{"logged in to " + g.URL, p.issuer, "read", "renewed without you"} {
				if !strings.Contains(out, want) {
					t.Errorf("%s\nhas not: %s", out, want)
				}
			}
			calls := func() {
				t.Helper()
				out, err := homely(home, "mcp", "call", g.URL+"/mcp", "hello").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "come in") {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			calls()
			g.mu.Lock()
			first := g.claims[0]
			g.mu.Unlock()
			if first.Subject != "ann" || !strings.Contains(first.Scope, "read") || g.scheme != kind {
				t.Errorf("%s %+v", g.scheme, first)
			}
			for time.Now().Unix() <= first.Expires { // refresh tokens are rotated, too
				calls()
			}
			calls()
			p.waitFor(t, "granted refresh_token to "+first.ClientID)
			if out, err := homely(home, "logout", g.URL+"/mcp").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if out, err := homely(home, "mcp", "call", g.URL+"/mcp", "hello").CombinedOutput(); err == nil ||
				!strings.Contains(string(out), "farcall login") {
				t.Errorf("after the logout: %v\n%s", err, out)
			}
		})
	}
	t.Run("sign_in", func(t *testing.T) { principalsSignIn(t, p) })
	t.Run("guard", func(t *testing.T) { guardWorks(t, p) })
	t.Run("private_key_jwt", func(t *testing.T) { gatewayWorks(t, p, newGuarded(t, p), key) })
}

// gatewayWorks has a gateway that proves who it is with a private key.
func gatewayWorks(t *testing.T, p *provider, g *guarded, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(
		"upstreams:\n  far:\n    url: %s/mcp\n    auth: {type: client_credentials, client_id: "+
			"workload, key: \"file:key.pem\", scopes: [read], dpop: true}\n", g.URL)
	for name, text := range map[string][]byte{
		"key.pem":      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"farcall.yaml": []byte(config),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := homely(dir, "serve", "--config", filepath.Join(dir, "farcall.yaml"), "--stdio",
		"--log", "off")
	c := start(t, cmd, ada(""))
	says(t, c, "come in", "far__hello", nil)
	p.waitFor(t, "granted client_credentials to workload")
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.claims[len(g.claims)-1]; last.ClientID != "workload" || g.scheme != "DPoP" {
		t.Errorf("%s %+v", g.scheme, last)
	}
}

// guardWorks has a gateway with a guard that takes the provider's tokens: farcall at both ends, and
// the provider between.
func guardWorks(t *testing.T, p *provider) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + l.Addr().String() + "/mcp" // the audience of tokens has the port
	l.Close()
	dir := t.TempDir()
	config := fmt.Sprintf(`guard:
  jwt: [{issuer: %q, audience: [%q]}]
  resource: {url: %q, scopes: {"*": [read]}}
upstreams:
  far: {command: [%q, serve, --stdio, --log, "off"]}
`, p.issuer, at, at, farcallPath)
	file := filepath.Join(dir, "farcall.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f := starts(t, "serve", "--config", file, "--listen", l.Addr().String())
	for _, args := range [][]string{{at}, {at, "--dpop"}} {
		home := t.TempDir()
		if out, err := homely(home, "mcp", "tools", at).CombinedOutput(); err == nil ||
			!strings.Contains(string(out), "farcall login "+at) {
			t.Fatalf("without a login: %v\n%s", err, out)
		}
		login(t, home, args...)
		if out, err := homely(home, "mcp", "call", at, "far__math_add", "a=2",
			"b=3").CombinedOutput(); err != nil || !strings.Contains(string(out), "5") {
			t.Errorf("%q: %v\n%s\n%s", args, err, out, f.output())
		}
	}
}
