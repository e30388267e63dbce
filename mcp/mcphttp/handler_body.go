package mcphttp

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	mediaJSON   = onhttp.JSON
	bothSwapped = "text/event-stream, application/json" // see bothHeader
)

// read reads a POST: what the client accepts, and the body. When that fails, it
// has answered.
func (h *Handler) read(
	w http.ResponseWriter, r *http.Request,
) (b *onhttp.Buffers, accept accepts, ok bool) {
	if !onhttp.IsJSON(first(r.Header["Content-Type"])) || len(r.Header["Content-Encoding"]) > 0 {
		w.Header().Set("Accept-Post", mediaJSON) // W3C LDP §7.1
		refuseHTTP(w, http.StatusUnsupportedMediaType,
			"Content-Type must be application/json (charset utf-8), without Content-Encoding")
		return nil, 0, false
	}
	if accept = readAccept(r.Header["Accept"]); accept == 0 {
		refuseHTTP(w, http.StatusNotAcceptable, "Accept must list application/json and text/event-stream")
		return nil, 0, false
	}
	b = h.pool.Get(h.opts.Budget)
	var err error
	b.In, err = b.Loan.ReadAll(b.In, slow.Limit(h.opts.BodyTimeout).Body(w, r), r.ContentLength,
		h.opts.MaxMessage, budget.Body(w, r))
	if err == nil {
		slow.Limit(h.opts.BodyTimeout).End(w, r)
		return b, accept, true
	}
	evicted := b.Loan.Evicted()
	var bounded *http.MaxBytesError
	h.pool.Put(b)
	switch {
	case evicted, errors.Is(err, budget.ErrNoRoom):
		w.Header().Set("Connection", "close") // what is left of the body is not read
		refuse(w, http.StatusServiceUnavailable, jsonrpc.NullID(), budget.Overloaded())
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		refuseHTTP(w, http.StatusRequestTimeout, "The body took too long")
	case errors.Is(err, budget.ErrTooLarge):
		tooLarge(w, r, int64(h.opts.MaxMessage))
	case errors.As(err, &bounded): // by what is around the handler
		tooLarge(w, r, bounded.Limit)
	case r.Context().Err() == nil:
		refuseHTTP(w, http.StatusBadRequest, "The body could not be read")
	}
	return nil, 0, false
}

// tooLarge refuses a body that was not read; the headers say the revision.
func tooLarge(w http.ResponseWriter, r *http.Request, limit int64) {
	e := jsonrpc.Oversize("Request", limit, "bytes")
	e.Message += ": the limit is " + strconv.FormatInt(limit, 10) + " bytes"
	if rev := era.Lookup(first(r.Header[headerVersion])); rev != nil && rev.ReservedCodes {
		e.Code = jsonrpc.TooLarge.Condition().Modern
	}
	refuse(w, http.StatusRequestEntityTooLarge, jsonrpc.NullID(), e)
}

// accepts is what a client can read.
type accepts uint8

const (
	acceptsJSON accepts = 1 << iota
	acceptsEvents
)

// readAccept reads an Accept header (RFC 9110 §12.5.1). Without one everything
// is accepted.
func readAccept(lines []string) accepts {
	if len(lines) == 0 || len(lines) == 1 && (lines[0] == bothHeader[0] || lines[0] == bothSwapped) {
		return acceptsJSON | acceptsEvents
	}
	var yes, no accepts
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err != nil {
				continue
			}
			q, given := params["q"]
			refused := given && strings.Trim(q, "0.") == ""
			switch media {
			case mediaJSON:
				mark(&yes, &no, acceptsJSON, refused)
			case sse.ContentType:
				mark(&yes, &no, acceptsEvents, refused)
			case "application/*":
				mark(&yes, new(accepts), acceptsJSON, refused)
			case "text/*":
				mark(&yes, new(accepts), acceptsEvents, refused)
			case "*/*":
				mark(&yes, new(accepts), acceptsJSON|acceptsEvents, refused)
			}
		}
	}
	return yes &^ no
}

func mark(yes, no *accepts, what accepts, refused bool) {
	if refused {
		yes = no
	}
	*yes |= what
}

// refuse answers with an error that no backend has seen.
func refuse(w http.ResponseWriter, status int, id jsonrpc.ID, e *jsonrpc.Error) {
	onhttp.Answer(w, status, jsonrpc.V2.AppendError(nil, id, e))
}

// refuseHTTP answers for HTTP itself: the body is a JSON-RPC error all the same.
func refuseHTTP(w http.ResponseWriter, status int, message string) {
	refuse(w, status, jsonrpc.NullID(), &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: message})
}

// codeOf returns the code of an error object.
func codeOf(e jsonrpc.Raw) (code jsonrpc.Code) {
	for name, value := range scan.Members(e) {
		if string(name) == "code" {
			n, _ := strconv.Atoi(string(value)) // ours is a number
			code = jsonrpc.Code(n)
		}
	}
	return code
}

// first returns the first value of a header, or "".
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// nameParam returns the member of a method's params that the header Mcp-Name
// mirrors, or "".
func nameParam(method string) string {
	switch method {
	case spec.MethodToolsCall, spec.MethodPromptsGet:
		return "name"
	case spec.MethodResourcesRead:
		return "uri"
	case spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel:
		// tasks extension, "Routing Headers"
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
	for k, value := range scan.Members(params) {
		switch string(k) {
		case key:
			note(&name, k, value)
		case "_meta":
			note(&meta, k, value)
		}
	}
	for k, value := range scan.Members(meta) {
		switch string(k) {
		case spec.MetaProtocolVersion:
			note(&version, k, value)
		case spec.MetaClientCapabilities:
			note(&capabilities, k, value)
		}
	}
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
