package natsrpc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// plainTimeout bounds the requests of callers that take one message, and cannot cancel them.
const plainTimeout = 10 * time.Minute

// Options adjust a Server. They are copied; zero values are the defaults.
type Options struct {
	// Name is that of the service that is announced: letters, digits, - and _. Default: the subject,
	// with - for other characters.
	Name string
	// Queue is the group of servers that share the requests. Default "q".
	Queue string
	// TLS is how the certificate of the engine is checked. Default: by the roots of the system.
	TLS *tls.Config
	// Methods are announced, with the schemas of their params and results, as endpoints of the service
	// at SUBJECT.METHOD, with dots for slashes: a message there is the params alone.
	Methods []farcall.Method
	// MaxInFlight bounds the requests that are handled at once; others are answered with 503. One
	// caller alone has seven eighths of it. Default 4096.
	MaxInFlight int
	// Budget bounds the bytes of large requests that are handled, and of large answers to callers that
	// take one message. A caller has a share of it. Default: that of the process.
	Budget *farcall.Budget
	// Logger has what the connection reports. Default [slog.Default].
	Logger *slog.Logger
}

// A Server takes requests from a subject. It is safe for concurrent use.
type Server struct {
	h       http.Handler
	o       Options
	nc      *nats.Conn
	service micro.Service
	inbox   string // of what callers tell about calls

	ctx    context.Context //nolint:containedctx // ends when the server is closed
	cancel context.CancelFunc

	mu       sync.Mutex
	calls    map[string]*call // by their ids, which are the last part of a subject of the inbox
	held     share.Ledger     // places, by caller
	draining bool
	work     sync.WaitGroup
}

// Listen connects to the engine at an address, nats://HOST/SUBJECT or nats+tls://HOST/SUBJECT, and
// gives the requests that come to the subject to h, each in its own goroutine. It fails when the
// engine cannot be reached; when the connection breaks later it is made again. The context is for
// the connecting only. The server is to be closed.
func Listen(ctx context.Context, addr string, h http.Handler, o *Options) (*Server, error) {
	u, err := url.Parse(addr)
	if err != nil {
		return nil, fmt.Errorf("natsrpc: %w", err)
	}
	at, err := parse(u)
	switch {
	case err != nil:
		return nil, err
	case at.path != "":
		return nil, fmt.Errorf("natsrpc: %s has a path behind its subject; requests say which they want",
			u.Redacted())
	}
	s := &Server{h: h, calls: map[string]*call{}}
	s.o = *cmp.Or(o, &Options{})
	s.o.Name = cmp.Or(s.o.Name, serviceName(at.subject))
	s.o.MaxInFlight = cmp.Or(s.o.MaxInFlight, 4096)
	s.held.SetBounds(share.Bounds{Total: s.o.MaxInFlight, Ratio: 7})
	s.o.Logger = cmp.Or(s.o.Logger, slog.Default())
	if s.nc, err = connect(ctx, at.server, s.o.TLS, s.o.Logger); err != nil {
		return nil, err
	}
	//nolint:forbidigo // a server lives until it is closed, not as long as the call that made it
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.begin(at.subject); err != nil {
		s.cancel()
		s.nc.Close()
		return nil, fmt.Errorf("natsrpc: %w", err)
	}
	return s, nil
}

func (s *Server) begin(subject string) error {
	s.inbox = s.nc.NewInbox()
	if _, err := s.nc.Subscribe(s.inbox+".*", s.told); err != nil {
		return err
	}
	service, err := micro.AddService(s.nc, micro.Config{
		Name: s.o.Name, Version: "0.0.0", QueueGroup: cmp.Or(s.o.Queue, micro.DefaultQueueGroup),
		Description: "JSON-RPC 2.0 over NATS: publish a message of it",
		Endpoint:    &micro.EndpointConfig{Subject: subject, Handler: micro.HandlerFunc(s.message)},
		Metadata:    map[string]string{"protocol": "jsonrpc-2.0"},
	})
	if err != nil {
		return err
	}
	s.service = service
	for _, m := range s.o.Methods {
		at := subject + "." + strings.ReplaceAll(m.Name, "/", ".")
		if m.Subscription || checkSubject(at) != "" {
			continue
		}
		err = errors.Join(err, service.AddEndpoint(serviceName(m.Name), s.taking(m.Name),
			micro.WithEndpointSubject(at), micro.WithEndpointMetadata(map[string]string{
				"summary": m.Summary, "params": string(m.Params), "result": string(m.Result),
			})))
	}
	// An error may be that of a user that may not subscribe.
	return errors.Join(err, s.nc.Flush(), s.nc.LastError())
}

// message takes a message of JSON-RPC.
func (s *Server) message(req micro.Request) { s.request(req, req.Data()) }

// taking returns what takes the params of a method.
func (s *Server) taking(method string) micro.HandlerFunc {
	call := slices.Clip(jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","id":1,"method":`), method))
	return func(req micro.Request) {
		params := req.Data()
		switch {
		case len(params) == 0:
			s.request(req, append(call, '}'))
		case jsonrpc.Valid(params) != nil: // the answer says that it is no JSON
			s.request(req, params)
		default:
			s.request(req, append(append(append(call, `,"params":`...), params...), '}'))
		}
	}
}

// serviceName makes a name of a service from a subject.
func serviceName(subject string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '-'
	}, subject)
}

