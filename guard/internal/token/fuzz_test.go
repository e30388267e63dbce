package token

import (
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

func FuzzVerify(f *testing.F) {
	s := newSigner(f, "EdDSA", "k")
	v := verifier(f, func(i *Issuer) { i.Claims = map[string]string{"a.b": "c"} }, s)
	genuine := s.sign(nil, dict{"a": dict{"b": "c"}})
	for _, seed := range []string{
		genuine, s.sign(nil, nil),
		s.sign(dict{"kid": nil, "typ": "JWT"}, dict{"aud": []any{"a"}, "cnf": dict{"jkt": "j"}}),
		rfc7515A1, rfc7515A2, rfc7515A5,
		"..", "....", strings.Replace(genuine, ".", "\n.", 1), s.raw("{}", "{}"), s.raw("[]", "null"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := v.Verify(t.Context(), raw)
		// Only s has signed, and base64url has one form only: whatever passes is what it was.
		if (err == nil) != (raw == genuine) || (got == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", raw, got, err)
		}
		// The signed inputs are the way to all that the claims may have.
		if len(raw) > maxToken/2 {
			return
		}
		signed := s.raw(`{"alg":"EdDSA","kid":"k"}`, raw)
		if got, err := v.Verify(t.Context(), signed); err == nil &&
			(got.Issuer != testIssuer || got.Subject == "" || !got.Expires.After(testNow)) {
			t.Fatalf("%q: %+v", raw, got)
		}
		v.Verify(t.Context(), s.raw(raw, `{"iss":"`+testIssuer+`"}`)) // it is not to panic
	})
}

func FuzzReadProof(f *testing.F) {
	s := newSigner(f, "EdDSA", "")
	genuine := s.proof(nil, dict{"ath": sum("token")})
	head := text(dict{"alg": "EdDSA", "typ": "dpop+jwt", "jwk": s.jwk()})
	f.Add(`{"jti":"a","htm":"GET","htu":"https://a.example/%41","iat":1,"nonce":"n"}`, "GET",
		"https://A.example:443/A?q")
	f.Add(genuine, "POST", "https://rpc.example/mcp")
	f.Add(rfc9449Token, "POST", "https://server.example.com/token")
	f.Add(rfc9449Resource, "GET", "https://resource.example.org/%7ex/../protectedresource?a")
	f.Add(s.proof(dict{"jwk": dict{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}}, nil), "",
		"http://[::1]:80/%2e%2E/%")
	f.Fuzz(func(t *testing.T, raw, method, target string) {
		for _, header := range []string{raw, s.raw(head, raw), s.raw(raw, "{}")} {
			p, err := ReadProof(header, method, target, "")
			if (p == nil) == (err == nil) || err == nil && (p.Thumbprint == "" || p.ID == "") {
				t.Fatalf("%q: %+v, %v", raw, p, err)
			}
		}
		once, err := normalize(target)
		if err != nil {
			return
		}
		if twice, err := normalize(once); err != nil || twice != once {
			t.Fatalf("%q is %q, which is %q: %v", target, once, twice, err)
		}
	})
}

func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{
		`{"issuer":"` + testIssuer + `","jwks_uri":"https://a"}`,
		`{"keys":[` + rfc7638Key + "," + rfc7515A3Key + "," + rfc8037Key + "," + rfc7515A1Key + `]}`,
		`{"keys":[]}`, `{"keys":[null,1]}`, "[]", "null", `{"issuer":1,"issuer":2}`,
		`{"keys":[{"kty":"RSA","n":"","e":"AQAB"}]}`,
	} {
		f.Add([]byte(seed))
	}
	n := &Nonces{key: make([]byte, minNonceKey), life: time.Minute}
	f.Fuzz(func(t *testing.T, b []byte) {
		if keys, err := readKeys(b); err == nil {
			for _, k := range keys {
				if k.public == nil || len(k.thumbprint) != 43 || k.alg != "" && !k.fits(k.alg) ||
					k.fits("HS256") || k.fits("none") {
					t.Fatalf("%q: %+v", b, k)
				}
			}
		}
		if uri, err := readMetadata(b, testIssuer); err == nil {
			var m map[string]any
			if jsonv2.Unmarshal(b, &m) != nil || m["issuer"] != testIssuer || uri == "" {
				t.Fatalf("%q: %q", b, uri)
			}
		}
		n.Valid(string(b), testNow)
	})
}
