package guard_test

import (
	"bufio"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
)

const (
	benchIssuer   = "https://id.example.com/realms/bench"
	benchAudience = "https://rpc.example.com"
	benchBody     = `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"name":"add",` +
		`"arguments":{"a":1,"b":2}}}`
)

// benchToken is a token with the usual claims, and the key that it is verified with.
func benchToken(tb testing.TB) (token, jwks string) {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	coded := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": benchIssuer, "aud": []string{benchAudience}, "sub": "3f0f8d1a-6a5e-4c53-9d0b-7d1f4e5a0001",
		"client_id": "desktop", "scope": "openid profile calls", "roles": []string{"reader", "dev"},
		"email": "user@example.com", "jti": rand.Text(), "iat": now.Unix(),
		"exp": now.Add(time.Hour).Unix(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	text := coded([]byte(`{"alg":"RS256","typ":"at+jwt","kid":"a"}`)) + "." + coded(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		tb.Fatal(err)
	}
	return text + "." + coded(sig),
		`{"keys":[{"kty":"RSA","kid":"a","alg":"RS256","n":"` + coded(key.N.Bytes()) + `","e":"AQAB"}]}`
}

// benchConfig has what most configurations have.
func benchConfig(jwks string) *guard.Config {
	c := &guard.Config{
		JWT: []guard.Issuer{{Issuer: benchIssuer, JWKS: jwks, Audience: []string{benchAudience}}},
		Allow: []guard.Rule{
			{Roles: []string{"admin"}, Calls: []string{"*"}},
			{Roles: []string{"dev"}, Calls: []string{"tools/call git*", "prompts/get *"}},
			{Roles: []string{"reader"}, Calls: []string{"echo", "math/*", "tools/call add"}},
			{Roles: []string{"ops"}, Calls: []string{"tools/call deploy*", "resources/read *"}},
			{Roles: []string{"guest"}, Calls: []string{"health"}},
		},
		Deny: []guard.Rule{{Roles: []string{"guest", "dev"}, Calls: []string{"tools/call *delete*"}}},
	}
	c.Limits.Rates = []guard.Rate{{Limit: 10_000_000, Every: time.Second}}
	return c
}

func benchHandler(tb testing.TB, guarded string) (h http.Handler, token string) {
	tb.Helper()
	token, jwks := benchToken(tb)
	mux := farcall.NewMux()
	mux.Handle("echo", farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		return req.Params, nil
	}))
	rpc := &farcall.Options{}
	if guarded == "no" {
		return httprpc.NewHandler(mux, &httprpc.Options{RPC: rpc}), token
	}
	c := benchConfig(jwks)
	if guarded == "audited" {
		c.Audit.File = os.DevNull
	}
	g, err := guard.New(c, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { g.Close() })
	rpc.Interceptors = []farcall.Interceptor{g.Interceptor(nil)}
	return g.HTTP(httprpc.NewHandler(mux, &httprpc.Options{RPC: rpc})), token
}

// BenchmarkHTTP is a call over HTTP, without what net/http does for it, and with that.
func BenchmarkHTTP(b *testing.B) {
	for _, guarded := range []string{"no", "yes", "audited"} {
		b.Run("handler/guarded="+guarded, func(b *testing.B) {
			h, token := benchHandler(b, guarded)
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/rpc", nil)
			r.RemoteAddr = "127.0.0.1:34567"
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+token)
			w := &nowhere{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				again := *r
				again.Body, again.ContentLength = io.NopCloser(strings.NewReader(benchBody)),
					int64(len(benchBody))
				h.ServeHTTP(w, &again)
				if !strings.Contains(string(w.last), `"result"`) {
					b.Fatalf("%d %s", w.status, w.last)
				}
			}
		})
		b.Run("socket/guarded="+guarded, func(b *testing.B) {
			h, token := benchHandler(b, guarded)
			s := httptest.NewServer(h)
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			text := []byte(
				"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" +
					"Authorization: Bearer " + token +
					fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(benchBody)) + benchBody)
			in := bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(text); err != nil {
					b.Fatal(err)
				}
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					b.Fatal(err)
				}
				_, err = io.Copy(io.Discard, res.Body)
				if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(res.Status, err)
				}
			}
		})
	}
}

type nowhere struct {
	header http.Header
	status int
	last   []byte
}

func (w *nowhere) SetReadDeadline(time.Time) error  { return nil }
func (w *nowhere) SetWriteDeadline(time.Time) error { return nil }

func (w *nowhere) Header() http.Header    { return w.header }
func (w *nowhere) WriteHeader(status int) { w.status = status }
func (w *nowhere) Write(p []byte) (int, error) {
	w.last = append(w.last[:0], p...)
	return len(p), nil
}
