package policy

import (
	"strings"
	"unicode/utf8"
)

// URIFault says why a URI could stand for another one than it seems to, past a pattern: the words
// after "the URI". "" is none. The braces of a URI template pass.
func URIFault(uri string) string {
	for i := range len(uri) {
		switch c := uri[i]; {
		case c < ' ' || c == 0x7f:
			return "has a control character"
		case c == '\\':
			return "has a backslash"
		case c == ' ' || c > 0x7f || strings.IndexByte("\"<>^`|", c) >= 0:
			return "has a character that must be percent-encoded (RFC 3986 §2)"
		}
	}
	scheme, rest, found := strings.Cut(uri, ":")
	if found {
		if f := schemeFault(scheme, rest); f != "" {
			return f
		}
	}
	if f := escapeFault(uri); f != "" {
		return f
	}
	return dotFault(uri)
}

// schemeFault is about the ways to write one file, or one host (RFC 3986 §6.2.2.1, §6.2.3).
func schemeFault(scheme, rest string) string {
	if strings.ToLower(scheme) != scheme {
		return "has capital letters in its scheme"
	}
	path, authority := strings.CutPrefix(rest, "//")
	switch scheme {
	case "file":
		switch {
		case !authority || !strings.HasPrefix(path, "/"):
			return "of a file is not file:///PATH"
		case strings.Contains(path, "//"):
			return "of a file has an empty segment"
		case strings.ContainsAny(path, "?#"):
			return "of a file has a query or a fragment"
		}
	case "http", "https", "ws", "wss":
		host := path
		if end := strings.IndexAny(host, "/?#"); end >= 0 {
			host = host[:end]
		}
		switch {
		case !authority:
			return "has no host"
		case strings.Contains(host, "{"):
		case strings.ToLower(host) != host:
			return "has capital letters in its host"
		case strings.Contains(host, "@"), strings.ContainsAny(host, "%"):
			return "has a user or an encoded character before its path"
		case strings.HasSuffix(host, "."), strings.HasSuffix(host, ":"), strings.Contains(host, ".:"),
			strings.HasSuffix(host, ":443"), strings.HasSuffix(host, ":80"):
			return "has a host that is not in its shortest form"
		}
	}
	return ""
}

// dotFault finds segments . and .., also in a query: many servers make a path of it.
func dotFault(s string) string {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool {
		return strings.ContainsRune("/?#&=;:,", r)
	}) {
		if part = strings.Trim(part, " "); part == "." || part == ".." {
			return "has a dot segment"
		}
	}
	return ""
}

// escapeFault is about percent-encoding (RFC 3986 §6.2.2.2), also of what was encoded before.
func escapeFault(s string) string {
	for round := range 3 {
		if !strings.Contains(s, "%") {
			return ""
		}
		decoded, fault := unescape(s, round == 0)
		switch {
		case fault != "":
			return fault
		case decoded == s:
			return ""
		case !utf8.ValidString(decoded):
			return "has encoded bytes that are not UTF-8"
		}
		if f := dotFault(decoded); f != "" {
			return f
		}
		s = decoded
	}
	return "is encoded again and again"
}

// unescape decodes s once. Of what was decoded before, a percent sign may stand for itself.
func unescape(s string, first bool) (decoded, fault string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) || hexValue(s[i+1]) < 0 || hexValue(s[i+2]) < 0 {
			if first {
				return "", "has a percent sign that encodes nothing"
			}
			b.WriteByte('%')
			continue
		}
		c := byte(hexValue(s[i+1])<<4 | hexValue(s[i+2]))
		switch {
		case c == '.' || c == '/' || c == '\\':
			return "", "has an encoded dot, slash or backslash"
		case c < ' ' || c == 0x7f:
			return "", "has an encoded control character"
		case isUnreserved(c):
			return "", "has an encoded letter, digit or mark that needs no encoding"
		case first && (s[i+1] >= 'a' || s[i+2] >= 'a'):
			return "", "has a percent-encoding in small letters"
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), ""
}

// isUnreserved is RFC 3986 §2.3, without the dot.
func isUnreserved(c byte) bool {
	return c == '-' || c == '_' || c == '~' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
