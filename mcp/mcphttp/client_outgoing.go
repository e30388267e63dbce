package mcphttp

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// outgoing is what the transport must know of a frame that is sent. Its slices
// are parts of the frame.
type outgoing struct {
	method     []byte // of a frame that is no batch; nil when it is a response
	name       []byte // what its params are about, still quoted, see nameParam
	version    []byte // the revision in its params._meta, still quoted
	token      []byte // the progressToken there, as written
	initialize bool

	open [][]byte // ids of the requests that are not answered yet
	one  [1][]byte
}

// read looks at a frame.
func (o *outgoing) read(frame []byte) {
	o.open = o.one[:0]
	if i := scan.Space(frame, 0); i < len(frame) && frame[i] == '[' {
		scan.Array(frame, func(message []byte) bool {
			if method, id, _ := envelope(message); method != nil && id != nil {
				o.open = append(o.open, id)
			}
			return true
		})
		return
	}
	var id, params []byte
	o.method, id, params = envelope(frame)
	if o.method == nil {
		return
	}
	if id != nil {
		o.open = append(o.open, id)
	}
	o.initialize = string(o.method) == spec.MethodInitialize
	about := nameParam(string(o.method))
	for key, value := range members(params) {
		switch {
		case string(key) == "_meta":
			o.readMeta(value)
		case about != "" && string(key) == about && value[0] == '"':
			o.name = value
		}
	}
}

func (o *outgoing) readMeta(meta []byte) {
	for key, value := range members(meta) {
		switch string(key) {
		case spec.MetaProtocolVersion:
			if value[0] == '"' {
				o.version = value
			}
		case "progressToken":
			o.token = value
		}
	}
}

// members is scan.Object for a range statement.
func members(object []byte) func(yield func(key, value []byte) bool) {
	return func(yield func(key, value []byte) bool) { scan.Object(object, yield) }
}

// envelope returns the parts of a message: its method, unescaped, its id as
// written, and its params. What is not there is nil.
func envelope(message []byte) (method, id, params []byte) {
	for key, value := range members(message) {
		switch string(key) {
		case "method":
			if value[0] == '"' {
				method = scan.Unquote(value)
			}
		case "id":
			id = value
		case "params":
			params = value
		}
	}
	return method, id, params
}

// strike notes which requests a frame of the answer responds to.
func (o *outgoing) strike(frame []byte) {
	if i := scan.Space(frame, 0); i < len(frame) && frame[i] == '[' {
		scan.Array(frame, func(message []byte) bool {
			o.strikeOne(message)
			return true
		})
		return
	}
	o.strikeOne(frame)
}

func (o *outgoing) strikeOne(message []byte) {
	method, id, _ := envelope(message)
	switch {
	case method != nil:
	case string(id) == "null":
		o.open = nil // the server could not read the request
	default:
		for i, open := range o.open {
			if bytes.Equal(open, id) {
				o.open = append(o.open[:i:i], o.open[i+1:]...)
				return
			}
		}
	}
}

// modern reports whether the frame is of a stateless revision.
func (o *outgoing) modern(st *state) bool {
	return o.version != nil || st.rev != nil && !st.rev.Handshake
}

// header adds what the protocol demands to the headers of a POST.
func (o *outgoing) header(h http.Header, st *state) error {
	if !o.modern(st) {
		if !o.initialize { // which begins a session
			st.legacyHeader(h)
		}
		return nil
	}
	// 2026-07-28, Streamable HTTP, "Request Metadata".
	version := st.version
	if o.version != nil {
		if v := scan.Unquote(o.version); len(version) == 0 || version[0] != string(v) {
			version = []string{string(v)}
		}
	}
	if !visible(version[0]) {
		return fmt.Errorf("%w: params._meta has the revision %q, which no header can carry", farcall.ErrProtocol, version[0])
	}
	h[headerVersion] = version
	if o.method == nil {
		return nil
	}
	values := make([]string, 2)
	if values[0] = string(o.method); !visible(values[0]) {
		return fmt.Errorf("%w: no header can carry the method %q", farcall.ErrProtocol, o.method)
	}
	h[headerMethod] = values[0:1:1]
	if o.name != nil {
		values[1] = spec.EncodeHeader(string(scan.Unquote(o.name)))
		h[headerName] = values[1:2:2]
	}
	return nil
}

// The headers of MCP, as net/http writes names.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerSession = "Mcp-Session-Id"
)

// maxEventID bounds the id of an event that Detach returns and Attach takes.
const maxEventID = 4 << 10

// validEventID reports whether a later client may send s as Last-Event-ID.
func validEventID(s string) bool {
	if len(s) > maxEventID {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// visible reports whether s is not empty and all visible ASCII, as a session id
// must be.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return s != ""
}
