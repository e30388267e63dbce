package httprpc_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/httprpc"
)

// pace is how much faster than others hasty connections are. Those in a bubble of synctest have 1.
const pace = 50

// A hasty connection has deadlines that are nearer than they were meant to be.
type hasty struct {
	net.Conn
	pace   time.Duration
	once   sync.Once
	closed chan struct{}

	mu    sync.Mutex
	began time.Time // of what reads have a deadline for
}

func (h *hasty) sooner(t time.Time) time.Time {
	if d := time.Until(t); !t.IsZero() && d > 0 {
		return time.Now().Add(d / h.pace)
	}
	return t
}

func (h *hasty) SetDeadline(t time.Time) error      { return h.Conn.SetDeadline(h.sooner(t)) }
func (h *hasty) SetWriteDeadline(t time.Time) error { return h.Conn.SetWriteDeadline(h.sooner(t)) }

// SetReadDeadline may put the same deadline off.
func (h *hasty) SetReadDeadline(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch now := time.Now(); {
	case t.IsZero():
		h.began = t
	case h.began.IsZero():
		h.began = now
		fallthrough
	case t.After(now):
		t = h.began.Add(t.Sub(h.began) / h.pace)
	}
	return h.Conn.SetReadDeadline(t)
}

func (h *hasty) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Conn.Close()
}

// timedServer is a server of hasty connections.
type timedServer struct {
	t    *testing.T
	pace time.Duration
	held atomic.Int64
	made chan net.Conn
	done chan struct{}
}

func (s *timedServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.made:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *timedServer) Close() error   { return nil }
func (s *timedServer) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func serveTimed(t *testing.T, o *httprpc.Options) *timedServer {
	t.Helper()
	s := &timedServer{t: t, pace: pace, made: make(chan net.Conn), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("/rpc", httprpc.NewHandler(service(t), o))
	mux.Handle("/stream", httprpc.NewStreamHandler(service(t), o))
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.held.Add(1)
		defer s.held.Add(-1)
		mux.ServeHTTP(w, r)
	})}
	go func() { _ = srv.Serve(s) }()
	t.Cleanup(func() { close(s.done); _ = srv.Close() })
	return s
}

// dial makes a connection that holds nothing: each byte waits for its reader.
func (s *timedServer) dial() (net.Conn, *hasty) {
	mine, theirs := net.Pipe()
	s.t.Cleanup(func() { mine.Close() })
	h := &hasty{Conn: theirs, pace: s.pace, closed: make(chan struct{})}
	s.made <- h
	return mine, h
}

// free waits until no handler is held, and the connection is not either.
func (s *timedServer) free(h *hasty) {
	s.t.Helper()
	select {
	case <-h.closed:
	case <-time.After(20 * pace * time.Second / h.pace):
		s.t.Fatal("the connection is held")
	}
	for began := time.Now(); s.held.Load() > 0; <-time.After(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			s.t.Fatalf("%d are held", s.held.Load())
		}
	}
}

func post(body string, headers ...string) string {
	return fmt.Sprintf("POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(headers, ""), "\r\n"), body)
}

func echo(size int) string {
	return `{"jsonrpc":"2.0","id":1,"method":"echo","params":["` + strings.Repeat("x", size) + `"]}`
}

// A client that does not read holds no handler, and in the end no connection.
func TestDeafClients(t *testing.T) {
	const count = `{"jsonrpc":"2.0","id":1,"progressToken":1,"method":"count","params":{"to":100}}`
	for name, request := range map[string]string{
		"small":          post(echo(10)),
		"below a buffer": post(echo(60 << 10)),
		"large":          post(echo(1 << 20)),
		"nothing":        post(`{"jsonrpc":"2.0","method":"echo"}`),
		"no JSON":        post(`{`),
		"events":         post(count, "Accept: text/event-stream"),
		"method":         "PUT /rpc HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"preflight":      "OPTIONS /rpc HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"stream":         "GET /stream?method=count&to=100 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"done": "GET /stream?method=count&to=100 HTTP/1.1\r\nHost: localhost\r\n" +
			"Last-Event-ID: done\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveTimed(t, &httprpc.Options{KeepAlive: 100 * time.Millisecond})
			conn, theirs := s.dial()
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			s.free(theirs)
		})
	}
}

// A body may take its time, but not for ever, and one that is not wanted no longer than another.
func TestSlowBodies(t *testing.T) {
	for _, c := range []struct {
		name, request string
		step          int // bytes
		every         time.Duration
		want          string
	}{
		{"a byte a minute", post(echo(10)), 1, time.Minute, "408 "},
		{"just in time", post(echo(10)), 20, time.Second, "200 "},
		{"large", post(echo(5 << 20)), 100 << 10, 900 * time.Millisecond, "200 "},
		{"large and slow", post(echo(5 << 20)), 50 << 10, time.Second, "408 "},
		{"unwanted", post(echo(1000), "Content-Encoding: gzip"), 1, time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serveTimed(t, nil)
				s.pace = 1
				conn, theirs := s.dial()
				head, body, _ := strings.Cut(c.request, "\r\n\r\n")
				began := time.Now()
				go func() {
					_, _ = io.WriteString(conn, head+"\r\n\r\n")
					for len(body) > 0 {
						n := min(c.step, len(body))
						if _, err := io.WriteString(conn, body[:n]); err != nil {
							return
						}
						body = body[n:]
						select {
						case <-time.After(c.every):
						case <-theirs.closed:
							return
						}
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if c.want == "" { // net/http waits for the rest before it answers, and then it is too late
					s.free(theirs)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if !strings.HasPrefix(resp.Status, c.want) {
					t.Errorf("%s after %v", resp.Status, time.Since(began))
				}
				if !strings.HasPrefix(resp.Status, "200") {
					s.free(theirs)
				}
			})
		})
	}
}
