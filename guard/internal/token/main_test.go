package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math/big"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const testIssuer = "https://issuer.example"

var testNow = time.Unix(1_800_000_000, 0)

type dict = map[string]any

// A signer is a private key with its JWK.
type signer struct {
	alg, kid string
	private  crypto.Signer
}

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func newSigner(tb testing.TB, alg, kid string) *signer {
	tb.Helper()
	s := &signer{alg: alg, kid: kid}
	var err error
	switch a := algorithms[alg]; a.kty {
	case "RSA":
		s.private = rsaKey()
	case "EC":
		s.private, err = ecdsa.GenerateKey(a.curve, rand.Reader)
	default:
		_, s.private, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwk returns the public key.
func (s *signer) jwk() dict {
	m := dict{}
	switch public := s.private.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(public.N.Bytes()), b64(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, _ := public.Bytes()
		half := len(point) / 2
		m["kty"], m["crv"], m["x"], m["y"] = "EC", public.Params().Name, b64(point[1:1+half]),
			b64(point[1+half:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(public)
	}
	if s.kid != "" {
		m["kid"] = s.kid
	}
	return m
}

func set(signers ...*signer) string {
	keys := make([]any, len(signers))
	for i, s := range signers {
		keys[i] = s.jwk()
	}
	return text(dict{"keys": keys})
}

func text(v any) string {
	b, err := jsonv2.Append(nil, v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// raw signs what is given, word for word.
func (s *signer) raw(header, payload string) string {
	message := b64([]byte(header)) + "." + b64([]byte(payload))
	return message + "." + b64(s.signature(message))
}

func (s *signer) signature(message string) []byte {
	hash := map[string]crypto.Hash{
		"256": crypto.SHA256, "384": crypto.SHA384,
		"512": crypto.SHA512,
	}[s.alg[2:]]
	digest, o := []byte(message), crypto.SignerOpts(hash)
	if hash != 0 {
		h := hash.New()
		h.Write(digest)
		digest = h.Sum(nil)
	}
	if s.alg[0] == 'P' {
		o = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	var sig []byte
	var err error
	if k, ok := s.private.(*ecdsa.PrivateKey); ok {
		size := (k.Params().BitSize + 7) / 8
		sig = make([]byte, 2*size)
		var r, ss *big.Int
		if r, ss, err = ecdsa.Sign(rand.Reader, k, digest); err == nil {
			r.FillBytes(sig[:size])
			ss.FillBytes(sig[size:])
		}
	} else {
		sig, err = s.private.Sign(rand.Reader, digest, o)
	}
	if err != nil {
		panic(err)
	}
	return sig
}

// sign returns a token. What is given goes over what a good token has; nil takes it away.
func (s *signer) sign(header, claims dict) string {
	h := dict{"alg": s.alg, "typ": "at+jwt"}
	if s.kid != "" {
		h["kid"] = s.kid
	}
	c := dict{
		"iss": testIssuer, "sub": "alice", "aud": "https://rpc.example", "client_id": "app",
		"scope": "read write",
		"iat":   testNow.Unix() - 60, "exp": testNow.Unix() + 600, "roles": []any{"builder", "tester"},
	}
	return s.raw(text(over(h, header)), text(over(c, claims)))
}

func over(m, with dict) dict {
	for k, v := range with {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	return m
}

// verifier has one issuer with the keys; change, when given, changes it.
func verifier(tb testing.TB, change func(*Issuer), signers ...*signer) *Verifier {
	tb.Helper()
	i := Issuer{Issuer: testIssuer, JWKS: set(signers...), Audience: []string{"https://rpc.example"}}
	if change != nil {
		change(&i)
	}
	v, err := New([]Issuer{i}, &Options{Now: func() time.Time { return testNow }})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(v.Close)
	return v
}

// refused fails unless err is an *Error of the reason that has nothing of the token.
func refused(t *testing.T, err error, reason, raw string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != reason {
		t.Errorf("%v: %v; want %s", err, errors.Unwrap(err), reason)
		return
	}
	for part := range strings.SplitSeq(raw, ".") {
		if all := e.Error() + e.Cause.Error(); len(part) > 10 && strings.Contains(all, part) {
			t.Errorf("the error has words of the token: %s", all)
		}
	}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return b64(h[:])
}
