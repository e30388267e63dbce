package mcphttp

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A header value that begins and ends like this is Base64 of UTF-8 (Streamable
// HTTP, "Value Encoding").
const (
	base64Begin = "=?base64?"
	base64End   = "?="
)

// encodeHeaderValue writes s so that it can be the value of a header.
func encodeHeaderValue(s string) string {
	marked := strings.HasPrefix(s, base64Begin) && strings.HasSuffix(s, base64End)
	if !marked && isHeaderText(s) && s == strings.Trim(s, " \t") {
		return s
	}
	return base64Begin + base64.StdEncoding.EncodeToString([]byte(s)) + base64End
}

// decodeHeaderValue reads what encodeHeaderValue writes. It reports false when
// the value has characters that no header may have, or is no Base64 although it
// says so.
func decodeHeaderValue(v string) (string, bool) {
	if len(v) < len(base64Begin)+len(base64End) || !strings.HasPrefix(v, base64Begin) || !strings.HasSuffix(v, base64End) {
		return v, isHeaderText(v)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v[len(base64Begin) : len(v)-len(base64End)])
	// The decoder passes over line breaks, which cannot be in a header.
	if err != nil || !utf8.Valid(b) || strings.ContainsAny(v, "\r\n") {
		return "", false
	}
	return string(b), true
}

// isHeaderText reports whether s is visible ASCII, spaces and tabs only
// (RFC 9110 §5.5).
func isHeaderText(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// nameParam returns the member of a method's params that the header Mcp-Name
// mirrors, or "".
func nameParam(method string) string {
	switch method {
	case spec.MethodToolsCall, spec.MethodPromptsGet:
		return "name"
	case spec.MethodResourcesRead:
		return "uri"
	case spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel: // tasks extension, "Routing Headers"
		return "taskId"
	}
	return ""
}

// mismatch is the error of a request whose headers are not those of its body.
func mismatch(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(spec.HeaderMismatch, "Header mismatch: "+format, args...)
}

// modernKey is what a body has that speaks a revision without sessions.
var modernKey = []byte(spec.MetaProtocolVersion)

// mirrored are the parts of a request's params that matter to the headers.
type mirrored struct {
	version  []byte // _meta's protocol version; nil when it is no string
	name     []byte // what Mcp-Name mirrors; nil when it is no string
	complete bool   // _meta has all that it must have
}

// readMirrored finds the parts. key is what nameParam returned.
func readMirrored(params jsonrpc.Raw, key string) (m mirrored) {
	scan.Object(params, func(name, value []byte) bool {
		switch string(name) {
		case key:
			m.name = stringValue(value)
		case "_meta":
			capabilities := false
			m.version = nil
			scan.Object(value, func(name, value []byte) bool {
				switch string(name) {
				case spec.MetaProtocolVersion:
					m.version = stringValue(value)
				case spec.MetaClientCapabilities:
					capabilities = value[0] == '{'
				}
				return true
			})
			m.complete = capabilities && m.version != nil
		}
		return true
	})
	return m
}

// stringValue returns the characters of a JSON string, or nil.
func stringValue(raw []byte) []byte {
	if raw[0] != '"' {
		return nil
	}
	return scan.Unquote(raw)
}

// speaksModern reports whether the params have the mark of a revision without
// sessions.
func speaksModern(params jsonrpc.Raw) bool {
	return bytes.Contains(params, modernKey) && readMirrored(params, "").version != nil
}

// checkHeaders compares the headers of a modern request with its body
// (Streamable HTTP, "Server Validation"). A version that is not known here has
// rules that are not known either: then only the version is compared, and the
// backend refuses it.
func checkHeaders(h http.Header, method string, m *mirrored) *jsonrpc.Error {
	versions := h[headerVersion]
	switch {
	case len(versions) == 0:
		return mismatch("the header MCP-Protocol-Version is missing")
	case len(versions) > 1 || !isHeaderText(versions[0]):
		return mismatch("the header MCP-Protocol-Version is malformed")
	case m.version == nil:
		return nil // the backend says what is missing
	case string(m.version) != versions[0]:
		return mismatch("MCP-Protocol-Version is %.100q, but the body has %.100q", versions[0], m.version)
	}
	if rev := era.Lookup(versions[0]); rev == nil || !rev.Modern {
		return nil
	}
	if e := mirrors(h[headerMethod], "Mcp-Method", method, false); e != nil {
		return e
	}
	if nameParam(method) == "" || m.name == nil && len(h[headerName]) == 0 {
		return nil
	}
	return mirrors(h[headerName], "Mcp-Name", m.name, true)
}

// mirrors compares the values of a header with what it must be.
func mirrors[T string | []byte](values []string, name string, want T, encoded bool) *jsonrpc.Error {
	if len(values) == 0 {
		return mismatch("the header %s is missing; the body has %.100q", name, want)
	}
	got, ok := values[0], isHeaderText(values[0])
	if encoded {
		got, ok = decodeHeaderValue(got)
	}
	switch {
	case !ok || len(values) > 1:
		return mismatch("the value of the header %s is malformed", name)
	case got != string(want):
		return mismatch("%s is %.100q, but the body has %.100q", name, got, want)
	}
	return nil
}
