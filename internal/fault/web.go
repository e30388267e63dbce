package fault

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Handler serves HTTP, event streams included, and WebSockets, and passes everything on to a server
// at the base address. Its faults are for answers and for the events of streams; of those for
// requests, it knows delay, late, drop, duplicate, duplicate-id, wrong-id, duplicate-member,
// bad-utf8, close and reset. Over a WebSocket it knows all.
func (in *Injector) Handler(base *url.URL, client *http.Client) http.Handler {
	h := &handler{
		in: in, base: base, client: client, number: int(in.sessions.Add(1)),
		calls: &calls{methods: map[string]string{}},
	}
	h.client = cmp.Or(h.client, http.DefaultClient)
	h.there, h.back = in.decider(h.number, ToServer), in.decider(h.number, ToClient)
	return h
}

type handler struct {
	in          *Injector
	base        *url.URL
	client      *http.Client
	number      int
	calls       *calls
	there, back *decider
	turns       turns

	mu     sync.Mutex
	lastID jsonrpc.Raw // of the request before
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		h.webSocket(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.in.opts.MaxFrame)))
	if err != nil {
		http.Error(w, "fault: the request cannot be read", http.StatusBadRequest)
		return
	}
	out := &webPort{w: w, r: r}
	frames, err := h.request(r.Context(), body, out)
	if err != nil || len(frames) == 0 {
		out.end(cmp.Or(err, errEnded))
		return
	}
	for len(frames) > 1 {
		if extra, err := h.forward(r, frames[0]); err == nil { // the last answer is the client's
			_, _ = io.Copy(io.Discard, io.LimitReader(extra.Body, int64(h.in.opts.MaxFrame)))
			_ = extra.Body.Close()
		}
		frames = frames[1:]
	}
	body = frames[0]
	answer, err := h.forward(r, body)
	if err != nil {
		if r.Context().Err() == nil {
			http.Error(w, "fault: the server cannot be reached", http.StatusBadGateway)
		}
		return
	}
	defer answer.Body.Close()
	out.end(h.answer(r.Context(), answer, out))
}

// request applies the faults of a request, and returns what is to be sent.
func (h *handler) request(ctx context.Context, body []byte,
	out *webPort,
) (frames [][]byte, err error) {
	if len(body) == 0 {
		return [][]byte{body}, nil
	}
	sent := &collector{}
	l := h.channel(ToServer, sent)
	h.mu.Lock()
	l.lastID = h.lastID
	h.mu.Unlock()
	err = l.pass(ctx, body)
	h.mu.Lock()
	h.lastID = l.lastID
	h.mu.Unlock()
	if sent.wasReset {
		out.reset()
	}
	return sent.frames, cmp.Or(err, ctx.Err())
}

// channel returns one for a single message.
func (h *handler) channel(to Direction, out port) *channel {
	d := h.back
	if to == ToServer {
		d = h.there
	}
	return &channel{
		in: h.in, number: h.number, to: to, decider: d, calls: h.calls, out: out, turns: &h.turns,
	}
}

// hops are headers of one hop (RFC 9110 §7.6.1), and those that a proxy sets.
func hops() []string {
	return []string{
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Accept-Encoding",
	}
}

func (h *handler) forward(r *http.Request, body []byte) (*http.Response, error) {
	u := *h.base
	u.Path, u.RawQuery = r.URL.Path, r.URL.RawQuery
	q, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header = r.Header.Clone()
	for _, name := range hops() {
		q.Header.Del(name)
	}
	if o := h.origin(r); o != "" {
		q.Header.Set("Origin", o)
	}
	q.Header.Set("Accept-Encoding", "identity")
	return h.client.Do(q) //nolint:gosec // to the server that the user named
}

// origin is the Origin header of a request as the server gets it, which decides about web pages: a
// page of the proxy is one of the server there, and others stay as they are.
func (h *handler) origin(r *http.Request) string {
	o := r.Header.Get("Origin")
	if u, err := url.Parse(o); err == nil && u.Host != "" && u.Host == r.Host {
		return h.base.Scheme + "://" + h.base.Host
	}
	return o
}

