package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	minRSABits = 2048
	// a bigger one would cost anyone who verifies by it, and anybody may send one in a proof
	maxRSABits = 8192
)

// An algorithm is a signature by a private key (RFC 7518 §3.1, RFC 8037, RFC 9864).
type algorithm struct {
	kty   string         // of its keys
	curve elliptic.Curve // of keys of the type EC
	jwa   jwa.SignatureAlgorithm
}

// algorithms are all there are. HMAC is not among them: anyone who could verify by it could sign,
// and a public key would do as its secret. Nor is none.
var algorithms = map[string]algorithm{
	"RS256":   {kty: "RSA", jwa: jwa.RS256()},
	"RS384":   {kty: "RSA", jwa: jwa.RS384()},
	"RS512":   {kty: "RSA", jwa: jwa.RS512()},
	"PS256":   {kty: "RSA", jwa: jwa.PS256()},
	"PS384":   {kty: "RSA", jwa: jwa.PS384()},
	"PS512":   {kty: "RSA", jwa: jwa.PS512()},
	"ES256":   {kty: "EC", jwa: jwa.ES256(), curve: elliptic.P256()},
	"ES384":   {kty: "EC", jwa: jwa.ES384(), curve: elliptic.P384()},
	"ES512":   {kty: "EC", jwa: jwa.ES512(), curve: elliptic.P521()},
	"EdDSA":   {kty: "OKP", jwa: jwa.EdDSA()},
	"Ed25519": {kty: "OKP", jwa: jwa.EdDSAEd25519()},
}

// parts are the members of a JWK that make a public key of a type. They are all that the library
// gets to read.
var parts = map[string][]string{"RSA": {"n", "e"}, "EC": {"crv", "x", "y"}, "OKP": {"crv", "x"}}

// A key is a public key that signatures are verified by.
type key struct {
	id         *string // kid; nil: none
	alg        string  // the only algorithm that it is for; "" for any that fits
	thumbprint string  // RFC 7638, SHA-256
	public     crypto.PublicKey
	gone       atomic.Bool // its issuer has it no more
}

// readKey reads a JWK (RFC 7517) that is public and for signatures.
func readKey(m map[string]any) (*key, error) {
	for _, name := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
		if _, there := m[name]; there {
			return nil, errors.New("it has parts that are private")
		}
	}
	if use, there := m["use"]; there && use != "sig" {
		return nil, errors.New("use is not sig")
	}
	if ops, there := m["key_ops"]; there {
		if list, _ := ops.([]any); !slices.Contains(list, any("verify")) {
			return nil, errors.New("key_ops do not have verify")
		}
	}
	k := &key{}
	if alg, there := m["alg"]; there {
		if k.alg, _ = alg.(string); k.alg == "" {
			return nil, errors.New("alg is no string")
		}
	}
	if kid, there := m["kid"]; there {
		s, ok := kid.(string)
		if !ok {
			return nil, errors.New("kid is no string")
		}
		k.id = &s
	}
	if err := k.readPublic(m); err != nil {
		return nil, err
	}
	if k.alg != "" && !k.fits(k.alg) {
		return nil, errors.New("alg is not one for this key, or not supported")
	}
	return k, nil
}

func (k *key) readPublic(m map[string]any) error {
	kty, _ := m["kty"].(string)
	names, known := parts[kty]
	if !known {
		return errors.New("kty is not RSA, EC or OKP")
	}
	public := map[string]any{"kty": kty}
	size := 0 // of x
	for _, name := range names {
		s, _ := m[name].(string)
		b, err := decode(s)
		if name != "crv" && (err != nil || len(b) == 0) {
			return fmt.Errorf("%s is missing, or not base64url", name)
		}
		if name == "y" && len(b) != size {
			return errors.New("the coordinates differ in length")
		}
		size = len(b)
		public[name] = s
	}
	b, err := jsonv2.Append(nil, public)
	if err != nil {
		return err
	}
	parsed, err := jwk.ParseKey(b)
	if err != nil {
		return errors.New("it is no public key of its type")
	}
	var exported any
	if err := jwk.Export(parsed, &exported); err != nil {
		// a point off the curve, an exponent that is not safe
		return errors.New("it is no public key of its type")
	}
	k.public = exported
	if err := k.check(size); err != nil {
		return err
	}
	sum, err := parsed.Thumbprint(crypto.SHA256)
	k.thumbprint = base64.RawURLEncoding.EncodeToString(sum)
	return err
}

