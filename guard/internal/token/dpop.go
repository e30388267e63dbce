package token

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/url"
	"strings"
	"time"
)

const (
	maxProof   = 8 << 10 // bytes
	maxProofID = 256
)

// A Proof is a DPoP proof (RFC 9449) with a valid signature and the right binding to the request.
// Whether it is fresh (Issued, Nonce), was not used before (ID), and is by the key of the token
// (Thumbprint) is for the caller to find out.
type Proof struct {
	Thumbprint string    // of its key (RFC 7638), to be compared with Token.KeyThumbprint
	ID         string    // jti: it is used once
	Issued     time.Time // iat
	Nonce      string    // "" for none
}

// ReadProof reads the value of a DPoP header that came with a request: its method, its whole URL as
// the client sees it (a query does not count), and the access token; "" for none. It is an *Error
// when RFC 9449 §4.3 does not hold.
func ReadProof(header, method, target, accessToken string) (*Proof, error) {
	if len(header) > maxProof {
		return nil, refuse("malformed", "the proof has %d bytes; %d are allowed", len(header), maxProof)
	}
	p, err := parse(header)
	if err != nil {
		return nil, err
	}
	if p.typ != "dpop+jwt" {
		return nil, refuse("type", "typ of the proof is not dpop+jwt")
	}
	if _, known := algorithms[p.alg]; !known {
		return nil, refuse("algorithm", "alg of the proof is not one by a private key, or not supported")
	}
	m, _ := p.header["jwk"].(map[string]any)
	k, err := readKey(m)
	if err != nil {
		return nil, refuse("key", "jwk of the proof: %w", err)
	}
	if !k.fits(p.alg) {
		return nil, refuse("key", "jwk of the proof is not for its alg")
	}
	if err := k.verify(p); err != nil {
		return nil, refuse("signature", "the proof: %w", err)
	}
	if err := p.bound(method, target, accessToken); err != nil {
		return nil, err
	}
	proof := &Proof{Thumbprint: k.thumbprint}
	if proof.ID, _ = p.claims["jti"].(string); proof.ID == "" || len(proof.ID) > maxProofID {
		return nil, refuse("claims", "jti of the proof is missing, or has more than %d bytes", maxProofID)
	}
	var there bool
	if proof.Issued, there, err = date(p.claims, "iat"); err != nil || !there {
		return nil, refuse("claims", "iat of the proof is missing, or no time")
	}
	if nonce, there := p.claims["nonce"]; there {
		if proof.Nonce, _ = nonce.(string); proof.Nonce == "" {
			return nil, refuse("claims", "nonce of the proof is no string")
		}
	}
	return proof, nil
}

// bound refuses a proof that was made for another request, or for another token.
func (p *parsed) bound(method, target, accessToken string) error {
	if htm, ok := p.claims["htm"].(string); !ok || htm != method {
		return refuse("claims", "htm of the proof is another method")
	}
	htu, _ := p.claims["htu"].(string)
	theirs, err := normalize(htu)
	if err != nil {
		return refuse("claims", "htu of the proof: %w", err)
	}
	ours, err := normalize(target)
	if err != nil || ours != theirs {
		return refuse("claims", "htu of the proof is another address than this server's")
	}
	ath, there := p.claims["ath"]
	if accessToken == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(accessToken))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	if got, ok := ath.(string); !there || !ok ||
		subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 0 {
		return refuse("claims", "ath of the proof is missing, or of another token")
	}
	return nil
}

var errTarget = errors.New("it is no http URL")

// normalize returns a URL without its query and fragment, as RFC 3986 §6.2.2 and §6.2.3 make the
// same ones equal.
func normalize(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
		return "", errTarget
	}
	scheme := strings.ToLower(u.Scheme)
	port := ":" + u.Port()
	switch {
	case scheme != "http" && scheme != "https":
		return "", errTarget
	case port == ":", port == ":80" && scheme == "http", port == ":443" && scheme == "https":
		port = ""
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return scheme + "://" + host + port + dots(escapes(u.EscapedPath())), nil
}

// escapes decodes what need not be escaped, and writes the rest with capitals (RFC 3986 §6.2.2.1,
// §6.2.2.2).
func escapes(path string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c != '%' { // an EscapedPath has two digits after each
			b.WriteByte(c)
			continue
		}
		c = unhex(path[i+1])<<4 | unhex(path[i+2])
		i += 2
		if c|0x20-'a' < 26 || c-'0' < 10 || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

func unhex(c byte) byte {
	if c > '9' {
		c = c | 0x20 - 'a' + '0' + 10
	}
	return c - '0'
}

// dots removes dot segments (RFC 3986 §5.2.4).
func dots(path string) string {
	var out []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for n, s := range segments {
		last := n == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

const minNonceKey = 32

// Nonces are those that a server gives out for DPoP proofs (RFC 9449 §8, §9), so that a proof
// cannot be made long before it is used. Nothing is remembered: a nonce is a span of time with a
// MAC, the same for everybody. Servers with one key accept each other's. It may be used by any
// number of goroutines at once.
type Nonces struct {
	key  []byte
	life time.Duration
}

// NewNonces returns nonces that are valid for life at least and twice that at most; 0 is 5 min. A
// key has 32 bytes at least; nil makes one up.
func NewNonces(key []byte, life time.Duration) (*Nonces, error) {
	if key == nil {
		key = make([]byte, minNonceKey)
		rand.Read(key)
	}
	if len(key) < minNonceKey {
		return nil, errors.New("token: a key for nonces must have 32 bytes at least")
	}
	life = cmp.Or(max(life, 0), 5*time.Minute)
	return &Nonces{key: key, life: life}, nil
}

// Issue returns the nonce to give out now.
func (n *Nonces) Issue(now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(n.seal(n.slot(now)))
}

// Valid reports whether a nonce was given out in the current span of time or in that before.
func (n *Nonces) Valid(nonce string, now time.Time) bool {
	if len(nonce) > 64 {
		return false
	}
	b, err := decode(nonce)
	if err != nil {
		return false
	}
	slot := n.slot(now)
	// Both are compared, so that the time does not tell which.
	current, before := hmac.Equal(b, n.seal(slot)), hmac.Equal(b, n.seal(slot-1))
	return current || before
}

func (n *Nonces) slot(now time.Time) uint64 { return uint64(now.UnixNano() / int64(n.life)) }

func (n *Nonces) seal(slot uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, slot)
	mac := hmac.New(sha256.New, n.key)
	mac.Write([]byte("farcall DPoP nonce\x00"))
	mac.Write(b)
	return append(b, mac.Sum(nil)[:16]...)
}
