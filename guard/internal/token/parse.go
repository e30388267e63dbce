package token

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
)

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