// check refuses keys that are not safe, or of no algorithm. size is that of the last number in it.
func (k *key) check(size int) error {
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		if bits := public.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("an RSA key has %d bits; %d to %d are allowed", bits, minRSABits, maxRSABits)
		}
		if public.E < 3 || public.E > math.MaxInt32 || public.E&1 == 0 || public.N.Bit(0) == 0 {
			return errors.New("it is no RSA key that is safe")
		}
	case *ecdsa.PublicKey:
		if size != (public.Params().BitSize+7)/8 {
			return errors.New("a coordinate has the wrong length") // RFC 7518 §6.2.1.2
		}
	case ed25519.PublicKey:
		if len(public) != ed25519.PublicKeySize {
			return errors.New("an Ed25519 key has the wrong length")
		}
	default:
		return errors.New("it is not for signatures")
	}
	return nil
}

// fits reports whether an algorithm is for this key, by the key's type and curve and by what it
// says itself.
func (k *key) fits(alg string) bool {
	a, known := algorithms[alg]
	if !known || k.alg != "" && k.alg != alg {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return a.kty == "RSA"
	case *ecdsa.PublicKey:
		return a.kty == "EC" && a.curve == public.Curve
	case ed25519.PublicKey:
		return a.kty == "OKP"
	}
	return false
}

var errSignature = errors.New("the signature is wrong")

// verify checks the signature of a token, or of a proof, by its algorithm.
func (k *key) verify(p *parsed) error {
	if !k.fits(p.alg) {
		return errSignature
	}
	v, err := jws.VerifierFor(algorithms[p.alg].jwa)
	if err != nil {
		return err
	}
	if v.Verify(k.public, []byte(p.signed()), p.signature) != nil {
		return errSignature
	}
	return nil
}

const (
	maxToken = 16 << 10 // bytes
	maxDepth = 16       // of JSON in a token, a key or a document
)

// parsed is a JWT with a form that is right; its signature is not verified.
type parsed struct {
	raw, alg, typ string
	kid           *string // nil: none
	header        map[string]any
	claims        map[string]any
	signature     []byte
	access        bool // typ says that it is an access token (RFC 9068 §2.1)
}

// signed is what the signature is about (RFC 7515 §5.2).
func (p *parsed) signed() string { return p.raw[:strings.LastIndexByte(p.raw, '.')] }

// parse reads the compact form of a JWS (RFC 7515 §7.1).
func parse(raw string) (*parsed, error) {
	switch strings.Count(raw, ".") {
	case 2:
	case 4:
		return nil, refuse("malformed", "it is encrypted (RFC 7516), which is not supported")
	default:
		return nil, refuse("malformed", "it does not have the three parts of a JWT")
	}
	head, rest, _ := strings.Cut(raw, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	p := &parsed{raw: raw}
	var err error
	if p.header, err = object(head); err != nil {
		return nil, refuse("malformed", "its header: %w", err)
	}
	if err := p.readHeader(); err != nil {
		return nil, err
	}
	if p.claims, err = object(payload); err != nil {
		return nil, refuse("malformed", "its payload: %w", err)
	}
	if p.signature, err = decode(signature); err != nil {
		return nil, refuse("malformed", "its signature: %w", err)
	}
	return p, nil
}

// readHeader refuses what is not understood: an extension (RFC 7515 §4.1.11), a payload that is not
// encoded (RFC 7797) or is compressed, and whatever brings a key along but jwk, which a DPoP proof
// must have.
func (p *parsed) readHeader() error {
	for _, name := range []string{"crit", "b64", "zip", "enc", "jku", "x5u", "x5c"} {
		if _, there := p.header[name]; there {
			return refuse("malformed", "its header has %s, which is not supported", name)
		}
	}
	alg, ok := p.header["alg"].(string)
	if !ok {
		return refuse("algorithm", "its header has no alg")
	}
	p.alg = alg
	if kid, there := p.header["kid"]; there {
		s, ok := kid.(string)
		if !ok {
			return refuse("malformed", "kid is no string")
		}
		p.kid = &s
	}
	if typ, there := p.header["typ"]; there {
		s, ok := typ.(string)
		if !ok {
			return refuse("malformed", "typ is no string")
		}
		p.typ = strings.ToLower(s)
	}
	return nil
}

// decode decodes base64url without padding (RFC 7515 §2): each value has one form only.
func decode(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") { // the decoder would pass over them
		return nil, errBase64
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, errBase64
	}
	return b, nil
}

var errBase64 = errors.New("it is not base64url without padding")

func object(s string) (map[string]any, error) {
	b, err := decode(s)
	if err != nil {
		return nil, err
	}
	return readObject(b)
}

// readObject reads a JSON object without duplicate members, at any depth.
func readObject(b []byte) (m map[string]any, err error) {
	if _, fault := scan.Text(b, maxDepth); fault != scan.OK {
		return nil, errors.New("it is not JSON: " + fault.String())
	}
	if err := jsonv2.Unmarshal(b, &m); err != nil || m == nil {
		if p := jsonv2.Explain(err); p.Reason != "" {
			return nil, errors.New("it is no object as it should be: " + p.Reason)
		}
		return nil, errors.New("it is no JSON object")
	}
	return m, nil
}
