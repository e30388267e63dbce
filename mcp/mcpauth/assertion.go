package mcpauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

const (
	assertionTime = 2 * time.Minute // of a client's assertion, which is used at once: clocks differ
	minRSA        = 2048
	maxAssertion  = 64 << 10
)

// A signer proves who the client is with a private key (private_key_jwt, RFC 7523).
type signer struct {
	key   any
	alg   jwa.SignatureAlgorithm
	keyID string
}

// newSigner reads a private key in PEM. algorithm "" is the one of the key.
func newSigner(text, keyID, algorithm string) (*signer, error) {
	key, err := privateKey([]byte(text))
	if err != nil {
		return nil, err
	}
	var fit []jwa.SignatureAlgorithm
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < minRSA {
			return nil, fmt.Errorf("mcpauth: the private key has %d bits; RSA needs %d at least",
				k.N.BitLen(), minRSA)
		}
		fit = []jwa.SignatureAlgorithm{
			jwa.RS256(), jwa.PS256(), jwa.RS384(), jwa.PS384(), jwa.RS512(),
			jwa.PS512(),
		}
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 256:
			fit = []jwa.SignatureAlgorithm{jwa.ES256()}
		case 384:
			fit = []jwa.SignatureAlgorithm{jwa.ES384()}
		case 521:
			fit = []jwa.SignatureAlgorithm{jwa.ES512()}
		}
	case ed25519.PrivateKey:
		fit = []jwa.SignatureAlgorithm{jwa.EdDSA(), jwa.EdDSAEd25519()}
	}
	if len(fit) == 0 {
		return nil, errors.New(
			"mcpauth: the private key is of no use here; it has to be RSA, P-256, P-384, P-521 or Ed25519")
	}
	for _, alg := range fit {
		if algorithm == "" || alg.String() == algorithm {
			return &signer{key: key, alg: alg, keyID: keyID}, nil
		}
	}
	return nil, fmt.Errorf("mcpauth: the private key does not fit the algorithm %q; it is one for %s",
		algorithm, fit[0])
}

var errNoKey = errors.New(
	"mcpauth: the private key is not in PEM (PKCS 8, PKCS 1 or SEC 1), or it is encrypted")

// privateKey reads the first private key of a text. Errors have nothing of it.
func privateKey(text []byte) (any, error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errNoKey
		}
		text = rest
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue // the parameters of a curve, a certificate
		}
		if err != nil {
			return nil, errNoKey
		}
		return key, nil
	}
}

// String keeps the key out of logs.
func (s *signer) String() string { return "private key for " + s.alg.String() }

// GoString keeps the key out of logs.
func (s *signer) GoString() string { return s.String() }

