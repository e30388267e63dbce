package mcphttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

const (
	mediaJSON   = "application/json"
	bothSwapped = "text/event-stream, application/json" // see bothHeader
)

// read reads a POST: what the client accepts, and the body. When that fails, it
// has answered.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (b *buffers, accept accepts, ok bool) {
	if !isJSON(first(r.Header["Content-Type"])) || len(r.Header["Content-Encoding"]) > 0 {
		w.Header().Set("Accept-Post", mediaJSON) // W3C LDP §7.1
		refuseHTTP(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json (charset utf-8), without Content-Encoding")
		return nil, 0, false
	}
	if accept = readAccept(r.Header["Accept"]); accept == 0 {
		refuseHTTP(w, http.StatusNotAcceptable, "Accept must list application/json and text/event-stream")
		return nil, 0, false
	}
	if b, _ = h.pool.Get().(*buffers); b == nil {
		b = &buffers{in: make([]byte, 0, 1<<10), loan: budget.Lend(h.opts.Budget)}
	}
	var err error
	b.in, err = b.loan.ReadAll(b.in, slow.Limit(h.opts.BodyTimeout).Body(w, r), r.ContentLength, h.opts.MaxMessage, budget.Body(w, r))
	if err == nil {
		slow.Limit(h.opts.BodyTimeout).End(w, r)
		return b, accept, true
	}
	evicted := b.loan.Evicted()
	var bounded *http.MaxBytesError
	h.release(b)
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

func (h *Handler) release(b *buffers) {
	if cap(b.in) > maxPooled {
		b.in = nil
	}
	if cap(b.out) > maxPooled {
		b.out = nil
	}
	b.in, b.out = b.in[:0], b.out[:0]
	if b.loan.Release() {
		h.pool.Put(b)
	}
}

// isJSON reports whether a Content-Type declares JSON in UTF-8 (RFC 8259 §8.1).
func isJSON(contentType string) bool {
	if contentType == mediaJSON {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err == nil && media == mediaJSON && (!given || strings.EqualFold(charset, "utf-8"))
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

// answerJSON writes a plain answer.
func answerJSON(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header["Content-Type"] = jsonHeader
	if len(body) >= 2<<10 { // net/http counts smaller bodies itself
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
	if status != 0 && status != http.StatusOK {
		w.WriteHeader(status)
	}
	_, _ = writeTimed(w, http.NewResponseController(w), body) // the client has gone: the error has no receiver
}

// timedWriter is writeTimed as an io.Writer.
type timedWriter struct {
	w   io.Writer
	ctl *http.ResponseController
}

func (p timedWriter) Write(b []byte) (n int, err error) { return writeTimed(p.w, p.ctl, b) }

// writeTimed gives a client slow.AnswerTime for each part of what is large: the
// buffers of the system may not hold it, and a slow client takes it all the
// same, in time.
func writeTimed(w io.Writer, ctl *http.ResponseController, b []byte) (n int, err error) {
	for part := range slices.Chunk(b, maxPooled) {
		if err = ctl.SetWriteDeadline(time.Now().Add(slow.AnswerTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return n, err
		}
		m, err := w.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// refuse answers with an error that no backend has seen.
func refuse(w http.ResponseWriter, status int, id jsonrpc.ID, e *jsonrpc.Error) {
	answerJSON(w, status, jsonrpc.V2.AppendError(nil, id, e))
}

// refuseHTTP answers for HTTP itself: the body is a JSON-RPC error all the same.
func refuseHTTP(w http.ResponseWriter, status int, message string) {
	refuse(w, status, jsonrpc.NullID(), &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: message})
}

// codeOf returns the code of an error object.
func codeOf(e jsonrpc.Raw) (code jsonrpc.Code) {
	scan.Object(e, func(name, value []byte) bool {
		if string(name) == "code" {
			n, _ := strconv.Atoi(string(value)) // ours is a number
			code = jsonrpc.Code(n)
		}
		return true
	})
	return code
}

// first returns the first value of a header, or "".
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