// Close takes no more requests, lets those under way finish until ctx ends, and closes the
// connection. The error is the context's when calls were cut off.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	err := s.service.Stop()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
		s.cancel()
		select {
		case <-done:
		case <-time.After(time.Second): // a handler that does not look at its context goes on alone
		}
	}
	s.cancel()
	if e := s.nc.FlushTimeout(time.Second); e != nil && !s.nc.IsClosed() {
		err = errors.Join(err, e)
	}
	s.nc.Close()
	return err
}

// request begins a call. It does not block: the next message waits for it.
func (s *Server) request(req micro.Request, frame []byte) {
	c := &call{
		s: s, to: req.Reply(), frame: frame, header: http.Header{},
		more: make(chan struct{}, 1), room: window,
	}
	if strings.HasPrefix(c.to, "$") { // a service of the engine would get it with our rights
		c.to = ""
	}
	copyHeader(c.header, req.Headers())
	c.owner = owner.Address(caller(c.to))
	unknown := func() (owner.Key, bool) { return c.owner, true }
	c.loan = budget.Lend(budget.By(budget.Or(s.o.Budget), unknown))
	asked := nats.Header(req.Headers())
	c.stream = asked.Get(headerStream) != "" && c.to != ""
	c.method = cmp.Or(asked.Get(headerMethod), http.MethodPost)
	c.path = cmp.Or(asked.Get(headerPath), defaultPath)
	if c.stream {
		c.ctx, c.cancel = context.WithCancel(s.ctx)
	} else { // its caller cannot cancel it
		c.ctx, c.cancel = context.WithTimeout(s.ctx, plainTimeout)
	}
	size := len(c.frame)
	for name, values := range c.header {
		size += len(name) + len(strings.Join(values, ""))
	}
	s.mu.Lock()
	full := s.draining || !c.loan.Grow(size) || !s.held.Take(c.owner, 1)
	if !full {
		c.id = rand.Text()
		s.calls[c.id] = c
		s.work.Add(1)
	}
	s.mu.Unlock()
	if full {
		c.cancel()
		c.refuse(http.StatusServiceUnavailable,
			"too many requests are under way, or too large ones, or the server stops; try again later")
		c.loan.Close()
		return
	}
	go s.serve(c)
}

func (s *Server) serve(c *call) {
	defer s.work.Done()
	defer c.loan.Close()
	defer c.cancel()
	defer func() {
		s.mu.Lock()
		delete(s.calls, c.id)
		s.held.Give(c.owner, 1)
		s.mu.Unlock()
	}()
	r, err := c.request()
	if err != nil {
		c.refuse(http.StatusBadRequest, err.Error())
		return
	}
	if c.stream {
		c.mu.Lock()
		c.beat = time.AfterFunc(acceptAfter, c.alive)
		c.mu.Unlock()
		defer c.beat.Stop()
	}
	defer func() {
		if v := recover(); v != nil { // as net/http does: one request does not end a process
			if v != http.ErrAbortHandler { //nolint:errorlint,err113 // a value of panic
				s.o.Logger.Error("natsrpc: a handler panicked", slog.Any("panic", v))
			}
			c.end("the handler gave up")
			return
		}
		c.end("1")
	}()
	s.h.ServeHTTP(c, r)
}

// told handles what a caller says about a call.
func (s *Server) told(m *nats.Msg) {
	s.mu.Lock()
	c := s.calls[m.Subject[len(s.inbox)+1:]]
	s.mu.Unlock()
	text := string(m.Data)
	credit, isCredit := strings.CutPrefix(text, tellCredit)
	switch {
	case text == tellPing && m.Reply != "":
		state := gone
		if c != nil {
			state = alive
		}
		_ = m.Respond([]byte(state)) // who asked asks again
	case c == nil:
	case text == tellCancel, m.Header.Get("Status") == "503" && text == "":
		c.cancel() // the caller says so, or the engine that it is not there
	case isCredit:
		if n, err := strconv.ParseUint(credit, 10, 31); err == nil {
			c.read(int(n))
		}
	}
}

// request makes the request of HTTP.
func (c *call) request() (*http.Request, error) {
	r, err := http.NewRequestWithContext(c.ctx, c.method, "http://localhost", bytes.NewReader(c.frame))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(c.path, "/") {
		return nil, fmt.Errorf("%s: %q does not begin with a slash", headerPath, c.path)
	}
	if r.URL, err = url.ParseRequestURI(c.path); err != nil {
		return nil, fmt.Errorf("%s: %w", headerPath, err)
	}
	r.RequestURI, r.Host, r.Header = c.path, "localhost", c.header
	r.Header.Del("Host")
	r.RemoteAddr = caller(c.to) + ":0"
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "application/json")
	}
	if len(c.frame) == 0 {
		r.Body = http.NoBody
	}
	return r, nil
}

// caller is what stands for the address of a caller: the inbox of its connection, which it has
// chosen. It is no secret, and proves nothing.
func caller(reply string) string {
	if i := strings.LastIndexByte(reply, '.'); i > 0 {
		reply = reply[:i]
	}
	return "nats-" + serviceName(cmp.Or(reply, "unknown"))
}
