package mcphttp

import (
	"bytes"
	"net/http"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

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

// mismatch is the error of a request with headers that are not those of its body.
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
	twice    string // a member that is there more than once
}

// readMirrored finds the parts. key is what nameParam returned.
func readMirrored(params jsonrpc.Raw, key string) (m mirrored) {
	var name, meta, version, capabilities []byte
	note := func(at *[]byte, key, value []byte) {
		if *at != nil {
			m.twice = string(key)
		}
		*at = value
	}
	scan.Object(params, func(k, value []byte) bool {
		switch string(k) {
		case key:
			note(&name, k, value)
		case "_meta":
			note(&meta, k, value)
		}
		return true
	})
	scan.Object(meta, func(k, value []byte) bool {
		switch string(k) {
		case spec.MetaProtocolVersion:
			note(&version, k, value)
		case spec.MetaClientCapabilities:
			note(&capabilities, k, value)
		}
		return true
	})
	m.name, m.version = stringValue(name), stringValue(version)
	m.complete = m.version != nil && capabilities != nil && capabilities[0] == '{'
	return m
}

// stringValue returns the characters of a JSON string, or nil.
func stringValue(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '"' {
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
	case len(versions) > 1 || !spec.HeaderText(versions[0]):
		return mismatch("the header MCP-Protocol-Version is malformed")
	case m.twice != "":
		return mismatch("the body has more than one %q", m.twice)
	case m.version == nil:
		return nil // the backend says what is missing
	case string(m.version) != versions[0]:
		return mismatch("MCP-Protocol-Version is %.100q, but the body has %.100q", versions[0], m.version)
	}
	if rev := era.Lookup(versions[0]); rev == nil || !rev.MirroredHeaders {
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
	got, ok := values[0], spec.HeaderText(values[0])
	if encoded {
		got, ok = spec.DecodeHeader(got)
	}
	switch {
	case !ok || len(values) > 1:
		return mismatch("the value of the header %s is malformed", name)
	case got != string(want):
		return mismatch("%s is %.100q, but the body has %.100q", name, got, want)
	}
	return nil
}
