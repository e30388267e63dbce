package conform

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

const maxFrame = 64 << 20 // of an answer

// byteLink carries frames over a byte stream.
type byteLink struct {
	rwc    io.ReadWriteCloser
	encode func(frame string, how writing) string
	in     chan string
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

func newByteLink(rwc io.ReadWriteCloser, encode func(string, writing) string, read func(*bufio.Reader) (string, error)) *byteLink {
	l := &byteLink{rwc: rwc, encode: encode, in: make(chan string, 64), done: make(chan struct{})}
	l.wg.Go(func() {
		defer close(l.in)
		r := bufio.NewReaderSize(rwc, 64<<10)
		for {
			f, err := read(r)
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

func (l *byteLink) frames() <-chan string { return l.in }

func (l *byteLink) close() {
	l.once.Do(func() {
		close(l.done)
		l.rwc.Close()
	})
	l.wg.Wait()
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
		if _, err := io.WriteString(l.rwc, b); err != nil {
			return err
		}
	}
	return nil
}

func dialLines(ctx context.Context, dial func(context.Context) (io.ReadWriteCloser, error)) (link, error) {
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

func dialHeaders(ctx context.Context, dial func(context.Context) (io.ReadWriteCloser, error)) (link, error) {
	rwc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	encode := func(f string, how writing) string {
		if how == headers {
			return fmt.Sprintf("X-Farcall: conform\r\ncontent-length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n%s", len(f), f)
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

// socketLink carries frames as WebSocket messages.
type socketLink struct {
	conn   *websocket.Conn
	in     chan string
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewWebSocket probes over WebSocket.
func NewWebSocket(client *http.Client, url string, header http.Header) Dialer {
	dial := func(ctx context.Context) (link, error) {
		conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client, HTTPHeader: header}) //nolint:bodyclose // it closes it itself
		if err != nil {
			return nil, err
		}
		conn.SetReadLimit(maxFrame)
		return newSocketLink(context.WithoutCancel(ctx), conn), nil
	}
	return Dialer{
		kind: WebSocket,
		wire: func() wire { return &streamWire{dial: dial} },
		mcp:  func() mcpLink { return &mcpStream{dial: dial} },
	}
}

func newSocketLink(ctx context.Context, conn *websocket.Conn) *socketLink {
	ctx, cancel := context.WithCancel(ctx)
	l := &socketLink{conn: conn, in: make(chan string, 64), cancel: cancel}
	l.wg.Go(func() {
		defer close(l.in)
		for {
			_, b, err := conn.Read(ctx)
			if err != nil {
				return
			}
			select {
			case l.in <- string(b):
			case <-ctx.Done():
				return
			}
		}
	})
	return l
}

func (l *socketLink) frames() <-chan string { return l.in }

func (l *socketLink) close() {
	l.cancel()
	l.conn.CloseNow() //nolint:errcheck // nothing is kept of a probe's connection
	l.wg.Wait()
}

func (l *socketLink) send(ctx context.Context, _ writing, frames ...string) error {
	for _, f := range frames {
		if err := l.conn.Write(ctx, websocket.MessageText, []byte(f)); err != nil {
			return err
		}
	}
	return nil
}
