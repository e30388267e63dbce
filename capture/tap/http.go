package tap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"

	"github.com/farcall-dev/farcall/capture"
)

// maxSessions bounds the sessions that have a connection of the capture each.
const maxSessions = 4096

// kept are the headers that the capture has: none of them is a credential.
var kept = []string{
	"Accept", "Content-Type", "Content-Encoding", "Mcp-Method", "Mcp-Protocol-Version",
	"Origin", "Retry-After", "User-Agent",
}

// proxy forwards HTTP requests, and WebSockets, to a server.
type proxy struct {
	recorder *capture.Recorder
	to       *url.URL

	mu       sync.Mutex
	sessions map[string]uint64 // the connection of each session, by its id
	first    uint64            // that of requests without a session
}

// NewHandler returns a handler that forwards requests and WebSockets to the server at the address,
// and records their frames. A path of the address is used for requests of /. Transport sends the
// requests; nil is the default of net/http.
func NewHandler(
	r *capture.Recorder, to *url.URL, transport http.RoundTripper, log *slog.Logger,
) http.Handler {
	target := *to
	switch target.Scheme {
	case "ws":
		target.Scheme = "http"
	case "wss":
		target.Scheme = "https"
	}
	p := &proxy{recorder: r, to: &target, sessions: map[string]uint64{}}
	forward := &httputil.ReverseProxy{
		Transport:      transport,
		FlushInterval:  -1,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		Rewrite:        p.rewrite,
		ModifyResponse: p.answer,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			log.Warn("the server cannot be reached", "error", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else an answer that comes before the end of the request was read ends both.
		_ = http.NewResponseController(w).EnableFullDuplex() // only HTTP/1 needs it
		forward.ServeHTTP(w, r)
	})
}

// exchange is one request with its answer. Its connection is known once its body is: initialize
// begins a session, which is a connection of the capture.
type exchange struct {
	number  uint64
	request *capture.Record // its envelope, until it is recorded
	session string

	once sync.Once
	conn uint64
}

type exchangeKey struct{}

// decide finds the connection of an exchange. The body is empty when there is none.
func (p *proxy) decide(x *exchange, body []byte) uint64 {
	x.once.Do(func() {
		x.conn = p.connection(x.session, bytes.Contains(body, []byte(`"initialize"`)))
		x.request.Conn = x.conn
		p.recorder.Put(x.request)
	})
	return x.conn
}

// connection returns the number of the connection that stands for a session.
func (p *proxy) connection(session string, begins bool) uint64 {
	connect := func() uint64 {
		return p.recorder.Connect(&capture.Record{Transport: "http", Peer: p.to.Host})
	}
	if session == "" && begins {
		return connect()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if session == "" {
		if p.first == 0 {
			p.first = connect()
		}
		return p.first
	}
	if _, ok := p.sessions[session]; !ok {
		p.nameLocked(session, connect())
	}
	return p.sessions[session]
}

// nameLocked notes the connection of a session.
func (p *proxy) nameLocked(session string, conn uint64) {
	if len(p.sessions) >= maxSessions {
		clear(p.sessions) // sessions that go on get new connections
	}
	p.sessions[session] = conn
}

func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	out := r.Out
	out.URL.Scheme, out.URL.Host, out.Host = p.to.Scheme, p.to.Host, p.to.Host
	if (out.URL.Path == "" || out.URL.Path == "/") && p.to.Path != "" {
		out.URL.Path, out.URL.RawPath = p.to.Path, p.to.RawPath
	}
	out.Header.Del("Sec-Websocket-Extensions") // the frames have to be readable
	out.Header.Del("Accept-Encoding")          // and the answers
	// a page of this address; others stay as they are
	if out.Header.Get("Origin") == "http://"+r.In.Host {
		out.Header.Set("Origin", p.to.Scheme+"://"+p.to.Host)
	}
	x := &exchange{number: p.recorder.Exchange(), session: r.In.Header.Get("Mcp-Session-Id")}
	x.request = &capture.Record{
		Type: "http", Exchange: x.number, Dir: "up", Verb: r.In.Method,
		Path: r.In.URL.RequestURI(), Header: harmless(r.In.Header),
	}
	if out.Body != nil && out.Body != http.NoBody {
		out.Body = p.watch(out.Body, &body{bounded: bounded{emit: p.emit(x, true)}})
	}
	r.Out = out.WithContext(context.WithValue(out.Context(), exchangeKey{}, x))
}

func (p *proxy) emit(x *exchange, up bool) func(data []byte, size int) {
	return func(data []byte, size int) {
		p.recorder.FrameOf(p.decide(x, data), x.number, up, data, size)
	}
}

