package mcpauth

import (
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// opened checks the signature of a JWS with a key, and returns its header and claims.
func opened(t *testing.T, token string, alg jwa.SignatureAlgorithm, key, claims any) jws.Headers {
	t.Helper()
	payload, err := jws.Verify([]byte(token), jws.WithKey(alg, key))
	if err != nil {
		t.Fatal(err)
	}
	if err := jsonv2.UnmarshalStrict(payload, claims); err != nil {
		t.Fatal(err)
	}
	m, err := jws.Parse([]byte(token))
	if err != nil {
		t.Fatal(err)
	}
	return m.Signatures()[0].ProtectedHeaders()
}

func TestProof(t *testing.T) {
	key, err := newDPoPKey()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := key.marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := readDPoPKey(kept)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := again.proof("POST", "https://Server.example:443/mcp?a=b#c", "token", "n1")
	if err != nil {
		t.Fatal(err)
	}
	var claims proofClaims
	header := opened(t, proof, jwa.ES256(), key.private.Public(), &claims)
	if typ, _ := header.Type(); typ != "dpop+jwt" {
		t.Errorf("typ is %q", typ)
	}
	public, ok := header.JWK()
	if !ok || public.Has("d") {
		t.Fatalf("the header has the private key, or none: %v", public)
	}
	sum, err := public.Thumbprint(crypto.SHA256)
	want, err2 := key.public.Thumbprint(crypto.SHA256)
	if err != nil || err2 != nil || string(sum) != string(want) {
		t.Errorf("another key: %v %v", err, err2)
	}
	if claims.Method != http.MethodPost || claims.Target != "https://server.example/mcp" ||
		claims.Nonce != "n1" || len(claims.ID) < 16 {
		t.Errorf("%+v", claims)
	}
	if age := time.Now().Unix() - claims.Issued; age < 0 || age > 60 {
		t.Errorf("issued %d s ago", age)
	}
	hash := sha256.Sum256([]byte("token"))
	if claims.Hash != base64.RawURLEncoding.EncodeToString(hash[:]) {
		t.Errorf("ath is %q", claims.Hash)
	}
	other, err := again.proof("GET", "http://127.0.0.1:80", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var bare proofClaims
	opened(t, other, jwa.ES256(), key.private.Public(), &bare)
	if bare.ID == claims.ID || bare.Target != "http://127.0.0.1/" {
		t.Errorf("%+v", bare)
	}
	payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(other, ".")[1])
	if strings.Contains(string(payload), "ath") || strings.Contains(string(payload), "nonce") {
		t.Errorf("%s", payload)
	}
	if _, err := again.proof("GET", "nonsense", "", ""); err == nil {
		t.Error("a proof for no URL")
	}
}

// The hash of the access token in the example of RFC 9449 §7.1.
func TestProofHash(t *testing.T) {
	const token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
	key, err := newDPoPKey()
	if err != nil {
		t.Fatal(err)
	}
	proof, err := key.proof("GET", "https://resource.example.org/protectedresource", token, "")
	if err != nil {
		t.Fatal(err)
	}
	var claims proofClaims
	opened(t, proof, jwa.ES256(), key.private.Public(), &claims)
	if claims.Hash != "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo" {
		t.Errorf("ath is %q", claims.Hash)
	}
}

// The key of the examples in RFC 9449, and its thumbprint of §6.1.
func TestProofThumbprint(t *testing.T) {
	key, err := jwk.ParseKey(
		[]byte(`{"kty":"EC","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs","y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA","crv":"P-256"}`))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil ||
		base64.RawURLEncoding.EncodeToString(sum) != "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" {
		t.Errorf("%x, %v", sum, err)
	}
}

func TestProofTarget(t *testing.T) {
	for address, want := range map[string]string{
		"HTTPS://A.Example":               "https://a.example/",
		"https://a.example:8443/x%2Fy?q":  "https://a.example:8443/x%2Fy",
		"https://a.example:80/":           "https://a.example:80/",
		"http://[::1]:80/mcp":             "http://[::1]/mcp",
		"http://[::1]:8080/mcp":           "http://[::1]:8080/mcp",
		"https://user:secret@a.example/b": "https://a.example/b",
		"https://a.example:/b":            "https://a.example/b",
	} {
		if got, err := proofTarget(address); got != want || err != nil {
			t.Errorf("%s: %s, %v", address, got, err)
		}
	}
}

func TestDPoPKeyDamaged(t *testing.T) {
	rsa, err := newSigner(rsaPEM(t, 2048), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"none": nil, "garbage": []byte("s3cret"),
		"RSA": pkcs8(t, rsa.key),
	} {
		if _, err := readDPoPKey(data); err == nil || !strings.Contains(err.Error(), "log in again") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No way of printing a key shows it.
func TestKeysAreSecret(t *testing.T) {
	key, err := newDPoPKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSigner(ecPEM(t), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{key, s} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(format, v); len(text) > 40 {
				t.Errorf("%s: %s", format, text)
			}
		}
	}
}
