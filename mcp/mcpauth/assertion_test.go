package mcpauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
)

func pkcs8(tb testing.TB, key any) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func rsaPEM(tb testing.TB, bits int) string {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		tb.Fatal(err)
	}
	return pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

func ecPEM(tb testing.TB) string {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pemOf("EC PARAMETERS", []byte{6, 8}) + pemOf("EC PRIVATE KEY", der)
}

func TestAssertion(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey := rsaPEM(t, 2048)
	for name, c := range map[string]struct{ pem, algorithm, want string }{
		"RSA":     {rsaKey, "", "RS256"},
		"PSS":     {rsaKey, "PS256", "PS256"},
		"SEC 1":   {ecPEM(t), "ES256", "ES256"},
		"P-384":   {pemOf("PRIVATE KEY", pkcs8(t, p384)), "", "ES384"},
		"Ed25519": {pemOf("PRIVATE KEY", pkcs8(t, edwards)), "", "EdDSA"},
		"RFC9864": {pemOf("PRIVATE KEY", pkcs8(t, edwards)), "Ed25519", "Ed25519"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSigner(c.pem, "k1", c.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(1_800_000_000, 0)
			token, err := s.assertion("client", "https://issuer.example", now)
			if err != nil {
				t.Fatal(err)
			}
			alg, _ := jwa.LookupSignatureAlgorithm(c.want)
			var claims assertionClaims
			header := opened(t, token, alg, s.key.(crypto.Signer).Public(), &claims)
			if kid, _ := header.KeyID(); kid != "k1" || s.algorithm() != c.want {
				t.Errorf("kid %q, alg %s", kid, s.algorithm())
			}
			if claims.Issuer != "client" || claims.Subject != "client" ||
				claims.Audience != "https://issuer.example" ||
				claims.Issued != now.Unix() || claims.Expires <= now.Unix() ||
				claims.Expires > now.Unix()+300 || len(claims.ID) < 16 {
				t.Errorf("%+v", claims)
			}
			if other, _ := s.assertion("client", "https://issuer.example", now); other == token {
				t.Error("it is the same twice")
			}
		})
	}
}

func TestBadKeys(t *testing.T) {
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := ecPEM(t)
	for name, c := range map[string]struct{ pem, algorithm, want string }{
		"none":        {"", "", "not in PEM"},
		"text":        {"s3cret", "", "not in PEM"},
		"certificate": {pemOf("CERTIFICATE", []byte("s3cret")), "", "not in PEM"},
		"garbage":     {pemOf("PRIVATE KEY", []byte("s3cret")), "", "not in PEM"},
		"encrypted":   {pemOf("ENCRYPTED PRIVATE KEY", []byte("s3cret")), "", "encrypted"},
		"P-224":       {pemOf("PRIVATE KEY", pkcs8(t, p224)), "", "of no use"},
		"short":       {rsaPEM(t, 1024), "", "2048"},
		"other kind":  {ec, "RS256", "one for ES256"},
		"HMAC":        {ec, "HS256", "one for ES256"},
		"alg none":    {ec, "none", "one for ES256"},
	} {
		if _, err := newSigner(c.pem, "", c.algorithm); err == nil ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A projected token is read each time: the platform puts another one in its place.
func TestAssertionFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	read := AssertionFile(path)
	if _, err := read(t.Context(), ""); err == nil {
		t.Error("a token of no file")
	}
	for _, token := range []string{"a.b.c", "d.e.f"} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t.Context(), ""); got != token || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	for _, text := range []string{
		"", "s3cret", "a.b.c d.e.f",
		"a." + strings.Repeat("b", maxAssertion) + ".c",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t.Context(), ""); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}

func FuzzPrivateKey(f *testing.F) {
	f.Add([]byte(ecPEM(f)))
	f.Add([]byte(pemOf("PRIVATE KEY", []byte("x")) + pemOf("CERTIFICATE", nil)))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := privateKey(text); (key == nil) == (err == nil) {
			t.Errorf("%T, %v", key, err)
		}
	})
}

func (s *signer) algorithm() string { return s.alg.String() }
