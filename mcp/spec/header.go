package spec

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// HeaderParam begins the names of the headers in which clients repeat arguments
// of a tool.
const HeaderParam = "Mcp-Param-"

// A header value that begins and ends like this is Base64 of UTF-8 (2026-07-28,
// Streamable HTTP, "Value Encoding").
const (
	base64Begin = "=?base64?"
	base64End   = "?="
)

// EncodeHeader writes s so that it can be the value of a header.
func EncodeHeader(s string) string {
	marked := strings.HasPrefix(s, base64Begin) && strings.HasSuffix(s, base64End)
	if !marked && HeaderText(s) && s == strings.Trim(s, " \t") {
		return s
	}
	return base64Begin + base64.StdEncoding.EncodeToString([]byte(s)) + base64End
}

// DecodeHeader reads what EncodeHeader writes. It reports false when the value
// has characters that no header may have, or is no Base64 although it says so.
func DecodeHeader(v string) (s string, ok bool) {
	if len(v) < len(base64Begin)+len(base64End) || !strings.HasPrefix(v, base64Begin) ||
		!strings.HasSuffix(v, base64End) {
		return v, HeaderText(v)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v[len(base64Begin) : len(v)-len(base64End)])
	// The decoder passes over line breaks, which cannot be in a header.
	if err != nil || !utf8.Valid(b) || strings.ContainsAny(v, "\r\n") {
		return "", false
	}
	return string(b), true
}

// HeaderText reports whether s is visible ASCII, spaces and tabs only (RFC 9110
// §5.5).
func HeaderText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' })
}
