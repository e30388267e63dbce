package natsrpc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// lostAfter is how long what was cancelled before its server was known waits for it.
	lostAfter = 30 * time.Second
	// ahead bounds what waits to be read: a piece may go beyond the window, and the last one does not
	// count for a server.
	ahead = window + 4*(piece+overhead)
)

// A Transport sends requests for nats://HOST/SUBJECT/PATH over NATS: an http.RoundTripper, for the
// client of httprpc, mcphttp or any other. It connects to an engine with the first request for it,
// and again when that breaks. A Transport is safe for concurrent use, and must not be changed after
// its first use.
//
// RoundTrip fails with a *[net.OpError] with the Op "dial" when the request was not sent: the
// engine cannot be reached, or no server listens on the subject. When the context of a request
// ends, or the body of an answer is closed before its end, the handler's context ends.
type Transport struct {
	// TLS is how the certificate of an engine is checked. Default: by the roots of the system.
	TLS *tls.Config
	// Logger has what connections report. Default [slog.Default].
	Logger *slog.Logger
	// AskEvery is how often a server that does not answer is asked whether it still has the request.
	// Default 10 s.
	AskEvery time.Duration

	mu    sync.Mutex
	links map[string]*link         // by the URL of the engine
	dials map[string]chan struct{} // closed when a connection is there, or has failed; the same
}

// A link is the connection to an engine.
type link struct {
	nc     *nats.Conn
	prefix string // of the subjects for answers, with the dot
	closed chan struct{}
	every  time.Duration // see Transport.AskEvery

	mu    sync.Mutex
	calls map[string]*pending
}

// A pending is a request without its answer, or without the end of it.
type pending struct {
	l       *link
	id      string
	subject string
	arrived chan struct{} // has a value when something was added to pieces
	asked   *time.Timer
	done    chan struct{} // closed with the body
	next    uint64        // piece

	// Under link.mu.
	pieces    []*nats.Msg
	held      int    // bytes in them, with their overhead
	excess    bool   // there were more than the window allows
	control   string // where its server hears of it; "": not known yet
	cancelled bool   // the caller does not wait for the answer
}

// Errors of answers.
var (
	errLost   = errors.New("natsrpc: a part of the answer was lost")
	errGone   = errors.New("natsrpc: the server that had the request is gone")
	errSilent = errors.New("natsrpc: no server has taken the request")
	errClosed = errors.New("natsrpc: the transport was closed")

	errBodyClosed = errors.New("natsrpc: the body was closed")
)

// CloseIdleConnections closes the connections to engines without requests under way.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for server, l := range t.links {
		if l.idle() {
			delete(t.links, server)
			l.nc.Close()
		}
	}
}

// idle reports whether no answer is waited for.
func (l *link) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.calls {
		if !p.cancelled {
			return false
		}
	}
	return true
}

// link returns the connection to an engine. One request connects; others to the same engine wait.
func (t *Transport) link(ctx context.Context, server string) (*link, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if l := t.links[server]; l != nil && !l.nc.IsClosed() {
			return l, nil
		}
		dial := t.dials[server]
		if dial == nil {
			break
		}
		t.mu.Unlock()
		select {
		case <-dial:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			return nil, &net.OpError{Op: "dial", Net: "nats", Err: ctx.Err()}
		}
	}
	if t.links == nil {
		t.links, t.dials = map[string]*link{}, map[string]chan struct{}{}
	}
	dial := make(chan struct{})
	t.dials[server] = dial
	t.mu.Unlock()
	l, err := t.dial(ctx, server)
	t.mu.Lock()
	delete(t.dials, server)
	close(dial)
	if err == nil {
		t.links[server] = l
	}
	return l, err
}

// dial connects to an engine.
func (t *Transport) dial(ctx context.Context, server string) (*link, error) {
	nc, err := connect(ctx, server, t.TLS, cmp.Or(t.Logger, slog.Default()))
	if err != nil {
		return nil, err
	}
	l := &link{
		nc: nc, prefix: nc.NewInbox() + ".", closed: make(chan struct{}),
		every: cmp.Or(t.AskEvery, 10*time.Second), calls: map[string]*pending{},
	}
	nc.SetClosedHandler(func(*nats.Conn) { close(l.closed) })
	if _, err := nc.Subscribe(l.prefix+"*", l.arrived); err != nil {
		nc.Close()
		return nil, err
	}
	return l, nil
}

