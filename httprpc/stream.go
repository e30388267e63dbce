package httprpc

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// NewStreamHandler serves h to the EventSource of browsers: GET with the query
//
//	?method=math/add_stream&params={"a":2,"b":3}&id=7
//
// runs a method and sends each of its values as an event shaped like a
// response, {"jsonrpc":"2.0","result":VALUE,"id":7}, and after the last one the
// event [DONE]. A method that does not stream sends its one result. An error
// is the last event before [DONE]. The id is 1 by default.
//
// Without params, the other members of the query are the params by name:
// ?method=text/stream&message=hi. A value that is JSON counts as such, any
// other is a string; a name given several times is an array.
//
// An EventSource connects again when its stream has ended, and would call again.
// It then repeats the id of the [DONE] event, and gets 204, which tells it to
// stop.
func NewStreamHandler(h farcall.Handler, o *Options) http.Handler {
	return &streamHandler{newEndpoint(h, o, "GET, OPTIONS")}
}

type streamHandler struct{ endpoint }

const doneID = "done"

func (h *streamHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slow.Limit(h.opts.BodyTimeout).Begin(w, r)
	if !h.gate.open(w, r, http.MethodGet) {
		return
	}
	if r.Header.Get("Last-Event-Id") == doneID {
		slow.AnswerNothing(w, http.StatusNoContent)
		return
	}
	e := &events{out: onhttp.Stream{W: w, Beat: h.opts.KeepAlive, RPC: h.opts.RPC}}
	defer e.end()
	if e.open() != nil {
		return
	}
	q, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		err = h.run(r, e, q)
	}
	if err != nil && !h.fail(e, q.id, err) {
		return
	}
	_ = e.event(sse.Event{ID: doneID, Data: []byte("[DONE]")}) // the caller has gone
}

// run sends the values of a method.
func (h *streamHandler) run(r *http.Request, e *events, q query) error {
	ctx := farcall.WithTraceHeader(withOwner(r), r.Header)
	var chunk []byte
	return h.responder.Stream(ctx, q.method, q.params, func(value jsonrpc.Raw) error {
		chunk = jsonrpc.V2.AppendResult(chunk[:0], q.id, value)
		return e.send(chunk)
	})
}

// fail sends an error. It reports false when the caller has gone.
func (h *streamHandler) fail(e *events, id jsonrpc.ID, err error) bool {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		wire = &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error"}
	}
	return e.send(jsonrpc.V2.AppendError(nil, id, wire)) == nil
}

// query is a call as a URL says it.
type query struct {
	method string
	params jsonrpc.Raw
	id     jsonrpc.ID
}

func parseQuery(raw string) (query, error) {
	q := query{id: jsonrpc.IntID(1)}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, jsonrpc.Refusal(jsonrpc.InvalidRequest, err.Error())
	}
	if s := values.Get("id"); s != "" {
		if q.id, err = jsonrpc.ParseID([]byte(s)); err != nil || q.id.IsNull() {
			q.id = jsonrpc.StringID(s)
		}
	}
	if q.method = values.Get("method"); q.method == "" {
		return q, jsonrpc.Refusal(jsonrpc.InvalidRequest, "the query has no method")
	}
	q.params, err = queryParams(values)
	return q, err
}

// queryParams returns the params of a query: the member params, or an object of
// the other members.
func queryParams(values url.Values) (jsonrpc.Raw, error) {
	if s := values.Get("params"); s != "" {
		if err := jsonrpc.Valid([]byte(s)); err != nil {
			return nil, badParams("they are not JSON: " + err.Error())
		}
		params := jsonrpc.Raw(s)
		switch firstByte(params) {
		case '{', '[':
			return params, nil
		case 'n':
			return nil, nil
		}
		return nil, badParams("they are neither an object nor an array") // JSON-RPC 2.0 §4.2
	}
	params := jsonrpc.Raw{'{'}
	for _, name := range sortedNames(values) {
		if len(params) > 1 {
			params = append(params, ',')
		}
		params = append(jsonrpc.AppendString(params, name), ':')
		params = appendValues(params, values[name])
	}
	if len(params) == 1 {
		return nil, nil
	}
	return append(params, '}'), nil
}

func badParams(reason string) error {
	data := append(jsonrpc.AppendString(jsonrpc.Raw(`{"member":"params","reason":`), reason), '}')
	return &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "Invalid params", Data: data}
}

func sortedNames(values url.Values) (names []string) {
	for name := range values {
		switch name {
		case "method", "params", "id":
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func appendValues(dst []byte, values []string) []byte {
	if len(values) != 1 {
		dst = append(dst, '[')
	}
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		if jsonrpc.Valid([]byte(v)) == nil {
			dst = append(dst, v...)
		} else {
			dst = jsonrpc.AppendString(dst, v)
		}
	}
	if len(values) != 1 {
		dst = append(dst, ']')
	}
	return dst
}

// firstByte returns the first byte that is no white space, or 0.
func firstByte(b []byte) byte {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// events is an answer that is an event stream. It begins with the first event.
// The keep-alive runs in the goroutine of a timer; mu keeps it and the handler
// apart.
type events struct {
	started bool // used by the handler's goroutines only

	mu    sync.Mutex
	out   onhttp.Stream
	ended bool
}

// begin sends the headers.
func (e *events) begin() {
	e.started = true
	e.out.Begin(e.beat)
}

// open begins the stream before there is an event.
func (e *events) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	return e.out.Open()
}

// send sends one event.
func (e *events) send(data []byte) error { return e.event(sse.Event{Data: data}) }

func (e *events) event(ev sse.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started {
		e.begin()
	}
	return e.out.Event(ev)
}

// beat shows that the connection is alive.
func (e *events) beat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		_ = e.out.Comment("") // sticky
	}
}

// end ends the stream.
func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.out.End()
}

const (
	mediaSSE = sse.ContentType
	// acceptBoth is what our client and most others of event streams send.
	acceptBoth = onhttp.JSON + ", " + mediaSSE
)

// isJSON reports whether a Content-Type declares JSON in UTF-8. application/json-rpc and
// application/jsonrequest are names from before the standard one.
func isJSON(contentType string) bool {
	return onhttp.IsJSON(contentType, "application/json-rpc", "application/jsonrequest")
}

// acceptsEvents reports whether an Accept header names event streams and does
// not rule them out with q=0 (RFC 9110 §12.5.1).
func acceptsEvents(accept []string) bool {
	for _, line := range accept {
		if line == acceptBoth {
			return true
		}
		if !strings.Contains(line, mediaSSE) {
			continue
		}
		for item := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err == nil && media == mediaSSE {
				q := strings.TrimRight(params["q"], "0.")
				return q != "" || params["q"] == ""
			}
		}
	}
	return false
}
