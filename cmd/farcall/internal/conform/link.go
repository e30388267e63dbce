package conform

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall"
)

const maxFrame = 64 << 20 // of an answer

// A reader gives what it reads to a link, until stop ends that.
type reader struct {
	in   chan string
	stop func()
	done chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

func newReader(read func() (string, error), stop func()) *reader {
	l := &reader{in: make(chan string, 64), stop: stop, done: make(chan struct{})}
	l.wg.Go(func() {
		defer close(l.in)
		for {
			f, err := read()
			if err != nil {
				return
			}
			select {
			case l.in <- f:
			case <-l.done:
				return
			}
		}
	})
	return l
}

func (l *reader) frames() <-chan string { return l.in }

func (l *reader) close() {
	l.once.Do(func() {
		close(l.done)
		l.stop()
	})
	l.wg.Wait()
}

// byteLink carries frames over a byte stream.
type byteLink struct {
	*reader

	w      io.Writer
	encode func(frame string, how writing) string
}

func newByteLink(
	rwc io.ReadWriteCloser, encode func(string, writing) string,
	read func(*bufio.Reader) (string, error),
) *byteLink {
	r := bufio.NewReaderSize(rwc, 64<<10)
	next := func() (string, error) { return read(r) }
	return &byteLink{newReader(next, func() { _ = rwc.Close() }), rwc, encode} // nothing is kept of it
}

func (l *byteLink) send(_ context.Context, how writing, frames ...string) error {
	var writes []string
	for _, f := range frames {
		writes = append(writes, l.encode(f, how))
	}
	switch how {
	case joined:
		writes = []string{strings.Join(writes, "")}
	case pieces:
		writes = strings.Split(strings.Join(writes, ""), "")
	default:
	}
	for _, b := range writes {
		if _, err := io.WriteString(l.w, b); err != nil {
			return err
		}
	}
	return nil
}

func dialLines(
	ctx context.Context, dial func(context.Context) (io.ReadWriteCloser, error),
) (link, error) {
	rwc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	encode := func(f string, _ writing) string { return f + "\n" }
	return newByteLink(rwc, encode, readLine), nil
}

func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) < maxFrame:
			continue
		case err != nil:
			return "", err
		}
		s := strings.TrimRight(string(line), "\r\n")
		if s != "" {
			return s, nil
		}
		line = line[:0]
	}
}

func dialHeaders(
	ctx context.Context, dial func(context.Context) (io.ReadWriteCloser, error),
) (link, error) {
	rwc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	encode := func(f string, how writing) string {
		if how == headers {
			return fmt.Sprintf("X-Farcall: conform\r\ncontent-length: %d\r\n"+
				"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n%s", len(f), f)
		}
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(f), f)
	}
	return newByteLink(rwc, encode, readHeaders), nil
}

func readHeaders(r *bufio.Reader) (string, error) {
	h, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(h.Get("Content-Length"))
	if err != nil || n < 0 || n > maxFrame {
		return "", fmt.Errorf("bad Content-Length %q", h.Get("Content-Length"))
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}

// messageLink carries frames as messages.
type messageLink struct {
	*reader

	write func(frame []byte) error
}

// NewWebSocket probes over WebSocket.
func NewWebSocket(client *http.Client, url string, header http.Header) Dialer {
	return messages(WebSocket, func(ctx context.Context) (link, error) {
		conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client, HTTPHeader: header}) //nolint:bodyclose // it closes it itself
		if err != nil {
			return nil, err
		}
		conn.SetReadLimit(maxFrame)
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		read := func() (string, error) {
			_, b, err := conn.Read(ctx)
			return string(b), err
		}
		r := newReader(read, func() {
			cancel()
			conn.CloseNow() //nolint:errcheck // nothing is kept of a probe's connection
		})
		return &messageLink{r, func(b []byte) error {
			return conn.Write(ctx, websocket.MessageText, b)
		}}, nil
	})
}

