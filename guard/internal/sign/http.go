package sign

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

const tagName = "farcall"

// must are the headers that must be signed when they are there, in addition to Mcp-*: those that
// say who calls, and those that change what the body or the request means.
var must = []string{
	"Authorization", "Content-Digest", "Content-Encoding", "Content-Type",
	"Last-Event-Id", "X-Api-Key",
}

// HTTPHasSignature reports whether a request claims to be signed.
func HTTPHasSignature(r *http.Request) bool {
	return len(r.Header["Signature"]) > 0 || len(r.Header["Signature-Input"]) > 0
}

// VerifyHead checks the signature of the head of a request, by one of keys, so that no caller makes
// a server read a body without a key. Of a request that has a body, CheckBody must follow. An error
// is an [*Error]. When it was made, and whether its nonce is new, is the caller's to check.
func VerifyHead(r *http.Request, hasBody bool, keys map[string]*Key) (*Signature, error) {
	w := getWork()
	defer w.put()
	s, err := w.verifyHead(r, hasBody, keys)
	if err != nil {
		return nil, err // not a nil *Error
	}
	return s, nil
}

// CheckBody compares a body with the digest that is signed.
func CheckBody(r *http.Request, body []byte) error {
	if len(r.Header["Content-Digest"]) > 0 {
		if err := checkDigest(r.Header, body); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) verifyHead(
	r *http.Request, hasBody bool, keys map[string]*Key,
) (*Signature, *Error) {
	in, signature, err := readInput(r.Header)
	if err != nil {
		return nil, err
	}
	if err := in.profile(r.Header, hasBody); err != nil {
		return nil, err
	}
	key, err := find(keys, in.keyID)
	if err != nil {
		return nil, err
	}
	t, err := newTarget(r)
	if err != nil {
		return nil, err
	}
	if w.base, err = in.appendBase(w.base[:0], t, r); err != nil {
		return nil, err
	}
	if err := key.verify(in.alg, w.base, signature, w); err != nil {
		return nil, err
	}
	s := &Signature{KeyID: key.ID, Created: time.Unix(in.created, 0), Nonce: in.nonce}
	if in.expires > 0 {
		s.Expires = time.Unix(in.expires, 0)
	}
	return s, nil
}

// profile checks a signature against what farcall wants it to say and to cover.
func (in *input) profile(h http.Header, hasBody bool) *Error {
	switch {
	case in.created == 0:
		return failed(Uncovered, "created is missing in Signature-Input")
	case in.keyID == "" || len(in.keyID) > maxWord:
		return failed(Uncovered, "keyid is missing in Signature-Input, or longer than %d characters",
			maxWord)
	case !isNonce(in.nonce):
		return failed(Uncovered,
			"nonce is missing in Signature-Input, or not %d to %d visible characters", minNonce, maxWord)
	case in.expires != 0 && in.expires <= in.created:
		return failed(Malformed, "expires is not after created")
	}
	want := []string{"@method"}
	if !in.covers("@target-uri") {
		want = append(want, "@authority", "@path", "@query")
	}
	if hasBody {
		want = append(want, "content-digest")
	}
	named, err := signedHeaders(h)
	if err != nil {
		return err
	}
	for _, name := range append(want, named...) {
		if !in.covers(name) {
			return failed(Uncovered, "%q is not signed, and must be", name)
		}
	}
	return nil
}

// signedHeaders returns the headers that are there and must be signed, in lower case and sorted.
func signedHeaders(h http.Header) (names []string, err *Error) {
	for name, lines := range h {
		lower := strings.ToLower(name)
		canonical := http.CanonicalHeaderKey(name)
		if len(lines) == 0 || !strings.HasPrefix(lower, "mcp-") && !slices.Contains(must, canonical) {
			continue
		}
		if name != canonical {
			return nil, failed(Malformed, "the header %q must be written %q here", clip(name),
				clip(canonical))
		}
		names = append(names, lower)
	}
	slices.Sort(names)
	return names, nil
}

// HTTP signs a request that is otherwise complete: its header gets Content-Digest, Signature-Input
// and Signature. Of the rest it signs what [VerifyHead] wants signed. Key and nonce are as for
// [Message].
func HTTP(r *http.Request, body []byte, keyID string, key any, now time.Time, nonce string) error {
	s, err := newSigner(keyID, key)
	if err != nil {
		return err
	}
	if nonce == "" {
		nonce = rand.Text()
	}
	if err := s.check(now, nonce); err != nil {
		return err
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Del("Content-Digest")
	if len(body) > 0 {
		sum := sha256.Sum256(body)
		r.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	}
	headers, failure := signedHeaders(r.Header)
	if failure != nil {
		return failure
	}
	t, failure := newTarget(r)
	if failure != nil {
		return failure
	}
	list := httpsfv.InnerList{Params: httpsfv.NewParams()}
	for _, name := range append([]string{"@method", "@authority", "@path", "@query"}, headers...) {
		list.Items = append(list.Items, httpsfv.NewItem(name))
	}
	list.Params.Add("created", now.Unix())
	list.Params.Add("nonce", nonce)
	list.Params.Add("keyid", keyID)
	list.Params.Add("alg", s.alg)
	list.Params.Add("tag", tagName)
	in, failure := newInput(list)
	if failure != nil {
		return failure
	}
	base, failure := in.appendBase(nil, t, r)
	if failure != nil {
		return failure
	}
	r.Header.Set("Signature-Input", tagName+"="+in.text)
	r.Header.Set("Signature", tagName+"=:"+base64.StdEncoding.EncodeToString(s.sign(base))+":")
	return nil
}
