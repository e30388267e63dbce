package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
)

// An attack is a token that must be refused, for its reason.
type attack struct {
	name, reason string
	raw          string
}

// TestAttacks has a subtest for each attack on tokens that docs/security.md names. All are made
// from a good token of the same keys, which must pass.
func TestAttacks(t *testing.T) {
	rs, es := newSigner(t, "RS256", "rsa"), newSigner(t, "ES256", "ec")
	v := verifier(t, nil, rs, es)
	for _, s := range []*signer{rs, es} {
		if _, err := v.Verify(t.Context(), s.sign(nil, nil)); err != nil {
			t.Fatal(err, errors.Unwrap(err))
		}
	}
	for _, list := range [][]attack{
		algorithmAttacks(t, rs, es), keyAttacks(t, es), signatureAttacks(es), formAttacks(es),
		claimAttacks(es),
	} {
		for _, a := range list {
			t.Run(a.name, func(t *testing.T) {
				got, err := v.Verify(t.Context(), a.raw)
				if err == nil {
					t.Fatalf("it passed: %+v", got)
				}
				refused(t, err, a.reason, a.raw)
			})
		}
	}
}

// split returns the parts of a good token, to be put together otherwise.
func split(raw string) (header, payload, signature string) {
	p := strings.Split(raw, ".")
	return p[0], p[1], p[2]
}

func algorithmAttacks(t *testing.T, rs, es *signer) (all []attack) {
	t.Helper()
	for _, none := range []string{"none", "None", "NONE", "nOnE", "none ", ""} {
		_, payload, signature := split(es.sign(nil, nil))
		header := b64([]byte(`{"alg":"` + none + `","kid":"ec"}`))
		all = append(all,
			attack{`alg "` + none + `" without signature`, "algorithm", header + "." + payload + "."},
			attack{
				`alg "` + none + `" with signature`, "algorithm",
				header + "." + payload + "." + signature,
			})
	}
	der, err := x509.MarshalPKIXPublicKey(rs.private.Public())
	if err != nil {
		t.Fatal(err)
	}
	public, _ := rs.private.Public().(*rsa.PublicKey)
	for name, secret := range map[string][]byte{
		"PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "DER": der,
		"PKCS 1": x509.MarshalPKCS1PublicKey(public), "JWK": []byte(text(rs.jwk())),
		"modulus": public.N.Bytes(), "nothing": {},
	} {
		_, payload, _ := split(rs.sign(nil, nil))
		message := b64([]byte(`{"alg":"HS256","kid":"rsa"}`)) + "." + payload
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(message))
		all = append(all, attack{
			"key confusion HS256 with the public key as " + name, "algorithm",
			message + "." + b64(mac.Sum(nil)),
		})
	}
	return append(all,
		attack{"key confusion ES256 with an RSA key", "key", es.sign(dict{"kid": "rsa"}, nil)},
		attack{"key confusion RS256 with an EC key", "key", rs.sign(dict{"kid": "ec"}, nil)},
		attack{"key confusion ES384 with a P-256 key", "key", es.sign(dict{"alg": "ES384"}, nil)},
		attack{"algorithm the issuer may not use", "algorithm", rs.sign(dict{"alg": "RS512"}, nil)},
		attack{"algorithm in other case", "algorithm", rs.sign(dict{"alg": "rs256"}, nil)},
		attack{"algorithm is no string", "algorithm", es.sign(dict{"alg": []any{"ES256"}}, nil)},
		attack{"algorithm missing", "algorithm", es.sign(dict{"alg": nil}, nil)},
		attack{"ALG for alg", "algorithm", es.sign(dict{"alg": nil, "ALG": "ES256"}, nil)},
	)
}

func keyAttacks(t *testing.T, es *signer) (all []attack) {
	t.Helper()
	evil := newSigner(t, "ES256", "ec")
	for name, kid := range map[string]string{
		"path": "../../../../dev/null", "file": "/proc/sys/kernel/randomize_va_space",
		"SQL": "x' UNION SELECT 'key' --",
		"URL": "http://169.254.169.254/latest/", "command": "ec|/bin/sh", "NUL": "ec\x00", "empty": "",
		"case": "EC", "long": strings.Repeat("k", 4000),
	} {
		all = append(all, attack{"kid injection: " + name, "key", evil.sign(dict{"kid": kid}, nil)})
	}
	return append(all,
		attack{"kid of a known key, signed by another", "signature", evil.sign(nil, nil)},
		attack{"no kid, signed by another", "signature", evil.sign(dict{"kid": nil}, nil)},
		attack{"kid is no string", "malformed", es.sign(dict{"kid": 1}, nil)},
		attack{"jwk: embedded key", "malformed", evil.sign(dict{"jwk": evil.jwk()}, nil)},
		attack{
			"jku: keys from elsewhere", "malformed",
			evil.sign(dict{"jku": "https://evil.example/keys"}, nil),
		},
		attack{
			"x5u: certificate from elsewhere", "malformed",
			evil.sign(dict{"x5u": "https://evil.example/cert"}, nil),
		},
		attack{"x5c: embedded certificate", "malformed", evil.sign(dict{"x5c": []any{"MIIB"}}, nil)},
	)
}

