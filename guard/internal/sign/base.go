package sign

import (
	"cmp"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/farcall-dev/farcall/internal/forwarded"
)

// An input is one member of Signature-Input: what a signature covers.
type input struct {
	components []string
	text       string // "@signature-params", as it is signed
	created    int64  // 0: it does not say
	expires    int64
	nonce      string
	alg        string
	keyID      string
	tag        string
}

// readInput reads Signature-Input and Signature. Of several signatures it returns the only one with
// the tag "farcall".
func readInput(h http.Header) (*input, []byte, *Error) {
	inputs, err := dictionary(h, "Signature-Input")
	if err != nil {
		return nil, nil, err
	}
	signatures, err := dictionary(h, "Signature")
	if err != nil {
		return nil, nil, err
	}
	var found *input
	label := ""
	for _, name := range inputs.Names() {
		m, _ := inputs.Get(name)
		list, ok := m.(httpsfv.InnerList)
		if !ok {
			return nil, nil, failed(Malformed, "%q in Signature-Input must be a list of components",
				clip(name))
		}
		if _, ok := signatures.Get(name); !ok {
			return nil, nil, failed(Malformed, "%q in Signature-Input is not in Signature", clip(name))
		}
		if tag, _ := list.Params.Get("tag"); tag != tagName && len(inputs.Names()) > 1 {
			continue
		}
		if found != nil {
			return nil, nil, failed(Malformed, "two signatures have the tag %q", tagName)
		}
		if found, err = newInput(list); err != nil {
			return nil, nil, err
		}
		label = name
	}
	if len(signatures.Names()) != len(inputs.Names()) {
		return nil, nil, failed(Malformed, "Signature has a member that Signature-Input does not have")
	}
	if found == nil {
		return nil, nil, failed(Malformed, "several signatures, and none has the tag %q", tagName)
	}
	m, _ := signatures.Get(label)
	item, ok := m.(httpsfv.Item)
	if !ok || len(item.Params.Names()) > 0 {
		return nil, nil, failed(Malformed, "%q in Signature must be a byte sequence", clip(label))
	}
	signature, ok := item.Value.([]byte)
	if !ok {
		return nil, nil, failed(Malformed, "%q in Signature must be a byte sequence", clip(label))
	}
	return found, signature, nil
}

func newInput(list httpsfv.InnerList) (*input, *Error) {
	in := new(input)
	if len(list.Items) > maxComponents {
		return nil, failed(Malformed, "%d components are signed, %d allowed", len(list.Items),
			maxComponents)
	}
	for _, item := range list.Items {
		name, ok := item.Value.(string)
		if !ok || !isComponent(name) {
			return nil, failed(Malformed,
				"a component in Signature-Input must be a header in lower case, or a derived one of a request")
		}
		if params := item.Params.Names(); len(params) > 0 {
			return nil, failed(Malformed,
				"the component %q has the parameter %q: bs, sf, key, req, tr and name are not supported",
				clip(name), clip(params[0]))
		}
		if in.covers(name) {
			return nil, failed(Malformed, "the component %q is there twice", clip(name))
		}
		in.components = append(in.components, name)
	}
	for _, name := range list.Params.Names() {
		value, _ := list.Params.Get(name)
		if !in.param(name, value) {
			return nil, failed(Malformed,
				"the parameter %q in Signature-Input is unknown, or not of its kind", clip(name))
		}
	}
	text, err := httpsfv.Marshal(list)
	if err != nil {
		return nil, failed(Malformed, "Signature-Input: %v", err)
	}
	in.text = text
	return in, nil
}

// param takes a parameter of a signature (RFC 9421 §2.3).
func (in *input) param(name string, value any) (ok bool) {
	switch name {
	case "created":
		in.created, ok = value.(int64)
		return ok && in.created > 0
	case "expires":
		in.expires, ok = value.(int64)
		return ok && in.expires > 0
	case "nonce":
		in.nonce, ok = value.(string)
	case "alg":
		in.alg, ok = value.(string)
		return ok && in.alg != ""
	case "keyid":
		in.keyID, ok = value.(string)
	case "tag":
		in.tag, ok = value.(string)
		return ok && in.tag == tagName
	}
	return ok
}