// NewMessages probes over the transports that dial returns, a frame each.
func NewMessages(dial func(context.Context) (farcall.Transport, error)) Dialer {
	return messages(Messages, func(ctx context.Context) (link, error) {
		t, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		read := func() (string, error) {
			b, err := t.Read()
			return string(b), err
		}
		r := newReader(read, func() { _ = t.Close() }) // nothing is kept of it
		return &messageLink{r, func(b []byte) error { return t.Write(b) }}, nil
	})
}

func messages(kind string, dial func(context.Context) (link, error)) Dialer {
	return Dialer{
		kind: kind, wire: func() wire { return &streamWire{dial: dial} },
		mcp: func() mcpLink { return &mcpStream{dial: dial} },
	}
}

func (l *messageLink) send(_ context.Context, _ writing, frames ...string) error {
	for _, f := range frames {
		if err := l.write([]byte(f)); err != nil {
			return err
		}
	}
	return nil
}

// NewHTTP probes with a POST for each frame.
func NewHTTP(client *http.Client, url string, header http.Header) Dialer {
	return Dialer{
		kind: HTTP,
		wire: func() wire { return &httpWire{client: client, url: url, header: header} },
		mcp:  func() mcpLink { return &mcpHTTP{client: client, url: url, header: header} },
	}
}

type httpWire struct {
	client *http.Client
	url    string
	header http.Header
	sentinels
}

// open sends a request with an answer that does not matter: it shows that there is an
// HTTP server.
func (w *httpWire) open(ctx context.Context, timeout time.Duration) error {
	_, err := w.post(ctx, sentinel(noMethod, "0"), timeout)
	return err
}

func (w *httpWire) close() { w.client.CloseIdleConnections() }

func (w *httpWire) useSentinel(
	ctx context.Context, method string, quoted bool, timeout time.Duration,
) error {
	w.method, w.quoted = method, quoted
	return w.alive(ctx, timeout)
}

// alive makes an ordinary request.
func (w *httpWire) alive(ctx context.Context, timeout time.Duration) error {
	request, id := w.next()
	ev, err := w.post(ctx, request, timeout)
	if err != nil {
		return err
	}
	for _, f := range ev.frames {
		if answersID(f, id) {
			return nil
		}
	}
	return fmt.Errorf("received: %v", ev.lines())
}

func (w *httpWire) probe(ctx context.Context, c *Case, timeout time.Duration) (ev evidence) {
	for _, s := range c.sends {
		one, err := w.post(ctx, s, timeout)
		if err != nil {
			ev.err = reason(err)
			return ev
		}
		ev.frames = append(ev.frames, one.frames...)
		ev.status, ev.contentType = one.status, one.contentType
	}
	if err := w.alive(ctx, timeout); err != nil {
		ev.err = "an ordinary request sent afterwards is not answered: " + reason(err)
	}
	return ev
}

// reason shortens an error of the HTTP client to what happened.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}

func (w *httpWire) post(
	ctx context.Context, body string, timeout time.Duration,
) (ev evidence, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		return ev, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	maps.Copy(req.Header, w.header)
	res, err := w.client.Do(req)
	if err != nil {
		return ev, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxFrame))
	if err != nil {
		return ev, fmt.Errorf("reading the answer: %w", err)
	}
	ev.status = res.StatusCode
	if text := strings.TrimSpace(string(b)); text != "" {
		ev.contentType = res.Header.Get("Content-Type")
		ev.frames = bodyFrames(ev.contentType, text)
	}
	return ev, nil
}

// bodyFrames takes the messages out of a body: of an event stream those of its
// events.
func bodyFrames(contentType, body string) []string {
	if t, _, _ := mime.ParseMediaType(contentType); t != "text/event-stream" {
		return []string{body}
	}
	var frames []string
	for event := range strings.SplitSeq(strings.ReplaceAll(body, "\r\n", "\n"), "\n\n") {
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if d, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(d, " "))
			}
		}
		if text := strings.Join(data, "\n"); text != "" {
			frames = append(frames, text)
		}
	}
	return frames
}

func jsonType(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil &&
		(t == "application/json" || t == "text/event-stream" ||
			strings.HasPrefix(t, "application/json-rpc") || t == "application/jsonrequest" ||
			strings.HasSuffix(t, "+json"))
}
