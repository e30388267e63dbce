package mcp

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// header returns the headers that mirror arguments, or nil (2026-07-28,
// Streamable HTTP, "Custom Headers from Tool Parameters").
func (t *knownTool) header(arguments jsonrpc.Raw) http.Header {
	if len(t.headers) == 0 {
		return nil
	}
	h := http.Header{}
	for i := range t.headers {
		if value, ok := mirrored(&t.headers[i], arguments); ok {
			h.Set("Mcp-Param-"+t.headers[i].Name, encodeHeader(value))
		}
	}
	return h
}

// mirrored returns the text of an argument. There is none when it is absent, null
// or of another type than it is declared to be.
func mirrored(h *schema.Header, arguments jsonrpc.Raw) (string, bool) {
	value := arguments
	for _, name := range h.Path {
		value = member(value, name)
	}
	if len(value) == 0 {
		return "", false
	}
	switch h.Type {
	case "string":
		if value[0] != '"' {
			return "", false
		}
		return string(scan.Unquote(value)), true
	case "boolean":
		return string(value), value[0] == 't' || value[0] == 'f'
	}
	// 42.0 and 4.2e1 are integers, too, and are written as 42.
	const safe = 1<<53 - 1
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f != float64(int64(f)) || f < -safe || f > safe {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

// encodeHeader writes s so that it can be the value of a header (there, "Value
// Encoding").
func encodeHeader(s string) string {
	const begin, end = "=?base64?", "?="
	plain := s == strings.Trim(s, " \t") && strings.IndexFunc(s, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' }) < 0
	if plain && (!strings.HasPrefix(s, begin) || !strings.HasSuffix(s, end)) {
		return s
	}
	return begin + base64.StdEncoding.EncodeToString([]byte(s)) + end
}
