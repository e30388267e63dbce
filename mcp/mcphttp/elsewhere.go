package mcphttp

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// stateMark follows the name of a replica in a requestState: see Replica of mcp.ServerOptions.
const stateMark = '~'

// maxReplicas bounds how many replicas are tried for one request.
const maxReplicas = 4

// homeOf returns the replica that begins an id, and the rest.
func (h *Handler) homeOf(id string) (home, rest string) {
	if n := len(h.opts.Replica); len(id) > n {
		return id[:n], id[n:]
	}
	return "", id
}

// answeredElsewhere has another replica answer a request of POST, which has been read. It reports
// false when this one is to.
func (h *Handler) answeredElsewhere(w http.ResponseWriter, r *http.Request, frame []byte) bool {
	if h.opts.Forward == nil {
		return false
	}
	if ids := r.Header[headerSession]; len(ids) == 1 && !bytes.Contains(frame, modernKey) {
		return h.elsewhere(w, r, ids[0], frame)
	}
	if bytes.Contains(frame, []byte(`"requestState"`)) {
		state := scan.Member(scan.Member(frame, "params"), "requestState")
		n := len(h.opts.Replica)
		if len(state) > n+2 && state[0] == '"' && state[n+1] == stateMark {
			return h.forward(w, r, frame, string(state[1:n+1]), "")
		}
	}
	return h.forward(w, r, frame, "", h.principal(r).Text())
}

// Elsewhere has another replica answer a request that has no session, with a body that has been
// read, or carry a WebSocket. to names that replica, and the next one when it is not reached; "":
// this one is to answer, and Elsewhere reports false. Options.Forward is needed.
func (h *Handler) Elsewhere(
	w http.ResponseWriter, r *http.Request, body []byte, to func() string,
) bool {
	return h.sendOn(w, r, body, to, false)
}

// elsewhere has the replica that began a session answer a request of it. A sealed one goes on at
// another replica when that one is not there. Answers of its client are taken here: the id of the
// question says which replica has asked it, see [exchange.pass].
func (h *Handler) elsewhere(w http.ResponseWriter, r *http.Request, id string, frame []byte) bool {
	if h.opts.Forward == nil {
		return false
	}
	home, key := h.homeOf(id)
	if h.opts.Sessions != sessionsSealed || r.URL.Path == h.opts.MessagesPath {
		key = ""
	} else if len(frame) > 0 {
		if m, _ := h.peek(frame); m.Kind == jsonrpc.Response {
			return false
		}
	}
	return h.forward(w, r, frame, home, key)
}

// forward has the replicas answer that Route names, until one does, or this one is to.
func (h *Handler) forward(
	w http.ResponseWriter, r *http.Request, frame []byte, home, key string,
) bool {
	if h.forwarded(r) {
		return false // an answer, for this replica
	}
	to := func() string { return h.opts.Route(r.Context(), home, key) }
	return h.sendOn(w, r, frame, to, true)
}

// sendOn is forward; with reads a request that only reads may be executed twice.
func (h *Handler) sendOn(
	w http.ResponseWriter, r *http.Request, frame []byte, next func() string, reads bool,
) bool {
	for range maxReplicas {
		to := next()
		if to == "" || to == h.opts.Replica {
			return false
		}
		begun, sent, err := h.opts.Forward(w, r, to, frame)
		switch {
		case err == nil:
			return true
		case r.Context().Err() != nil:
			return true // the client has gone
		case begun:
			h.broken(w, frame, err)
			return true
		case sent && (!reads || !h.repeatable(r, frame)):
			h.debug("a forwarded request has no answer", "error", err)
			refuse(w, http.StatusBadGateway, h.requestID(frame), errSilent("unknown"))
			return true
		}
	}
	refuse(w, http.StatusServiceUnavailable, h.requestID(frame), errSilent("no"))
	return true
}

// An outcome is the answer of a replica, without its body.
type outcome struct {
	header http.Header
	code   int
}

func (s *outcome) Header() http.Header         { return s.header }
func (s *outcome) Write(p []byte) (int, error) { return len(p), nil }
func (s *outcome) WriteHeader(code int)        { s.code = code }

// errSilent is the error of a request that another replica has not answered.
func errSilent(sent string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.Unavailable,
		Message: "Unavailable: the node that has this session or call has ended, or is not reached",
		Data: jsonrpc.Raw(
			`{"sent":"` + sent + `","retryable":` +
				map[string]string{"no": "true", "unknown": "false"}[sent] + `}`),
	}
}

// broken ends an answer that has begun and is not whole: an event stream with an error, and
// anything else by closing the connection.
func (h *Handler) broken(w http.ResponseWriter, frame []byte, err error) {
	h.debug("a forwarded answer is not whole", "error", err)
	if m, _ := h.peek(frame); m.Kind == jsonrpc.Request &&
		strings.HasPrefix(w.Header().Get("Content-Type"), sse.ContentType) {
		ctl := http.NewResponseController(w)
		_ = sse.NewWriter(w, ctl.Flush).Event(
			sse.Event{Type: "message", Data: jsonrpc.V2.AppendError([]byte{}, m.ID, errSilent("unknown"))})
		return
	}
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way to close it
}

// repeatable reports whether a request may be executed twice.
func (h *Handler) repeatable(r *http.Request, frame []byte) bool {
	if len(frame) == 0 {
		return r.Method == http.MethodGet
	}
	m, batch := h.peek(frame)
	if batch || m.Kind != jsonrpc.Request {
		return !batch && m.Kind == jsonrpc.Response
	}
	switch string(m.Method) {
	case spec.MethodInitialize, spec.MethodPing, spec.MethodServerDiscover, spec.MethodToolsList,
		spec.MethodResourcesList, spec.MethodResourcesTemplatesList, spec.MethodPromptsList,
		spec.MethodResourcesRead, spec.MethodPromptsGet, spec.MethodCompletionComplete,
		spec.MethodTasksGet, spec.MethodTasksList:
		return true
	}
	return false
}
