package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Poster sends one request again and again over one connection of HTTP/1.1. It does what a call
// needs and no more, so that the load of a machine is the server's: net/http takes several times as
// much. A call needs no memory, no timer and no context: see [Poster.Read].
type Poster struct {
	address string
	config  *tls.Config // nil: no TLS
	request []byte
	timeout time.Duration // of a call; 0: none
	exact   bool          // each call sets the deadline of the connection

	conn  net.Conn
	by    time.Time    // the call has to be answered by then
	until time.Time    // the deadline of the connection
	ended func() error // reports whether the load has ended
	leave func() bool  // stops to watch for that
	in    *bufio.Reader
	body  []byte
	dec   jsonrpc.Decoder
	got   jsonrpc.Batch
}

// inSocket is what the system takes at once from a connection without a request in flight.
const inSocket = 16 << 10

// NewPoster returns a Poster for a request to an address. Its calls fail after the timeout
// (0: none). It connects when it is first called.
func NewPoster(
	u *url.URL, header http.Header, config *tls.Config, message []byte, timeout time.Duration,
) *Poster {
	p := &Poster{address: u.Host, timeout: timeout}
	port := "80"
	if u.Scheme == "https" {
		port = "443"
		p.config = config.Clone()
		p.config.ServerName = u.Hostname()
		p.config.NextProtos = []string{"http/1.1"}
	}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), port)
	}
	h := header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if u.User != nil && h.Get("Authorization") == "" {
		password, _ := u.User.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(u.User.Username(), password)
	}
	h.Set("Content-Type", "application/json")
	if h.Get("Accept") == "" {
		h.Set("Accept", "application/json, text/event-stream")
	}
	h.Set("Content-Length", strconv.Itoa(len(message)))
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\n", u.RequestURI(), u.Host)
	_ = h.Write(&b) // a buffer takes all
	b.WriteString("\r\n")
	b.Write(message)
	p.request = b.Bytes()
	// Read can try again after a deadline, a write that takes its time cannot.
	p.exact = p.config != nil || len(p.request) > inSocket
	return p
}

// Close closes the connection.
func (p *Poster) Close() {
	if p.conn != nil {
		p.leave()
		_ = p.conn.Close()
		p.conn = nil
	}
}

// Call sends the request and reads the answer. The end of the context ends a call: it is that of
// the load, the same for all calls.
func (p *Poster) Call(ctx context.Context) error {
	now := time.Now()
	p.by = now.Add(p.timeout)
	if p.conn == nil {
		if err := p.dial(ctx); err != nil {
			return err
		}
	}
	if p.timeout > 0 && (p.exact || p.until.Sub(now) < p.timeout/2) {
		p.extend()
	}
	err := p.ended()
	if err == nil {
		err = p.exchange()
	}
	var kind KindError
	if err != nil && !errors.As(err, &kind) {
		p.Close()
		return p.lost(ctx, err)
	}
	return err
}

// extend moves the deadline of the connection to that of the call. The caller looks at ended after
// it, as the end of the load may have set another one before.
func (p *Poster) extend() {
	p.until = p.by
	_ = p.conn.SetDeadline(p.by) // of an open connection
}

// Read reads from the connection. The deadline of the connection is that of an earlier call until
// half of the timeout has passed, so that few calls have to set one.
func (p *Poster) Read(b []byte) (int, error) {
	for {
		n, err := p.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || p.ended() != nil ||
			!time.Now().Before(p.by) {
			return n, err
		}
		p.extend()
	}
}