// answer passes an answer on.
func (h *handler) answer(ctx context.Context, a *http.Response, out *webPort) error {
	maps.Copy(out.w.Header(), a.Header)
	for _, name := range hops() {
		out.w.Header().Del(name)
	}
	out.status = a.StatusCode
	pass := func(frame []byte) error { return h.channel(ToClient, out).pass(ctx, frame) }
	if !strings.HasPrefix(a.Header.Get("Content-Type"), sse.ContentType) {
		body, err := io.ReadAll(io.LimitReader(a.Body, int64(h.in.opts.MaxFrame)))
		if err != nil {
			return errEnded
		}
		if len(body) == 0 {
			out.w.WriteHeader(a.StatusCode)
			return nil
		}
		return pass(body)
	}
	out.events = true
	out.flush()
	events := sse.NewReader(a.Body, h.in.opts.MaxFrame, nil)
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errEnded
		}
		out.event = e
		if len(e.Data) == 0 || e.Data[0] != '{' && e.Data[0] != '[' {
			err = out.write(ctx, 0, e.Data) // such as the address of HTTP+SSE
		} else {
			err = pass(e.Data)
		}
		if err != nil {
			return err
		}
	}
}

// A collector is the port of a request: what is to be sent to the server.
type collector struct {
	frames   [][]byte
	wasReset bool
}

func (c *collector) read() ([]byte, error) { return nil, io.EOF }
func (c *collector) write(_ context.Context, _ time.Duration, pieces ...[]byte) error {
	c.frames = append(c.frames, bytes.Join(pieces, nil))
	return nil
}
func (c *collector) half([]byte) error { return nil }
func (c *collector) reset()            { c.wasReset = true }
func (c *collector) close()            {}

// A webPort is an answer of HTTP.
type webPort struct {
	w      http.ResponseWriter
	r      *http.Request
	status int
	events bool
	event  sse.Event
	begun  bool
}

func (p *webPort) read() ([]byte, error) { return nil, io.EOF }

func (p *webPort) flush() {
	if !p.begun {
		p.begun = true
		p.w.WriteHeader(p.status)
	}
	_ = http.NewResponseController(p.w).Flush() // where it cannot, nothing is lost
}

func (p *webPort) write(ctx context.Context, pause time.Duration, pieces ...[]byte) error {
	if p.events {
		var head []byte
		if p.event.ID != "" {
			head = fmt.Appendf(head, "id: %s\n", p.event.ID)
		}
		if p.event.Type != "" {
			head = fmt.Appendf(head, "event: %s\n", p.event.Type)
		}
		pieces = append([][]byte{append(head, "data: "...)}, append(pieces, []byte("\n\n"))...)
	}
	for i, piece := range pieces {
		if i > 0 && backoff.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
		if !p.begun {
			p.begun = true
			p.w.WriteHeader(p.status)
		}
		//nolint:gosec // a proxy passes on what the server has sent, with its type
		if _, err := p.w.Write(piece); err != nil {
			return err
		}
		if p.events || len(pieces) > 1 {
			p.flush()
		}
	}
	return nil
}

func (p *webPort) half(part []byte) error {
	if !p.events {
		p.w.Header().Set("Content-Length", strconv.Itoa(2*len(part)+1))
	}
	p.begun = true
	p.w.WriteHeader(p.status)
	_, err := p.w.Write(part)
	p.flush()
	return err
}

func (p *webPort) reset() {
	conn, _, err := http.NewResponseController(p.w).Hijack()
	if err != nil {
		return // HTTP/2: end closes the stream
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // then the close resets
	}
	_ = conn.Close()
}

func (p *webPort) close() {}

// end ends an answer: with an error in the middle of it.
func (p *webPort) end(err error) {
	if err != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http closes the connection
	}
}

