// Package onhttp answers one question: what do the two transports over HTTP, httprpc and
// mcp/mcphttp, do in the same way?
package onhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// JSON is the media type of messages.
const JSON = "application/json"

// JSONHeader is a header that is shared: a map entry costs no allocation.
var JSONHeader = []string{JSON}

// maxPooled is the largest buffer that is kept for the next request.
const maxPooled = 64 << 10

// Buffers are the memory of one request and its answer.
type Buffers struct {
	In, Out []byte
	Loan    budget.Loan // holds In, where it is large
}

// A Pool keeps buffers for the next request.
type Pool struct{ pool sync.Pool }

// Get returns buffers that borrow from a budget.
func (p *Pool) Get(from *budget.Budget) *Buffers {
	if b, ok := p.pool.Get().(*Buffers); ok {
		return b
	}
	return &Buffers{In: make([]byte, 0, 1<<10), Loan: budget.Lend(from)}
}

// Put takes buffers back.
func (p *Pool) Put(b *Buffers) {
	if cap(b.In) > maxPooled {
		b.In = nil
	}
	if cap(b.Out) > maxPooled {
		b.Out = nil
	}
	b.In, b.Out = b.In[:0], b.Out[:0]
	if b.Loan.Release() {
		p.pool.Put(b)
	}
}

// Answer writes a plain answer; status 0 is that of net/http.
func Answer(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header["Content-Type"] = JSONHeader
	if len(body) >= 2<<10 { // net/http counts smaller bodies itself
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
	if status != 0 && status != http.StatusOK {
		w.WriteHeader(status)
	}
	for part := range slices.Chunk(body, maxPooled) {
		slow.Answer(w)
		if _, err := w.Write(part); err != nil {
			return // the client has gone
		}
	}
}

// Refuse answers for HTTP itself, in the form that a JSON-RPC client can read.
func Refuse(w http.ResponseWriter, status int, e *jsonrpc.Error) {
	h := w.Header()
	h["Content-Type"] = JSONHeader
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), e), '\n'))
}

// DropOwn removes the headers that belong to one connection (RFC 9110, section 7.6.1), and those
// that a client of HTTP writes itself.
func DropOwn(h http.Header) {
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Accept-Encoding", "Expect",
	} {
		h.Del(name)
	}
}

// Probe answers a probe.
func Probe(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // an error means that the client has gone
}

type timedWriter struct {
	w   io.Writer
	ctl *http.ResponseController
}

// Write gives a client slow.AnswerTime for each part of what is large: the buffers of the system
// may not hold it, and a slow client takes it all the same, in time.
func (t timedWriter) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, maxPooled) {
		if err = t.extend(); err != nil {
			return n, err
		}
		m, err := t.w.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (t timedWriter) extend() error {
	err := t.ctl.SetWriteDeadline(time.Now().Add(slow.AnswerTime))
	if !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// MediaType returns that of a Content-Type, "" when it is not valid.
func MediaType(contentType string) string {
	if contentType == JSON || contentType == sse.ContentType {
		return contentType
	}
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// IsJSON reports whether a Content-Type declares JSON in UTF-8 (RFC 8259 §8.1), or one of other
// names for it.
func IsJSON(contentType string, others ...string) bool {
	if contentType == JSON {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err == nil && (media == JSON || slices.Contains(others, media)) &&
		(!given || strings.EqualFold(charset, "utf-8"))
}

// Complete returns the error of a JSON answer that ends too early, which differs from one that is
// malformed. net/http reports it of an answer with a length, but not of one that ends with its
// connection, and proxies pass on what they got. The error wraps unreached.
func Complete(resp *http.Response, answer []byte, unreached error) error {
	toTheEnd := resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
	text := bytes.TrimRight(answer, " \t\r\n")
	if !toTheEnd && len(text) > 0 && (text[len(text)-1] == '}' || text[len(text)-1] == ']') {
		return nil // it spares a look at all of it
	}
	if _, fault := scan.Text(answer, -1); fault == scan.End {
		return fmt.Errorf("%w: the answer is incomplete: %w", unreached, io.ErrUnexpectedEOF)
	}
	return nil
}

// Excerpt shows the begin of a body.
func Excerpt(body []byte) string {
	const most = 200
	body = bytes.TrimSpace(body)
	if len(body) > most {
		return fmt.Sprintf("%q…", body[:most])
	}
	return fmt.Sprintf("%q", body)
}

// Status names an HTTP status.
func Status(code int) string {
	return strings.TrimSuffix("HTTP status "+strconv.Itoa(code)+" "+http.StatusText(code), " ")
}

// Challenge returns the begin of the header WWW-Authenticate of a 401, otherwise "".
func Challenge(resp *http.Response) string {
	if resp.StatusCode != http.StatusUnauthorized {
		return ""
	}
	s := resp.Header.Get("WWW-Authenticate")
	return s[:min(len(s), 200)]
}

// Transport returns a transport of net/http for many calls at once to one server.
func Transport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
	}
	// The default, 2 idle connections, makes concurrent callers connect again all the time.
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 128
	return t
}
