package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// inMemory is a RoundTripper that runs a handler, for tests in which time does
// not pass on its own. A connection breaks when the handler panics.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	w := &pipeWriter{head: http.Header{}, body: pw, begun: make(chan struct{})}
	inner := r.Clone(r.Context())
	inner.Body = http.NoBody
	if r.Body != nil {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		inner.Body = io.NopCloser(strings.NewReader(string(all)))
	}
	go func() {
		defer func() {
			if recover() != nil {
				pw.CloseWithError(io.ErrUnexpectedEOF)
				w.WriteHeader(0)
				return
			}
			w.WriteHeader(http.StatusOK)
			pw.Close()
		}()
		m.ServeHTTP(w, inner)
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done():
		pr.CloseWithError(r.Context().Err())
		return nil, r.Context().Err()
	}
	if w.status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	context.AfterFunc(r.Context(), func() { pr.CloseWithError(r.Context().Err()) })
	return &http.Response{
		StatusCode: w.status, Header: w.head.Clone(), Body: pr, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
	}, nil
}

type pipeWriter struct {
	head   http.Header
	body   *io.PipeWriter
	once   sync.Once
	status int
	begun  chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.head }
func (w *pipeWriter) Flush()              {}
func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.begun)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// breakOff ends a connection without ending its answer.
func breakOff() { panic(http.ErrAbortHandler) }

// offline returns a client of a handler without a network.
func offline(t *testing.T, h http.HandlerFunc, o *mcphttp.DialOptions) *mcphttp.Client {
	t.Helper()
	var opts mcphttp.DialOptions
	if o != nil {
		opts = *o
	}
	opts.HTTP = &http.Client{Transport: inMemory{h}}
	return open(t, "http://server.test/mcp", &opts)
}

func open(t *testing.T, url string, o *mcphttp.DialOptions) *mcphttp.Client {
	t.Helper()
	c, err := mcphttp.Dial(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// events sends an event stream, each part as it is.
func events(w http.ResponseWriter, parts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range parts {
		io.WriteString(w, p)
	}
	w.(http.Flusher).Flush()
}

// event is one event; an empty id is left out.
func event(id, data string) string {
	if id != "" {
		id = "id: " + id + "\n"
	}
	return id + "data: " + data + "\n\n"
}

func sendJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func bodyOf(r *http.Request) string {
	all, _ := io.ReadAll(r.Body)
	return string(all)
}

// exchange returns the frames of an answer.
func exchange(ctx context.Context, c *mcphttp.Client, frame string) (got []string, err error) {
	err = c.Exchange(ctx, []byte(frame), func(f []byte) error {
		got = append(got, string(f))
		return nil
	})
	return got, err
}

func call(id int, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)
}

func result(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id) }

// stateless is a call of the newest revision.
func stateless(id int, method, params string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":%q,`+
			`"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":%q}}}`,
		id, method, params, era.Latest().Name)
}

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	notice     = `{"jsonrpc":"2.0","method":"notifications/x"}`
)

// recorder notes what a server was sent.
type recorder struct {
	mu  sync.Mutex
	all []*http.Request
	in  []string
}

func (s *recorder) note(r *http.Request) (body string) {
	body = bodyOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.in = append(s.all, r), append(s.in, r.Method+" "+body)
	return body
}

func (s *recorder) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.in...)
}
