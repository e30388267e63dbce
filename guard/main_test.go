package guard_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const (
	goodKey  = "fc_good-key-of-the-tests-0123456789abcdef"
	otherKey = "fc_other-key-of-the-tests-0123456789abcdef"
	secret   = "a secret of the tests, of more than 32 bytes"
	issuer   = "https://issuer.example"
	audience = "https://rpc.example/rpc"

	unauthenticated = jsonrpc.Code(-32051)
	denied          = jsonrpc.Code(-32002)
	limited         = jsonrpc.Code(-32050)
	replayed        = jsonrpc.Code(-32052)
	badSignature    = jsonrpc.Code(-32053)
	stale           = jsonrpc.Code(-32054)
	unavailable     = jsonrpc.Code(-32008)
)

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// keyOf is the entry of a key.
func keyOf(id, key string, roles ...string) guard.Key {
	return guard.Key{ID: id, Hash: hashOf(key), Roles: roles}
}

// A clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now().Truncate(time.Second)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// An authority issues tokens.
type authority struct {
	kid     string
	private ed25519.PrivateKey
}

func newAuthority(tb testing.TB, kid string) *authority {
	tb.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &authority{kid, private}
}

func (a *authority) jwk() map[string]any {
	public, _ := a.private.Public().(ed25519.PublicKey)
	return map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(public), "kid": a.kid}
}

func jwks(all ...*authority) string {
	keys := make([]any, len(all))
	for i, a := range all {
		keys[i] = a.jwk()
	}
	return text(map[string]any{"keys": keys})
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// sign signs a token with any header.
func (a *authority) sign(header, claims map[string]any) string {
	message := b64([]byte(text(header))) + "." + b64([]byte(text(claims)))
	return message + "." + b64(ed25519.Sign(a.private, []byte(message)))
}

// token is one of alice's, good for ten minutes, but for what changes says.
func (a *authority) token(now time.Time, changes map[string]any) string {
	claims := map[string]any{
		"iss": issuer, "sub": "alice", "aud": audience, "iat": now.Unix(),
		"exp":   now.Add(10 * time.Minute).Unix(),
		"roles": []string{"builder"}, "scope": "read",
	}
	for name, v := range changes {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	return a.sign(map[string]any{"alg": "EdDSA", "typ": "at+jwt", "kid": a.kid}, claims)
}

// who says who calls.
func who(ctx context.Context, _ *farcall.Request) (any, error) {
	p := guard.From(ctx)
	if p == nil {
		return "unauthenticated", nil
	}
	return p.Kind + " " + p.Name() + " by " + p.Method, nil
}

// newMux has a few methods that say who calls them.
func newMux() *farcall.Mux {
	mux := farcall.NewMux()
	for _, method := range []string{
		"who", "math/add", "admin/stop", "tools/call", "tools/list",
		"initialize", "ping",
	} {
		mux.Handle(method, farcall.HandlerFunc(who))
	}
	return mux
}

// A site is a server behind a guard.
type site struct {
	*guard.Guard
	t   *testing.T
	url string
	web *http.Client
}

func newGuard(t *testing.T, c *guard.Config, o *guard.Options) *guard.Guard {
	t.Helper()
	g, err := guard.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// newSite serves JSON-RPC over HTTP at /rpc.
func newSite(t *testing.T, c *guard.Config, o *guard.Options) *site {
	t.Helper()
	g := newGuard(t, c, o)
	rpc := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
	mux := http.NewServeMux()
	mux.Handle("/rpc",
		httprpc.NewHandler(newMux(), &httprpc.Options{RPC: rpc, Hosts: []string{"rpc.example"}}))
	mux.Handle("/stream", httprpc.NewStreamHandler(newMux(), &httprpc.Options{RPC: rpc}))
	return serve(t, g, g.HTTP(mux))
}

func serve(t *testing.T, g *guard.Guard, h http.Handler) *site {
	t.Helper()
	server := httptest.NewServer(h)
	s := &site{Guard: g, t: t, url: server.URL, web: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		s.web.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// A reply is the answer of the server.
type reply struct {
	status int
	header http.Header
	body   string
	result string
	code   jsonrpc.Code
	data   map[string]any
}

// request is a POST of a call; headers are given as "Name: value", and may be there twice.
func (s *site) request(method, params string, headers ...string) *http.Request {
	s.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `"`
	if params != "" {
		body += `,"params":` + params
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/rpc",
		strings.NewReader(body+"}"))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	return r
}

func (s *site) do(r *http.Request) *reply {
	s.t.Helper()
	got, err := s.web.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return readReply(got, raw)
}

func readReply(got *http.Response, raw []byte) *reply {
	a := &reply{status: got.StatusCode, header: got.Header, body: string(raw)}
	var m struct {
		Result any
		Error  struct {
			Code jsonrpc.Code
			Data map[string]any
		}
	}
	if json.Unmarshal(raw, &m) == nil {
		a.code, a.data = m.Error.Code, m.Error.Data
		a.result, _ = m.Result.(string)
	}
	return a
}

func (s *site) call(method, params string, headers ...string) *reply {
	s.t.Helper()
	return s.do(s.request(method, params, headers...))
}

// wants fails unless the call was answered by want: a result, or the number of an error.
func (a *reply) wants(t *testing.T, want any) {
	t.Helper()
	switch want := want.(type) {
	case string:
		if a.result != want || a.status != http.StatusOK {
			t.Errorf("%d %s; want %q", a.status, a.body, want)
		}
	case jsonrpc.Code:
		if a.code != want {
			t.Errorf("%d %s; want %d", a.status, a.body, want)
		}
	}
}

func bearer(token string) string { return "Authorization: Bearer " + token }