func (in *input) covers(name string) bool {
	return slices.Contains(in.components, name)
}

// isComponent reports whether a component can be signed: a field name in lower case, but those of
// the signature itself, or a derived component of a request.
func isComponent(name string) bool {
	switch name {
	case "@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query":
		return true
	case "", "signature", "signature-input":
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// A target is what the derived components of a request are (RFC 9421 §2.2).
type target struct {
	method, scheme, authority, path, query, request string
}

// newTarget reads the request as it came, or, at the client, as it goes.
func newTarget(r *http.Request) (*target, *Error) {
	t := &target{method: r.Method, scheme: "http", authority: r.Host, request: r.RequestURI}
	t.method = cmp.Or(t.method, http.MethodGet)
	u := r.URL
	if r.RequestURI != "" { // as it came: a handler's r.URL may have been rewritten
		if forwarded.Secure(r) {
			t.scheme = "https"
		}
		u = new(url.URL)
		if path, query, _ := strings.Cut(r.RequestURI, "?"); strings.HasPrefix(path, "/") {
			t.path, t.query = path, "?"+query
		} else if parsed, err := url.ParseRequestURI(r.RequestURI); err == nil && parsed.Host != "" {
			u = parsed
		} else {
			return nil, failed(Malformed, "a request for %q cannot be signed", clip(r.RequestURI))
		}
	} else {
		if u == nil || u.Opaque != "" || u.Host == "" {
			return nil, failed(Malformed, "the request has no URL with a host")
		}
		t.scheme = strings.ToLower(u.Scheme)
		t.authority = cmp.Or(t.authority, u.Host)
		t.request = u.RequestURI()
	}
	if t.path == "" {
		t.path, t.query = u.EscapedPath(), "?"+u.RawQuery
		t.path = cmp.Or(t.path, "/")
	}
	t.authority = strings.ToLower(t.authority)
	if t.scheme == "https" {
		t.authority = strings.TrimSuffix(t.authority, ":443")
	} else if host, ok := strings.CutSuffix(t.authority, ":80"); ok {
		t.authority = host
	} else { // TLS may have ended at a proxy
		t.authority = strings.TrimSuffix(t.authority, ":443")
	}
	if t.authority == "" {
		return nil, failed(Malformed, "the request names no host")
	}
	return t, nil
}

func (t *target) component(name string) string {
	switch name {
	case "@method":
		return t.method
	case "@scheme":
		return t.scheme
	case "@authority":
		return t.authority
	case "@path":
		return t.path
	case "@query":
		return t.query
	case "@request-target":
		return t.request
	default: // "@target-uri"
		if t.query == "?" {
			return t.scheme + "://" + t.authority + t.path
		}
		return t.scheme + "://" + t.authority + t.path + t.query
	}
}

// appendBase appends the signature base (RFC 9421 §2.5).
func (in *input) appendBase(dst []byte, t *target, r *http.Request) ([]byte, *Error) {
	for _, name := range in.components {
		var (
			value string
			err   *Error
		)
		switch {
		case name[0] == '@':
			value = t.component(name)
			if !isLine(value) {
				return nil, failed(Malformed, "%s has characters that cannot be signed", name)
			}
		case name == "host":
			value = r.Host // net/http takes it out of the header
		default:
			if value, err = fieldValue(r.Header, name); err != nil {
				return nil, err
			}
		}
		dst = append(append(append(dst, '"'), name...), `": `...)
		dst = append(append(dst, value...), '\n')
	}
	return append(append(dst, `"@signature-params": `...), in.text...), nil
}

// The limits of a request's signature.
const (
	maxField      = 8 << 10 // bytes of Signature-Input, Signature and Content-Digest, each
	maxLabels     = 8       // signatures, digests
	maxComponents = 32      // of one signature
)

// dictionary reads a header that is a dictionary (RFC 9651 §3.2). What is there twice is refused:
// the one that counts would be the last.
func dictionary(h http.Header, name string) (*httpsfv.Dictionary, *Error) {
	joined := strings.Join(h[name], ", ")
	if len(joined) > maxField {
		return nil, failed(Malformed, "%s has %d bytes, %d allowed", name, len(joined), maxField)
	}
	commas, semicolons, ok := separators(joined)
	if !ok {
		return nil, failed(Malformed, "%s must not have a display string", name)
	}
	if commas >= maxLabels {
		return nil, failed(Malformed, "%s has %d members, %d allowed", name, commas+1, maxLabels)
	}
	d, err := httpsfv.UnmarshalDictionary([]string{joined})
	if err != nil {
		return nil, failed(Malformed, "%s is no dictionary of RFC 9651: %v", name, err)
	}
	params := 0
	for _, label := range d.Names() {
		m, _ := d.Get(label)
		switch m := m.(type) {
		case httpsfv.Item:
			params += len(m.Params.Names())
		case httpsfv.InnerList:
			params += len(m.Params.Names())
			for _, item := range m.Items {
				params += len(item.Params.Names())
			}
		}
	}
	if len(d.Names()) != commas+1 || params != semicolons {
		return nil, failed(Malformed, "%s names a member or a parameter twice", name)
	}
	return d, nil
}

// separators counts the commas and semicolons that are not inside of a string. Not ok: there is a
// display string, in which a backslash is nothing special.
func separators(s string) (commas, semicolons int, ok bool) {
	inside := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			inside = !inside
		case inside && c == '\\':
			i++
		case inside:
		case c == ',':
			commas++
		case c == ';':
			semicolons++
		case c == '%':
			return 0, 0, false
		}
	}
	return commas, semicolons, true
}