func signatureAttacks(es *signer) []attack {
	header, payload, signature := split(es.sign(nil, nil))
	sig, _ := decode(signature)
	n := new(big.Int).Set(algorithms["ES256"].curve.Params().N)
	order := make([]byte, 64)
	n.FillBytes(order[:32])
	n.FillBytes(order[32:])
	der := append([]byte{0x30, 0x44, 0x02, 0x20}, sig[:32]...)
	der = append(append(der, 0x02, 0x20), sig[32:]...)
	other := b64([]byte(text(dict{
		"iss": testIssuer, "sub": "root", "aud": "https://rpc.example",
		"exp": testNow.Unix() + 600,
	})))
	message := header + "." + payload + "."
	return []attack{
		{"psychic signature: r and s are 0", "signature", message + b64(make([]byte, 64))},
		{"psychic signature: r and s are the order", "signature", message + b64(order)},
		{"psychic signature: r is 0", "signature", message + b64(append(make([]byte, 32), sig[32:]...))},
		{"truncated signature", "signature", message + b64(sig[:63])},
		{"truncated signature: half", "signature", message + b64(sig[:32])},
		{"signature missing", "signature", message},
		{"longer signature", "signature", message + b64(append(sig[:64:64], 0))},
		{"signature in DER", "signature", message + b64(der)},
		{"replaced payload", "signature", header + "." + other + "." + signature},
		{
			"replaced header", "signature",
			b64([]byte(`{"alg":"ES256","kid":"ec","a":1}`)) + "." + payload + "." + signature,
		},
		{"signature with padding", "malformed", message + signature + "=="},
		{"signature with a line break", "malformed", message + signature[:10] + "\n" + signature[10:]},
		{"signature in base64, not base64url", "malformed", message + strings.Repeat("+/", 43)},
		{
			"signature with bits to spare in its last character", "malformed",
			message + signature[:85] + "_",
		},
	}
}