// answer records the answer to a request, and its frames while they are read.
func (p *proxy) answer(resp *http.Response) error {
	x, ok := resp.Request.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil // it is not one of rewrite
	}
	conn := p.decide(x, nil)
	if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
		p.mu.Lock()
		p.nameLocked(session, conn)
		p.mu.Unlock()
	}
	p.recorder.Put(&capture.Record{
		Type: "http", Conn: conn, Exchange: x.number, Dir: "down", Status: resp.StatusCode,
		Header: harmless(resp.Header),
	})
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" if it is not valid
	switch stream, ok := resp.Body.(io.ReadWriteCloser); {
	case resp.StatusCode == http.StatusSwitchingProtocols && ok:
		resp.Body = p.webSocket(stream)
	case kind == "text/event-stream":
		resp.Body = p.watch(resp.Body, &events{bounded: bounded{emit: p.emit(x, false)}})
	case kind == "application/json":
		resp.Body = p.watch(resp.Body, &body{bounded: bounded{emit: p.emit(x, false)}})
	}
	return nil
}

func harmless(h http.Header) map[string]string {
	some := map[string]string{}
	for _, name := range kept {
		if value := h.Get(name); value != "" {
			some[name] = value
		}
	}
	return some
}

// watched gives what is read of a body to a splitter.
type watched struct {
	io.ReadCloser

	s    splitter
	once sync.Once
}

func (p *proxy) watch(in io.ReadCloser, s splitter) *watched {
	return &watched{ReadCloser: in, s: s}
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	_, _ = w.s.Write(p[:n]) // it does not fail
	if err != nil {
		w.once.Do(w.s.end)
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	err := w.ReadCloser.Close()
	w.once.Do(w.s.end)
	return err
}

// webSocket is the connection to the server after the handshake, with its frames recorded.
type webSocket struct {
	io.ReadWriteCloser

	up, down *messages
	closed   func()
}

func (p *proxy) webSocket(in io.ReadWriteCloser) *webSocket {
	conn := p.recorder.Connect(&capture.Record{Transport: "ws", Peer: p.to.Host})
	emit := func(up bool) func(data []byte, size int) {
		return func(data []byte, size int) { p.recorder.FrameOf(conn, 0, up, data, size) }
	}
	return &webSocket{
		in, &messages{bounded: bounded{emit: emit(true)}}, &messages{bounded: bounded{emit: emit(false)}},
		sync.OnceFunc(func() {
			p.recorder.Put(&capture.Record{Type: "conn", Conn: conn, Transport: "ws", Closed: true})
		}),
	}
}

// Read implements io.Reader.
func (w *webSocket) Read(p []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(p)
	_, _ = w.down.Write(p[:n]) // it does not fail
	return n, err
}

// Write implements io.Writer. The frame is recorded first, so that it stands before its answer.
func (w *webSocket) Write(p []byte) (int, error) {
	_, _ = w.up.Write(p) // it does not fail
	return w.ReadWriteCloser.Write(p)
}

// Close implements io.Closer.
func (w *webSocket) Close() error {
	w.closed()
	return w.ReadWriteCloser.Close()
}

const chunk = 64 << 10

// Pipe forwards what a client writes to a server, and the other way, until both directions have
// ended, and records the frames of both as those of a new connection. The end of one direction is
// forwarded, too, where the transport can express it.
func Pipe(r *capture.Recorder, about *capture.Record, client, server io.ReadWriteCloser) error {
	conn := r.Connect(about)
	var (
		both   sync.WaitGroup
		failed [2]error
	)
	both.Go(func() {
		failed[0] = Forward(server, client, r, conn, true)
		closeWrite(server)
	})
	both.Go(func() {
		failed[1] = Forward(client, server, r, conn, false)
		closeWrite(client)
	})
	both.Wait()
	r.Put(&capture.Record{Type: "conn", Conn: conn, Transport: about.Transport, Closed: true})
	return errors.Join(failed[0], failed[1], client.Close(), server.Close())
}

// Forward copies bytes until in ends, and records their frames as frames of the connection.
func Forward(out io.Writer, in io.Reader, r *capture.Recorder, conn uint64, up bool) error {
	emit := func(data []byte, size int) { r.FrameOf(conn, 0, up, data, size) }
	s := &lines{bounded: bounded{emit: emit}}
	defer s.end()
	return forward(out, in, s)
}

// forward copies bytes, and gives them to s just before they are written, so that a request stands
// before its answer.
func forward(out io.Writer, in io.Reader, s io.Writer) error {
	buf := make([]byte, chunk)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			_, _ = s.Write(buf[:n]) // it does not fail
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe),
			errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed):
			return nil
		default:
			return err
		}
	}
}

// Errors returns a writer that passes what a process writes to its standard error on to out, and
// records it.
func Errors(out io.Writer, r *capture.Recorder, conn uint64) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		rec := &capture.Record{Type: "stderr", Conn: conn, Size: len(p)}
		rec.SetData(append([]byte(nil), p...))
		r.Put(rec)
		return out.Write(p)
	})
}

type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// closeWrite tells the other end that nothing more comes, where that is possible. Otherwise it
// closes the connection.
func closeWrite(c io.Closer) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		if half.CloseWrite() == nil {
			return
		}
	}
	_ = c.Close() // it was used up
}