// checkDigest checks a body against Content-Digest (RFC 9530 §2): each digest with an algorithm
// that is known must be right, and there must be one.
func checkDigest(h http.Header, body []byte) *Error {
	d, err := dictionary(h, "Content-Digest")
	if err != nil {
		return err
	}
	known := 0
	for _, algorithm := range d.Names() {
		var sum []byte
		switch algorithm {
		case "sha-256":
			s := sha256.Sum256(body)
			sum = s[:]
		case "sha-512":
			s := sha512.Sum512(body)
			sum = s[:]
		default:
			continue // it says nothing against the body
		}
		m, _ := d.Get(algorithm)
		item, ok := m.(httpsfv.Item)
		if !ok {
			return failed(Malformed, "%s in Content-Digest must be a byte sequence", algorithm)
		}
		want, ok := item.Value.([]byte)
		if !ok {
			return failed(Malformed, "%s in Content-Digest must be a byte sequence", algorithm)
		}
		if subtle.ConstantTimeCompare(sum, want) != 1 {
			return failed(Digest, "the body is not the one of its Content-Digest (%s)", algorithm)
		}
		known++
	}
	if known == 0 {
		return failed(Digest, "Content-Digest has neither sha-256 nor sha-512")
	}
	return nil
}

// fieldValue is the value of a header as it is signed (RFC 9421 §2.1): the lines joined, without
// the white space around them.
func fieldValue(h http.Header, name string) (string, *Error) {
	lines := h[http.CanonicalHeaderKey(name)]
	if len(lines) == 0 {
		return "", failed(Mismatch, "the header %q was signed, and is not there", name)
	}
	value := make([]byte, 0, len(lines[0]))
	for i, line := range lines {
		if i > 0 {
			value = append(value, ", "...)
		}
		line, ok := unfold(strings.Trim(line, " \t\r\n"))
		if !ok {
			return "", failed(Malformed, "the header %q has characters that cannot be signed", name)
		}
		value = append(value, line...)
	}
	return string(value), nil
}

// unfold makes a space of each obsolete line folding, OWS CRLF RWS (RFC 9112 §5.2). Not ok: there
// is another line break, a control character, or something that is not ASCII.
func unfold(line string) (string, bool) {
	for i := range len(line) {
		if c := line[i]; c > '~' || c < ' ' && c != '\t' && c != '\r' && c != '\n' {
			return "", false
		}
	}
	if !strings.ContainsAny(line, "\r\n") {
		return line, true
	}
	parts := strings.Split(line, "\r\n")
	for i, part := range parts {
		if strings.ContainsAny(part, "\r\n") ||
			i > 0 && !strings.HasPrefix(part, " ") && !strings.HasPrefix(part, "\t") {
			return "", false
		}
		parts[i] = strings.Trim(part, " \t")
	}
	return strings.Join(parts, " "), true
}