// connect connects to an engine. What cannot be sent at once fails: it must not be sent later.
func connect(
	ctx context.Context, server string, conf *tls.Config, log *slog.Logger,
) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name("farcall"), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1), nats.SetCustomDialer(dialer{ctx}),
		nats.IgnoreAuthErrorAbort(), // else a password that is refused twice ends the connection for good
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("natsrpc: the connection to the engine ended; it is made again",
					slog.Any("error", err))
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("natsrpc: the engine reports an error", slog.Any("error", err))
		}),
	}
	if conf != nil {
		opts = append(opts, func(o *nats.Options) error { // nats.Secure would demand TLS
			o.TLSConfig = conf.Clone()
			return nil
		})
	}
	nc, err := nats.Connect(server, opts...)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "nats", Err: err}
	}
	return nc, nil
}

// A dialer connects until a context ends; later connections have ten seconds.
type dialer struct{ first context.Context } //nolint:containedctx // of the call that connects first

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.first), 10*time.Second)
	defer cancel()
	if d.first.Err() == nil { // else it is a later connection, or fails at once
		defer context.AfterFunc(d.first, cancel)()
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close() // nothing was written
	}
	at, err := parse(r.URL)
	if err != nil {
		return nil, err
	}
	l, err := t.link(r.Context(), at.server)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(at.subject)
	copyHeader(m.Header, r.Header)
	if r.URL.User != nil && strings.HasPrefix(m.Header.Get("Authorization"), "Basic ") {
		m.Header.Del("Authorization") // net/http has made it of what is for the engine alone
	}
	m.Header.Set(headerStream, "1")
	if r.Method != http.MethodPost {
		m.Header.Set(headerMethod, cmp.Or(r.Method, http.MethodGet))
	}
	if at.path != "" && at.path != defaultPath {
		m.Header.Set(headerPath, at.path)
	}
	if m.Data, err = l.body(r); err != nil {
		return nil, err
	}
	return l.call(r, m)
}

// body reads a request, which must fit into one message.
func (l *link) body(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	limit := l.nc.MaxPayload() - 8<<10 // the engine counts headers as well
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("natsrpc: the request has more than %d bytes, and the engine takes messages "+
			"of %d with their headers (max_payload)",
			limit, l.nc.MaxPayload())
	}
	return b, err
}

// call sends a request and waits for the beginning of its answer.
func (l *link) call(r *http.Request, m *nats.Msg) (*http.Response, error) {
	p := &pending{
		l: l, id: rand.Text(), subject: m.Subject, arrived: make(chan struct{}, 1),
		asked: time.NewTimer(l.every), done: make(chan struct{}),
	}
	m.Reply = l.prefix + p.id
	l.mu.Lock()
	l.calls[p.id] = p
	l.mu.Unlock()
	if err := l.nc.PublishMsg(m); err != nil {
		p.forget()
		return nil, &net.OpError{Op: "dial", Net: "nats", Err: err}
	}
	first, err := p.piece(r.Context(), true)
	if absent := (*net.OpError)(nil); errors.As(err, &absent) {
		p.forget() // no server has it
		return nil, err
	}
	if err != nil {
		p.cancel()
		return nil, err
	}
	resp := &http.Response{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{},
		StatusCode: http.StatusOK, ContentLength: -1,
	}
	if status, err := strconv.Atoi(first.Header.Get(headerStatus)); err == nil {
		resp.StatusCode = status
	}
	resp.Status = strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	copyHeader(resp.Header, first.Header)
	if first.Header.Get(headerStatus) == "" && resp.Header.Get("Content-Type") == "" {
		// It is from another server that speaks JSON-RPC over NATS.
		resp.Header.Set("Content-Type", "application/json")
	}
	b := &body{ctx: r.Context(), p: p}
	b.take(first)
	if b.err == io.EOF { //nolint:errorlint // take sets it
		resp.ContentLength = int64(len(b.rest))
	}
	resp.Body = b
	return resp, nil
}

