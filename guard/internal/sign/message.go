package sign

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	metaName   = "_meta"
	memberName = "farcall.dev/signature"
	prefix     = "farcall-signature-v1\n"
)

// HasSignature reports whether params claim to be signed, also in a way that [VerifyMessage]
// refuses. Whatever it says no to is not signed: VerifyMessage says [Missing] of it, or that it is
// malformed.
func HasSignature(params []byte) bool {
	// Most messages have none, which two bytes of the names tell that have no other case.
	if bytes.IndexByte(params, '\\') < 0 &&
		(bytes.IndexByte(params, '/') < 0 || bytes.IndexByte(params, '_') < 0) {
		return false
	}
	for key, value := range scan.Members(params) {
		if !isName(key, metaName) {
			continue
		}
		for key := range scan.Members(value) {
			if isName(key, memberName) {
				return true
			}
		}
	}
	return false
}

// claim is the value of the member, before anything is known of it.
type claim struct {
	keyID, alg, created, nonce, sig []byte
}

// VerifyMessage checks the signature in the _meta of params, by one of keys, of a call of method.
// audience must be what it was signed for, "" when it names none. An error is an [*Error]. When it
// was made, and whether its nonce is new, is the caller's to check.
func VerifyMessage(
	method string, params []byte, keys map[string]*Key, audience string,
) (*Signature, error) {
	w := getWork()
	defer w.put()
	s, err := w.verify(method, params, keys, audience)
	if err != nil {
		return nil, err // not a nil *Error
	}
	return s, nil
}

func (w *work) verify(
	method string, params []byte, keys map[string]*Key, audience string,
) (*Signature, *Error) {
	if len(params) == 0 {
		return nil, failed(Missing, "there are no params")
	}
	if err := w.read(params, inParams); err != nil {
		return nil, err
	}
	if w.canon.signature < 0 { // as in a list
		return nil, failed(Missing, "there is no %s in %s", memberName, metaName)
	}
	n := &w.nodes[w.canon.signature]
	var c claim
	if err := c.read(params[n.start:n.end]); err != nil {
		return nil, err
	}
	created, ok := seconds(c.created)
	if !ok {
		return nil, failed(Malformed, "created must be the time in whole seconds since 1970")
	}
	key, err := find(keys, c.keyID)
	if err != nil {
		return nil, err
	}
	var bad error
	if w.signature, bad = url64.AppendDecode(w.signature[:0], c.sig); bad != nil {
		return nil, failed(Malformed, "sig must be base64url without padding")
	}
	w.base = appendHead(w.base[:0], &c, audience, method)
	if !isLine(audience) || !isLine(method) {
		return nil, failed(Malformed, "a method or an audience with control characters cannot be signed")
	}
	w.base = w.canonical(w.base, 0)
	if err := key.verify(string(c.alg), w.base, w.signature, w); err != nil {
		return nil, err
	}
	return &Signature{KeyID: key.ID, Created: time.Unix(created, 0), Nonce: string(c.nonce)}, nil
}

// readParams reads params that can be signed: an object, with an object for _meta if there is one.
func (w *work) readParams(params []byte) *Error {
	if err := w.read(params, inParams); err != nil {
		return err
	}
	if params[w.nodes[0].start] != '{' {
		return failed(Malformed, "only params that are an object can be signed, those of a list cannot")
	}
	if w.meta >= 0 && params[w.nodes[w.meta].start] != '{' {
		return failed(Malformed, "%s must be an object", metaName)
	}
	return nil
}

