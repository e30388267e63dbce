package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// exchanging is an authorization server that gives a caller's token for one of an MCP server, and
// that server, behind the same address.
type exchanging struct {
	*httptest.Server

	key  *ecdsa.PrivateKey
	mu   sync.Mutex
	all  []string       // requests of the MCP server as text
	used map[string]int // tokens there
	got  map[string]int // exchanges, by subject token
	life int            // seconds
}

func newExchanging(t *testing.T) *exchanging {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.NewServer("captured", "1", &mcp.ServerOptions{Eras: "legacy"})
	mcp.AddTool(s, mcp.Tool{Name: "add"}, func(context.Context, struct{ A, B int }) (string, error) {
		return "3", nil
	})
	h := mcphttp.NewHandler(s, nil)
	x := &exchanging{key: key, used: map[string]int{}, got: map[string]int{}, life: 3600}
	mux := http.NewServeMux()
	x.Server = httptest.NewServer(mux)
	document := func(format string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, strings.ReplaceAll(format, "URL", x.URL))
		}
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp",
		document(`{"resource":"URL/mcp","authorization_servers":["URL"]}`))
	mux.HandleFunc("/.well-known/oauth-authorization-server",
		document(
			`{"issuer":"URL","token_endpoint":"URL/token","response_types_supported":["code"],`+
				`"authorization_endpoint":"URL/a","jwks_uri":"URL/jwks"}`))
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		subject := r.PostFormValue("subject_token")
		id, secret, _ := r.BasicAuth()
		x.mu.Lock()
		defer x.mu.Unlock()
		x.got[subject]++
		w.Header().Set("Content-Type", "application/json")
		if id != "gateway" || secret != "s3cr3t" || subject == "" ||
			r.PostFormValue("resource") != x.URL+"/mcp" || r.PostFormValue("audience") != "far" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_request"}`)
			return
		}
		fmt.Fprintf(w,
			`{"access_token":"for-%s","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",`+
				`"token_type":"Bearer","expires_in":%d}`, sum(subject), x.life)
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer for-")
		x.mu.Lock()
		x.all = append(x.all, fmt.Sprint(r.Header, string(body)))
		x.used[token]++
		x.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	t.Cleanup(func() {
		x.CloseClientConnections()
		x.Close()
		s.Close()
	})
	return x
}

func sum(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:12] }

// token signs a token for the gateway.
func (x *exchanging) token(t *testing.T, subject string) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"ES256","typ":"at+jwt","kid":"1"}`)) + "." +
		b64(
			fmt.Appendf(nil,
				`{"iss":%q,"sub":%q,"aud":"gateway","client_id":"x","jti":"j","iat":%d,"exp":%d}`, x.URL,
				subject, time.Now().Unix(), time.Now().Unix()+600))
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, x.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// jwks are the keys of the tokens.
func (x *exchanging) jwks(t *testing.T) string {
	t.Helper()
	point, err := x.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","kid":"1","x":%q,"y":%q}]}`,
		b64(point[1:33]), b64(point[33:]))
}

// guardedGateway is a gateway to one server; its callers show tokens of x.
func guardedGateway(t *testing.T, x *exchanging, auth *Credentials) *httptest.Server {
	t.Helper()
	g, err := New(&Config{
		Upstreams: []*Upstream{
			{Name: "a", URL: x.URL + "/mcp", Lifetime: "principal", Profile: profileMCP, Auth: auth},
		},
		Guard: &guard.Config{
			JWT: []guard.Issuer{{Issuer: x.URL, JWKS: x.jwks(t), Audience: []string{"gateway"}}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(g)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = g.Shutdown(ctx)
	})
	return web
}

// calls makes several calls at once with a token.
func calls(t *testing.T, web *httptest.Server, token, era string) {
	t.Helper()
	c, err := mcp.Dial(t.Context(), web.URL+"/mcp",
		&mcp.ClientOptions{
			Era: era, HTTP: &mcphttp.DialOptions{Header: http.Header{"Authorization": {"Bearer " + token}}},
		})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := mcp.CallTool[string](t.Context(), c, "add",
				map[string]int{"A": 1, "B": 2}); err != nil || got != "3" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// A caller's token is exchanged once, and the server gets only what it was exchanged for.
func TestTokenExchange(t *testing.T) {
	x := newExchanging(t)
	web := guardedGateway(t, x,
		&Credentials{Type: authExchange, ClientID: "gateway", Secret: "s3cr3t", Audience: "far"})
	ann, bob := x.token(t, "ann"), x.token(t, "bob")
	for _, era := range []string{"legacy", "modern"} {
		calls(t, web, ann, era)
		calls(t, web, bob, era)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, token := range []string{ann, bob} {
		if x.got[token] != 1 || x.used[sum(token)] < 8 {
			t.Errorf("%d exchanges, %d uses", x.got[token], x.used[sum(token)])
		}
		for _, text := range x.all {
			if strings.Contains(text, token) {
				t.Fatalf("the server got the caller's token: %s", text)
			}
		}
	}
	if len(x.got) != 2 {
		t.Errorf("%d tokens were exchanged", len(x.got))
	}
}

// The caller's own token is passed on when the configuration says so.
func TestPassthrough(t *testing.T) {
	x := newExchanging(t)
	var mu sync.Mutex
	seen := map[string]int{}
	mux := http.NewServeMux()
	s := mcp.NewServer("captured", "1", &mcp.ServerOptions{Eras: "legacy"})
	mcp.AddTool(s, mcp.Tool{Name: "add"}, func(context.Context, struct{ A, B int }) (string, error) {
		return "3", nil
	})
	h := mcphttp.NewHandler(s, nil)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Header.Get("Authorization")]++
		mu.Unlock()
		h.ServeHTTP(w, r)
	})
	x.Config.Handler = mux
	t.Cleanup(func() { s.Close() })
	web := guardedGateway(t, x, &Credentials{Type: authPassthrough})
	ann, bob := x.token(t, "ann"), x.token(t, "bob")
	calls(t, web, ann, "legacy")
	calls(t, web, bob, "modern")
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 || seen["Bearer "+ann] == 0 || seen["Bearer "+bob] == 0 {
		t.Errorf("%d kinds of credentials", len(seen))
	}
}