// assertionClaims is the payload of a client's assertion, RFC 7523 §3.
type assertionClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	ID       string `json:"jti"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// assertion signs a JWT that says who the client is, to the authorization server of that issuer. It
// counts once.
func (s *signer) assertion(clientID, audience string, now time.Time) (string, error) {
	header := jws.NewHeaders()
	err := header.Set(jws.TypeKey, "JWT")
	if s.keyID != "" {
		err = errors.Join(err, header.Set(jws.KeyIDKey, s.keyID))
	}
	if err != nil {
		return "", fmt.Errorf("mcpauth: no client assertion: %w", err)
	}
	return sign(&assertionClaims{
		Issuer: clientID, Subject: clientID, Audience: audience, ID: rand.Text(),
		Issued: now.Unix(), Expires: now.Add(assertionTime).Unix(),
	}, s.alg, s.key, header)
}

// AssertionFile returns an Options.Assertion that reads the JWT from a file each time: what a
// platform projects into a workload, and renews there.
func AssertionFile(path string) func(ctx context.Context, audience string) (string, error) {
	return func(context.Context, string) (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("mcpauth: the workload's token cannot be read: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		text, err := io.ReadAll(io.LimitReader(f, maxAssertion+1))
		switch text = bytes.TrimSpace(text); {
		case err != nil:
			return "", fmt.Errorf("mcpauth: the workload's token cannot be read: %w", err)
		case len(text) > maxAssertion, bytes.Count(text, []byte{'.'}) != 2,
			bytes.ContainsAny(text, " \t\r\n"):
			return "", fmt.Errorf("mcpauth: %s has no JWT", path)
		}
		return string(text), nil
	}
}

// dpopAlgorithm is the only one in which proofs are signed: every server must know it.
const dpopAlgorithm = "ES256"

// A dpopKey is the key that tokens are bound to (RFC 9449). It may be used by several
// goroutines.
type dpopKey struct {
	private *ecdsa.PrivateKey
	public  jwk.Key
}

func newDPoPKey() (*dpopKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: no DPoP key: %w", err)
	}
	return dpopKeyOf(private)
}

var errDPoPKey = errors.New("mcpauth: the DPoP key in the token store is damaged; log in again")

// readDPoPKey reads what marshal has written.
func readDPoPKey(pkcs8 []byte) (*dpopKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(pkcs8)
	private, ok := key.(*ecdsa.PrivateKey)
	if err != nil || !ok || private.Curve != elliptic.P256() {
		return nil, errDPoPKey // its cause may have parts of the key
	}
	return dpopKeyOf(private)
}

func dpopKeyOf(private *ecdsa.PrivateKey) (*dpopKey, error) {
	public, err := jwk.Import(&private.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("mcpauth: no DPoP key: %w", err)
	}
	return &dpopKey{private: private, public: public}, nil
}

// marshal returns the private key in PKCS 8, for the store.
func (d *dpopKey) marshal() ([]byte, error) { return x509.MarshalPKCS8PrivateKey(d.private) }

// String keeps the key out of logs.
func (d *dpopKey) String() string { return "DPoP key" }

// GoString keeps the key out of logs.
func (d *dpopKey) GoString() string { return d.String() }

// A proofClaims is the payload of a proof, RFC 9449 §4.2.
type proofClaims struct {
	ID     string `json:"jti"`
	Method string `json:"htm"`
	Target string `json:"htu"`
	Issued int64  `json:"iat"`
	Hash   string `json:"ath,omitempty"`
	Nonce  string `json:"nonce,omitempty"`
}

// proof makes a proof for one request. The query and the fragment of the address do not
// count. accessToken and nonce may be empty.
func (d *dpopKey) proof(method, address, accessToken, nonce string) (string, error) {
	target, err := proofTarget(address)
	if err != nil {
		return "", err
	}
	claims := proofClaims{
		ID: rand.Text(), Method: method, Target: target, Issued: time.Now().Unix(),
		Nonce: nonce,
	}
	if accessToken != "" {
		sum := sha256.Sum256([]byte(accessToken))
		claims.Hash = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	header := jws.NewHeaders()
	if err := errors.Join(header.Set(jws.TypeKey, "dpop+jwt"),
		header.Set(jws.JWKKey, d.public)); err != nil {
		return "", fmt.Errorf("mcpauth: no DPoP proof: %w", err)
	}
	return sign(&claims, jwa.ES256(), d.private, header)
}

// proofTarget is the address without query and fragment, in the one form that servers
// compare with (RFC 9449 §4.3, RFC 3986 §6.2.2 and §6.2.3).
func proofTarget(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", errors.New("mcpauth: no DPoP proof can be made for what is no URL")
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if host, port, err := net.SplitHostPort(u.Host); err == nil &&
		(port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80") {
		u.Host = host
		if strings.Contains(host, ":") {
			u.Host = "[" + host + "]"
		}
	}
	u.Path = cmp.Or(u.Path, "/")
	return u.String(), nil
}

// sign makes a JWS in its compact form.
func sign(
	claims any, algorithm jwa.SignatureAlgorithm, key any, header jws.Headers,
) (string, error) {
	payload, err := jsonv2.Append(nil, claims)
	if err != nil {
		return "", fmt.Errorf("mcpauth: cannot sign: %w", err)
	}
	token, err := jws.Sign(payload, jws.WithKey(algorithm, key, jws.WithProtectedHeaders(header)))
	if err != nil {
		return "", errors.New("mcpauth: cannot sign: the key does not fit " + algorithm.String())
	}
	return string(token), nil
}