// webSocket connects two WebSockets.
func (h *handler) webSocket(w http.ResponseWriter, r *http.Request) {
	u := *h.base
	u.Path, u.RawQuery = r.URL.Path, r.URL.RawQuery
	header := http.Header{}
	for _, name := range []string{"Authorization", "Cookie"} {
		if v := r.Header.Values(name); v != nil {
			header[name] = v
		}
	}
	if o := h.origin(r); o != "" {
		header.Set("Origin", o)
	}
	var protocols []string
	for _, list := range r.Header.Values("Sec-Websocket-Protocol") {
		for name := range strings.SplitSeq(list, ",") {
			protocols = append(protocols, strings.TrimSpace(name))
		}
	}
	dial := &websocket.DialOptions{HTTPClient: h.client, HTTPHeader: header, Subprotocols: protocols}
	//nolint:bodyclose // the library closes it
	server, refused, err := websocket.Dial(r.Context(), u.String(), dial)
	switch {
	case err != nil && refused != nil && refused.StatusCode >= http.StatusBadRequest:
		http.Error(w, "fault: the server refuses the WebSocket", refused.StatusCode)
		return
	case err != nil:
		http.Error(w, "fault: the server cannot be reached", http.StatusBadGateway)
		return
	}
	// the server has seen the Origin and accepted it
	accept := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if name := server.Subprotocol(); name != "" {
		accept.Subprotocols = []string{name}
	}
	client, err := websocket.Accept(w, r, accept)
	if err != nil {
		_ = server.CloseNow()
		return
	}
	ctx := r.Context()
	// both ends have seen it
	_ = h.in.join(ctx, h.in.socketPort(ctx, client), h.in.socketPort(ctx, server))
}

func (in *Injector) socketPort(ctx context.Context, c *websocket.Conn) *socketPort {
	c.SetReadLimit(int64(in.opts.MaxFrame))
	return &socketPort{c: c, ctx: ctx}
}

// A socketPort is a WebSocket.
type socketPort struct {
	c    *websocket.Conn
	ctx  context.Context //nolint:containedctx // of the connection, for reading
	once sync.Once
}

func (p *socketPort) read() ([]byte, error) {
	_, frame, err := p.c.Read(p.ctx)
	if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
		err = io.EOF
	}
	return frame, err
}

func (p *socketPort) write(ctx context.Context, pause time.Duration, pieces ...[]byte) error {
	w, err := p.c.Writer(ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for i, piece := range pieces {
		if i > 0 && backoff.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return w.Close()
}

func (p *socketPort) half(part []byte) error {
	w, err := p.c.Writer(p.ctx, websocket.MessageText)
	if err == nil {
		_, err = w.Write(part)
	}
	p.reset()
	return err
}

func (p *socketPort) reset() { p.once.Do(func() { _ = p.c.CloseNow() }) }
func (p *socketPort) close() {
	p.once.Do(func() {
		_ = p.c.Close(websocket.StatusNormalClosure, "")
	})
}

// rewrite returns a frame that is wrong.
func (l *channel) rewrite(r *Rule, m *jsonrpc.Message, last jsonrpc.Raw, frame []byte) []byte {
	if r.Fault == "bad-utf8" {
		frame = bytes.Clone(frame)
		if i := bytes.LastIndexByte(frame, '"'); i > 0 {
			return append(frame[:i:i], append([]byte{0xff}, frame[i:]...)...) // at the end of a string
		}
		return append(frame, 0xff)
	}
	if m.Raw == nil || m.Kind != jsonrpc.Request && m.Kind != jsonrpc.Response {
		return frame
	}
	id := m.ID
	switch r.Fault {
	case "duplicate-id":
		if other, err := jsonrpc.ParseID(last); err == nil {
			return m.AppendWithID(nil, other)
		}
	case "wrong-id":
		return m.AppendWithID(nil, jsonrpc.StringID("farcall-fault"))
	case "duplicate-member":
		out := bytes.TrimRight(bytes.Clone(frame), " \t\r\n")
		return append(append(append(out[:len(out)-1:len(out)-1], `,"id":`...), id.Raw()...), '}')
	case "error":
		return m.Version.AppendError(nil, id,
			&jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error"})
	case "huge":
		result := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, r.Size)...), '"')
		return m.Version.AppendResult(nil, id, result)
	}
	return frame
}

// split cuts a frame into pieces of so many bytes.
func split(frame []byte, size int) (pieces [][]byte) {
	size = max(size, 1)
	for len(frame) > size {
		pieces = append(pieces, frame[:size])
		frame = frame[size:]
	}
	return append(pieces, frame)
}

// garbage returns bytes that are no JSON, and no end of a line.
func (d *decider) garbage(size int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]byte, max(size, 1))
	for i := range out {
		out[i] = byte(0x80 | d.noise.IntN(0x80)) // never UTF-8 at the start
	}
	return out
}