// lost names what ended a connection.
func (p *Poster) lost(ctx context.Context, err error) error {
	var timeout net.Error
	switch {
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return KindError("the server closed the connection")
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil { // without the port of ours, which differs each time
		return KindError(op.Op + ": " + op.Err.Error())
	}
	return KindError(err.Error())
}

func (p *Poster) dial(ctx context.Context) error {
	limited, cancel := within(ctx, p.timeout)
	defer cancel()
	var conn net.Conn
	var err error
	if p.config != nil {
		conn, err = (&tls.Dialer{Config: p.config}).DialContext(limited, "tcp", p.address)
	} else {
		conn, err = new(net.Dialer).DialContext(limited, "tcp", p.address)
	}
	if err != nil {
		return p.lost(ctx, err)
	}
	p.adopt(ctx, conn)
	return nil
}

// adopt makes a connection that of the Poster.
func (p *Poster) adopt(ctx context.Context, conn net.Conn) {
	p.conn, p.until, p.ended = conn, time.Time{}, ctx.Err
	p.leave = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if p.in == nil {
		p.in = bufio.NewReaderSize(p, 16<<10)
	}
	p.in.Reset(p)
}

// Pool returns calls of so many workers over as many Posters. A worker takes the one that was used
// last: an open loop that has few calls in flight uses few connections, as the clients of a program
// do, and does not measure how long it takes to connect.
func Pool(posters []*Poster) []Call {
	var mu sync.Mutex
	free := slices.Clone(posters)
	call := func(ctx context.Context) error {
		mu.Lock()
		p := free[len(free)-1]
		free = free[:len(free)-1]
		mu.Unlock()
		err := p.Call(ctx)
		mu.Lock()
		free = append(free, p)
		mu.Unlock()
		return err
	}
	return slices.Repeat([]Call{call}, len(posters))
}

// An answer is the head of one.
type answer struct {
	status  int
	length  int64 // -1: until the end of the connection
	chunked bool
	events  bool
	last    bool // the connection ends with it
}

const maxAnswer = 64 << 20

// exchange makes one call. An error that is a KindError leaves the connection usable.
func (p *Poster) exchange() error {
	if _, err := p.conn.Write(p.request); err != nil {
		return err
	}
	var a answer
	for a.status < 200 {
		var err error
		if a, err = p.head(); err != nil {
			return err
		}
	}
	if err := p.read(&a); err != nil {
		return err
	}
	if a.last {
		p.Close()
	}
	if a.status != http.StatusOK {
		return KindError(fmt.Sprintf("HTTP status %d", a.status))
	}
	body := p.body
	if a.events {
		return p.judgeEvents(body)
	}
	_, err := p.judge(body)
	return err
}

// head reads the status line and the headers of an answer.
func (p *Poster) head() (a answer, err error) {
	line, err := p.line()
	if err != nil {
		return a, err
	}
	version, rest, _ := bytes.Cut(line, []byte{' '})
	if !bytes.HasPrefix(version, []byte("HTTP/1.")) || len(rest) < 3 {
		return a, fmt.Errorf("the answer is not HTTP/1.1: %.40q", line)
	}
	if a.status, err = strconv.Atoi(string(rest[:3])); err != nil {
		return a, fmt.Errorf("the answer is not HTTP/1.1: %.40q", line)
	}
	a.length, a.last = -1, string(version) == "HTTP/1.0"
	for {
		line, err := p.line()
		if err != nil || len(line) == 0 {
			return a, err
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "content-length"):
			if a.length, err = strconv.ParseInt(string(value), 10, 64); err != nil || a.length < 0 {
				return a, fmt.Errorf("the answer has the Content-Length %.40q", value)
			}
		case is(name, "transfer-encoding"):
			a.chunked = is(value, "chunked")
		case is(name, "connection"):
			a.last = is(value, "close")
		case is(name, "content-type"):
			a.events = bytes.HasPrefix(bytes.ToLower(value), []byte("text/event-stream"))
		}
	}
}

// is compares without regard to case.
func is(b []byte, lower string) bool {
	return len(b) == len(lower) && bytes.EqualFold(b, []byte(lower))
}

// line reads a line of a head, without its end.
func (p *Poster) line() ([]byte, error) {
	line, err := p.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// read reads the body of an answer.
func (p *Poster) read(a *answer) (err error) {
	p.body = p.body[:0]
	switch {
	case a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		return nil
	case a.chunked:
		err = p.fill(httputil.NewChunkedReader(p.in), maxAnswer)
		for err == nil { // the trailer, which ends with an empty line
			var line []byte
			if line, err = p.line(); err != nil || len(line) == 0 {
				break
			}
		}
		return err
	case a.length < 0:
		a.last = true
		return p.fill(p.in, maxAnswer)
	case a.length > maxAnswer:
		return KindError("the answer is too long")
	}
	if int64(cap(p.body)) < a.length {
		p.body = make([]byte, a.length)
	}
	p.body = p.body[:a.length]
	_, err = io.ReadFull(p.in, p.body)
	return err
}

// fill reads to the end.
func (p *Poster) fill(r io.Reader, most int) error {
	b := bytes.NewBuffer(p.body)
	n, err := b.ReadFrom(io.LimitReader(r, int64(most)+1))
	if p.body = b.Bytes(); err == nil && n > int64(most) {
		err = errors.New("the answer is too long")
	}
	return err
}

// judge looks at a message. done reports whether it is the answer.
func (p *Poster) judge(message []byte) (done bool, err error) {
	if e := p.dec.Decode(message, &p.got); e != nil {
		return true, KindError("the answer is not JSON-RPC: " + e.Message)
	}
	for i := range p.got.Messages {
		if m := &p.got.Messages[i]; m.Kind == jsonrpc.Response {
			return true, Failure(m.Failure())
		}
	}
	return false, KindError("the answer has no response in it")
}

// judgeEvents looks at the messages of an event stream.
func (p *Poster) judgeEvents(body []byte) error {
	var data []byte
	for line := range bytes.Lines(body) {
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, value...)
			continue
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		if done, err := p.judge(data); done {
			return err
		}
		data = data[:0]
	}
	return KindError("the stream ended without a response")
}

// Failure is the kind of an error response; nil for nil.
func Failure(e *jsonrpc.Error) error {
	if e == nil {
		return nil
	}
	return KindError(fmt.Sprintf("error %d", int(e.Code)))
}
