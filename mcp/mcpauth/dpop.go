package mcpauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

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
	claims := proofClaims{ID: rand.Text(), Method: method, Target: target, Issued: time.Now().Unix(), Nonce: nonce}
	if accessToken != "" {
		sum := sha256.Sum256([]byte(accessToken))
		claims.Hash = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	header := jws.NewHeaders()
	if err := errors.Join(header.Set(jws.TypeKey, "dpop+jwt"), header.Set(jws.JWKKey, d.public)); err != nil {
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
	if host, port, err := net.SplitHostPort(u.Host); err == nil && (port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80") {
		u.Host = host
		if strings.Contains(host, ":") {
			u.Host = "[" + host + "]"
		}
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String(), nil
}

// sign makes a JWS in its compact form.
func sign(claims any, algorithm jwa.SignatureAlgorithm, key any, header jws.Headers) (string, error) {
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
