package sign

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"
)

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
		if strings.ContainsAny(part, "\r\n") || i > 0 && !strings.HasPrefix(part, " ") && !strings.HasPrefix(part, "\t") {
			return "", false
		}
		parts[i] = strings.Trim(part, " \t")
	}
	return strings.Join(parts, " "), true
}