func formAttacks(es *signer) []attack {
	good := es.sign(nil, nil)
	header, payload, signature := split(good)
	claims := `"sub":"alice","aud":"https://rpc.example","exp":1800000600}`
	iss := `{"iss":"` + testIssuer + `",`
	head := `{"alg":"ES256","kid":"ec"}`
	return []attack{
		{"JWE", "malformed", good + "." + payload + "." + signature},
		{"JWE header", "malformed", es.sign(dict{"enc": "A256GCM"}, nil)},
		{
			"JSON serialization", "malformed",
			`{"protected":"` + header + `","payload":"` + payload + `","signature":"` + signature + `"}`,
		},
		{"nothing", "malformed", ""},
		{"two parts", "malformed", header + "." + payload},
		{"four parts", "malformed", good + "."},
		{"white space around it", "malformed", " " + good},
		{"unknown crit", "malformed", es.sign(dict{"crit": []any{"exp"}, "exp": 1}, nil)},
		{
			"crit of RFC 7797 with b64 false", "malformed",
			es.sign(dict{"crit": []any{"b64"}, "b64": false}, nil),
		},
		{"b64 false", "malformed", es.sign(dict{"b64": false}, nil)},
		{"empty crit", "malformed", es.sign(dict{"crit": []any{}}, nil)},
		{"zip", "malformed", es.sign(dict{"zip": "DEF"}, nil)},
		{"duplicate alg", "malformed", es.raw(`{"alg":"none","kid":"ec","alg":"ES256"}`, iss+claims)},
		{
			"duplicate alg with an escape", "malformed",
			es.raw(`{"alg":"ES256","kid":"ec","\u0061lg":"none"}`, iss+claims),
		},
		{"duplicate kid", "malformed", es.raw(`{"alg":"ES256","kid":"ec","kid":"rsa"}`, iss+claims)},
		{"duplicate sub", "malformed", es.raw(head, iss+`"sub":"root",`+claims)},
		{"duplicate aud", "malformed", es.raw(head, iss+`"aud":"https://other.example",`+claims)},
		{"duplicate iss", "malformed", es.raw(head, iss+`"iss":"https://other.example",`+claims)},
		{"duplicate member inside", "malformed", es.raw(head, iss+`"cnf":{"jkt":"a","jkt":"b"},`+claims)},
		{
			"deep nesting", "malformed",
			es.raw(head, iss+`"a":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+","+claims),
		},
		{"too large", "malformed", es.sign(nil, dict{"a": strings.Repeat("a", maxToken)})},
		{"payload is a list", "malformed", es.raw(head, "[]")},
		{"payload is null", "malformed", es.raw(head, "null")},
		{"payload with data behind", "malformed", es.raw(head, iss+claims+"{}")},
		{"payload is not UTF-8", "malformed", es.raw(head, iss+"\"a\":\"\xff\","+claims)},
		{"typ is no string", "malformed", es.sign(dict{"typ": 1}, nil)},
	}
}

func claimAttacks(es *signer) []attack {
	at := func(d time.Duration) int64 { return testNow.Add(d).Unix() }
	return []attack{
		{"expired", "expired", es.sign(nil, dict{"exp": at(-31 * time.Second)})},
		{"expired long ago", "expired", es.sign(nil, dict{"exp": 0})},
		{"never expires", "claims", es.sign(nil, dict{"exp": nil})},
		{"EXP for exp", "claims", es.sign(nil, dict{"exp": nil, "EXP": at(time.Hour)})},
		{"exp is a string", "claims", es.sign(nil, dict{"exp": "1900000000"})},
		{"exp is negative", "claims", es.sign(nil, dict{"exp": -1})},
		{"exp is beyond all time", "claims", es.sign(nil, dict{"exp": 1e300})},
		{"not yet valid", "not-yet", es.sign(nil, dict{"nbf": at(31 * time.Second)})},
		{"issued in the future", "not-yet", es.sign(nil, dict{"iat": at(31 * time.Second)})},
		{"nbf is a string", "claims", es.sign(nil, dict{"nbf": "0"})},
		{"wrong audience", "audience", es.sign(nil, dict{"aud": "https://other.example"})},
		{
			"wrong audience: a prefix", "audience",
			es.sign(nil, dict{"aud": "https://rpc.example.evil.example"}),
		},
		{"wrong audience: in other case", "audience", es.sign(nil, dict{"aud": "https://RPC.example"})},
		{"wrong audience: none", "audience", es.sign(nil, dict{"aud": nil})},
		{"wrong audience: an empty list", "audience", es.sign(nil, dict{"aud": []any{}})},
		{
			"wrong audience: several in one string", "audience",
			es.sign(nil, dict{"aud": "https://rpc.example https://other.example"}),
		},
		{
			"wrong audience: an object", "audience",
			es.sign(nil, dict{"aud": dict{"https://rpc.example": 1}}),
		},
		{"AUD for aud", "audience", es.sign(nil, dict{"aud": nil, "AUD": "https://rpc.example"})},
		{"wrong issuer", "issuer", es.sign(nil, dict{"iss": "https://other.example"})},
		{"wrong issuer: with a slash", "issuer", es.sign(nil, dict{"iss": testIssuer + "/"})},
		{"wrong issuer: none", "issuer", es.sign(nil, dict{"iss": nil})},
		{"wrong issuer: a list", "issuer", es.sign(nil, dict{"iss": []any{testIssuer}})},
		{"no subject", "claims", es.sign(nil, dict{"sub": nil})},
		{"empty subject", "claims", es.sign(nil, dict{"sub": ""})},
		{"subject is a number", "claims", es.sign(nil, dict{"sub": 1e300})},
		{"Sub for sub", "claims", es.sign(nil, dict{"sub": nil, "Sub": "alice"})},
		{"DPoP proof as a token", "type", es.sign(dict{"typ": "dpop+jwt"}, nil)},
		{"logout token as a token", "type", es.sign(dict{"typ": "logout+jwt"}, nil)},
		{"ID token by nonce", "type", es.sign(dict{"typ": "JWT"}, dict{"nonce": "n"})},
		{"ID token by at_hash", "type", es.sign(dict{"typ": nil}, dict{"at_hash": "h"})},
		{"bound to what cannot be checked", "claims", es.sign(nil, dict{"cnf": dict{"kid": "k"}})},
		{"binding is no object", "claims", es.sign(nil, dict{"cnf": "k"})},
	}
}

// Two issuers: the keys of one do not count for the other, whatever a token says.
func TestAttackIssuerMixUp(t *testing.T) {
	a, b := newSigner(t, "ES256", "k"), newSigner(t, "ES256", "k")
	const nameB = "https://b.example"
	v, err := New([]Issuer{
		{Issuer: testIssuer, JWKS: set(a), Audience: []string{"https://rpc.example"}},
		{
			Issuer: nameB, JWKS: set(b), Audience: []string{"https://rpc.example"},
			Algorithms: []string{"ES256"},
		},
	}, &Options{Now: func() time.Time { return testNow }})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Verify(t.Context(), b.sign(nil, dict{"iss": nameB})); err != nil ||
		got.IssuerIndex != 1 || got.Issuer != nameB {
		t.Errorf("%+v %v", got, err)
	}
	for _, raw := range []string{a.sign(nil, dict{"iss": nameB}), b.sign(nil, nil)} {
		_, err := v.Verify(t.Context(), raw)
		refused(t, err, "signature", raw)
	}
}

// Keys that are weak, or not for signatures, are not keys.
func TestAttackWeakKeys(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	good := newSigner(t, "RS256", "k")
	weak := &signer{alg: "RS256", kid: "k", private: small}
	huge := over(good.jwk(), dict{"n": b64(append([]byte{0x80}, make([]byte, 1024)...))})
	for name, jwk := range map[string]dict{
		"RSA of 1024 bits": weak.jwk(), "RSA of 8200 bits": huge,
		"RSA with exponent 1":       over(good.jwk(), dict{"e": "AQ"}),
		"RSA with an even exponent": over(good.jwk(), dict{"e": "Ag"}),
		"RSA with an even modulus": over(good.jwk(),
			dict{"n": b64(append([]byte{0x80}, make([]byte, 255)...))}),
		"for encryption":        over(good.jwk(), dict{"use": "enc"}),
		"for wrapping":          over(good.jwk(), dict{"key_ops": []any{"wrapKey"}}),
		"for another algorithm": over(good.jwk(), dict{"alg": "RSA-OAEP"}),
		"private":               over(good.jwk(), dict{"d": "AQ"}),
		"symmetric":             {"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"},
		"a point that is not on the curve": {
			"kty": "EC", "crv": "P-256", "x": b64(make([]byte, 32)),
			"y": b64(make([]byte, 32)),
		},
		"a short coordinate": {
			"kty": "EC", "crv": "P-256", "x": "AQ",
			"y": b64(make([]byte, 32)),
		},
		"Ed25519 of 31 bytes": {"kty": "OKP", "crv": "Ed25519", "x": b64(make([]byte, 31))},
		"Ed25519 of 33 bytes": {"kty": "OKP", "crv": "Ed25519", "x": b64(make([]byte, 33))},
		"Ed448":               {"kty": "OKP", "crv": "Ed448", "x": b64(make([]byte, 57))},
		"coordinates of unequal length": {
			"kty": "EC", "crv": "P-256", "x": b64(make([]byte, 32)),
			"y": b64(make([]byte, 31)),
		},
		"base64 with padding": over(good.jwk(), dict{"e": "AQAB=="}),
		"X25519":              {"kty": "OKP", "crv": "X25519", "x": b64(make([]byte, 32))},
		"secp256k1": {
			"kty": "EC", "crv": "secp256k1", "x": b64(make([]byte, 32)),
			"y": b64(make([]byte, 32)),
		},
	} {
		if keys, err := readKeys([]byte(text(dict{"keys": []any{jwk}}))); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
		if keys, err := readKeys(
			[]byte(text(dict{"keys": []any{jwk, newSigner(t, "EdDSA", "").jwk()}}))); err != nil || len(keys) != 1 {
			t.Errorf("%s beside a good one: %v, %v", name, keys, err)
		}
	}
}

// A discovery document that leads to a private address, and a set of keys that redirects there. The
// metadata's server is asked through a transport that takes every public name to the test's own
// server.
func TestAttackMetadataToPrivateAddresses(t *testing.T) {
	var asked atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
	}))
	t.Cleanup(inside.Close)
	s := newSigner(t, "ES256", "k")
	for name, uri := range map[string]string{
		"cloud metadata":        "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
		"cloud metadata, https": "https://169.254.169.254/latest/",
		"cloud metadata, IPv6":  "https://[fd00:ec2::254]/latest/",
		"cloud metadata, NAT64": "https://[64:ff9b::a9fe:a9fe]/",
		"loopback":              inside.URL,
		"loopback, by name":     strings.Replace(inside.URL, "127.0.0.1", "localhost", 1),
		"loopback, IPv6":        "https://[::1]/",
		"loopback, mapped":      "https://[::ffff:127.0.0.1]/",
		"unspecified":           "https://0.0.0.0/",
		"private":               "https://10.0.0.1/keys",
		"file":                  "file:///etc/passwd",
		"plain http":            "http://keys.example/",
	} {
		t.Run(name, func(t *testing.T) {
			net := &fakeNet{pages: map[string]string{
				testIssuer + "/.well-known/openid-configuration": text(
					dict{"issuer": testIssuer, "jwks_uri": uri}),
				uri: set(s),
			}}
			v := fetching(t, net, nil)
			_, err := v.Verify(t.Context(), s.sign(nil, nil))
			refused(t, err, "unavailable", s.sign(nil, nil))
			if !errors.Is(err, fetch.ErrAddress) {
				t.Errorf("it is not for the address: %v", errors.Unwrap(err))
			}
			if net.count(uri) != 0 || asked.Load() != 0 {
				t.Error("it was asked")
			}
		})
	}
}