// arrived gives a message to the call that it is for. It does not block.
func (l *link) arrived(m *nats.Msg) {
	id := strings.TrimPrefix(m.Subject, l.prefix)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.calls[id]
	if p == nil {
		if m.Reply != "" && m.Header.Get(headerEnd) == "" { // a call that was forgotten goes on there
			_ = l.nc.Publish(m.Reply, []byte(tellCancel))
		}
		return
	}
	p.control = cmp.Or(p.control, m.Reply)
	switch {
	case p.cancelled:
		if p.tell(p.control, tellCancel) {
			delete(l.calls, id)
		}
	case p.held+len(m.Data) > ahead:
		p.excess = true
	default:
		p.pieces, p.held = append(p.pieces, m), p.held+len(m.Data)+overhead
	}
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// pop takes the next message of those that have arrived, nil if there is none.
func (p *pending) pop() (m *nats.Msg, err error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if len(p.pieces) == 0 {
		if p.excess {
			err = errLost
		}
		return nil, err
	}
	m, p.pieces = p.pieces[0], p.pieces[1:]
	p.held -= len(m.Data) + overhead
	return m, nil
}

// piece waits for the next piece of an answer: the first one has a status.
func (p *pending) piece(ctx context.Context, first bool) (*nats.Msg, error) {
	for silent := 0; ; {
		switch m, err := p.pop(); {
		case err != nil:
			return nil, err
		case m != nil:
			if err := p.check(m); err != nil {
				return nil, err
			}
			if _, numbered := pieceOf(m); numbered && first && m.Header.Get(headerStatus) == "" {
				continue // taken, not answered yet
			}
			return m, nil
		}
		select {
		case <-p.arrived:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.l.closed:
			return nil, errClosed
		case <-p.done:
			return nil, errBodyClosed
		case <-p.asked.C:
			if err := p.ask(ctx, &silent); err != nil {
				return nil, err
			}
			p.asked.Reset(p.l.every)
		}
	}
}

// check returns why a message is not the next piece.
func (p *pending) check(m *nats.Msg) error {
	absent := m.Header.Get("Status") == "503" && len(m.Data) == 0 && m.Header.Get(headerStatus) == ""
	if absent { // the engine says so
		return &net.OpError{
			Op: "dial", Net: "nats", Err: fmt.Errorf("no server listens on the subject %s", p.subject),
		}
	}
	if n, numbered := pieceOf(m); numbered && n != p.next {
		return errLost
	}
	p.next++
	return nil
}

// ask finds out whether the server still has the call. silent counts the times in a row that it
// could not be found out.
func (p *pending) ask(ctx context.Context, silent *int) error {
	control := p.server()
	if control == "" {
		return errSilent
	}
	ctx, cancel := context.WithTimeout(ctx, p.l.every)
	defer cancel()
	m, err := p.l.nc.RequestWithContext(ctx, control, []byte(tellPing))
	switch {
	case err == nil && string(m.Data) == alive:
		*silent = 0
		return nil
	case len(p.arrived) > 0: // the answer came meanwhile
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return errGone
	case err == nil:
		*silent += 2 // the last piece may be on its way: it says so twice
	default:
		*silent++ // the engine may be away for a while
	}
	if *silent < 3 {
		return nil
	}
	return errGone
}

// server returns where the server hears of the call, "" if that is not known yet.
func (p *pending) server() string {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return p.control
}

// tell tells the server something, unless it is not known yet. One that does not hear it is asked
// by the next piece, or goes on in vain.
func (p *pending) tell(server, what string) bool {
	return server != "" && p.l.nc.Publish(server, []byte(what)) == nil
}

// forget ends the waiting for an answer that is complete, or will never come.
func (p *pending) forget() {
	p.asked.Stop()
	p.l.mu.Lock()
	delete(p.l.calls, p.id)
	p.l.mu.Unlock()
}

// cancel tells the server that the caller does not wait any more: now, or when it is known.
func (p *pending) cancel() {
	p.asked.Stop()
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.tell(p.control, tellCancel) {
		delete(p.l.calls, p.id)
		return
	}
	p.cancelled = true
	time.AfterFunc(lostAfter, p.forget)
}

// A body is that of an answer.
type body struct {
	ctx  context.Context //nolint:containedctx // of the request
	p    *pending
	rest []byte
	read int       // bytes for which the server has no credit yet
	err  error     // behind rest
	once sync.Once // the call ends
	shut sync.Once
}

// take goes on with a piece.
func (b *body) take(m *nats.Msg) {
	b.rest = m.Data
	_, numbered := pieceOf(m)
	switch end := m.Header.Get(headerEnd); {
	case !numbered, end == "1":
		b.err = io.EOF
	case end != "":
		b.err = fmt.Errorf("natsrpc: the answer ends before its end: %q", end)
	default:
		b.read += len(m.Data) + overhead
		if b.read >= window/2 && b.p.tell(b.p.server(), tellCredit+strconv.Itoa(b.read)) {
			b.read = 0
		}
		return
	}
	b.once.Do(b.p.forget)
}

// Read implements io.Reader.
func (b *body) Read(to []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		m, err := b.p.piece(b.ctx, false)
		if err != nil {
			b.err = err
			b.once.Do(b.p.cancel)
			break
		}
		b.take(m)
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(to, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer. It may be called beside Read, which fails then.
func (b *body) Close() error {
	b.shut.Do(func() { close(b.p.done) })
	b.once.Do(b.p.cancel)
	return nil
}