// read reads the value of the member, which is valid JSON and has no member twice.
func (c *claim) read(raw []byte) (err *Error) {
	if raw[0] != '{' {
		return failed(Malformed, "%s must be an object", memberName)
	}
	for key, value := range scan.Members(raw) {
		var to *[]byte
		switch string(key) {
		case "keyid":
			to = &c.keyID
		case "alg":
			to = &c.alg
		case "nonce":
			to = &c.nonce
		case "sig":
			to = &c.sig
		case "created":
			c.created = value
			continue
		default:
			return failed(Malformed, "%s has a member %q: want keyid, alg, created, nonce and sig",
				memberName, clip(key))
		}
		if value[0] != '"' {
			return failed(Malformed, "%s in %s must be a string", key, memberName)
		}
		*to = scan.Unquote(value)
	}
	switch {
	case len(c.keyID) == 0 || !isWord(c.keyID, ' '):
		err = failed(Malformed, "keyid must be 1 to %d printable ASCII characters", maxWord)
	case string(c.alg) != algHMAC && string(c.alg) != algEd25519:
		err = failed(Algorithm, "%q: want %s or %s", clip(c.alg), algHMAC, algEd25519)
	case !isNonce(c.nonce):
		err = failed(Malformed, "nonce must be %d to %d visible ASCII characters", minNonce, maxWord)
	case len(c.sig) == 0 || !isWord(c.sig, '!'):
		err = failed(Malformed, "sig must be base64url without padding")
	}
	return err
}

// appendHead appends what comes before the canonical params in the bytes that are signed.
func appendHead(dst []byte, c *claim, audience, method string) []byte {
	dst = append(dst, prefix...)
	dst = append(append(dst, c.alg...), '\n')
	dst = append(append(dst, c.keyID...), '\n')
	dst = append(append(dst, c.created...), '\n')
	dst = append(append(dst, c.nonce...), '\n')
	dst = append(append(dst, audience...), '\n')
	return append(append(dst, method...), '\n')
}

// isLine reports whether s is one line of text.
func isLine(s string) bool {
	control := func(r rune) bool { return r < ' ' || r == 0x7F }
	return utf8.ValidString(s) && !strings.ContainsFunc(s, control)
}

// Message returns params with a signature in _meta; nothing else of them changes. The key is the
// []byte of a secret for HMAC-SHA-256 or an ed25519.PrivateKey. nil params become an object. An
// empty nonce becomes a random one.
func Message(
	method string, params []byte, keyID string, key any, now time.Time, nonce, audience string,
) ([]byte, error) {
	s, err := newSigner(keyID, key)
	if err != nil {
		return nil, err
	}
	if nonce == "" {
		nonce = rand.Text()
	}
	if err := s.check(now, nonce); err != nil {
		return nil, err
	}
	if !isLine(audience) || !isLine(method) {
		return nil, failed(Malformed, "a method or an audience with control characters cannot be signed")
	}
	w := getWork()
	defer w.put()
	params, at, err := w.withMeta(params)
	if err != nil {
		return nil, err
	}
	c := claim{
		keyID: []byte(keyID), alg: []byte(s.alg),
		created: strconv.AppendInt(nil, now.Unix(), 10), nonce: []byte(nonce),
	}
	w.base = w.canonical(appendHead(w.base[:0], &c, audience, method), 0)
	c.sig = url64.AppendEncode(nil, s.sign(w.base))

	out := make([]byte, 0, len(params)+len(nonce)+len(keyID)+256)
	out = append(out, params[:at]...)
	out = append(out, `"`+memberName+`":{"alg":"`+s.alg+`","created":`...)
	out = append(append(out, c.created...), `,"keyid":`...)
	out = append(scan.AppendQuoted(out, keyID), `,"nonce":`...)
	out = append(scan.AppendQuoted(out, nonce), `,"sig":"`...)
	out = append(append(out, c.sig...), `"}`...)
	if params[scan.Space(params, at)] != '}' {
		out = append(out, ',')
	}
	return append(out, params[at:]...), nil
}

// withMeta reads params that are to be signed, with a _meta, and returns them with the offset at
// which its first member goes.
func (w *work) withMeta(params []byte) (with []byte, at int, err error) {
	if len(params) == 0 {
		params = []byte("{}")
	}
	if err := w.readParams(params); err != nil {
		return nil, 0, err
	}
	if w.canon.signature >= 0 {
		return nil, 0, failed(Malformed, "they are signed already")
	}
	if w.meta < 0 {
		start := int(w.nodes[0].start) + 1
		with = append(append(make([]byte, 0, len(params)+16), params[:start]...), `"`+metaName+`":{}`...)
		if params[scan.Space(params, start)] != '}' {
			with = append(with, ',')
		}
		params = append(with, params[start:]...)
		if err := w.readParams(params); err != nil {
			return nil, 0, err
		}
	}
	return params, int(w.nodes[w.meta].start) + 1, nil
}
