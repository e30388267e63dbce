package mcphttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
	f    *fake
	h    *Handler
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

func serveTimed(t *testing.T, o *Options) *timedServer {
	t.Helper()
	f := newFake()
	s := &timedServer{t, pace, f, NewHandler(f, o), make(chan net.Conn), make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.h)
	mux.HandleFunc("/sse", s.h.ServeSSE)
	mux.HandleFunc("/messages", s.h.ServeMessages)
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(s) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.h.Shutdown(ctx)
		close(s.done)
		_ = srv.Close()
	})
	return s
}

// dial makes a connection that holds nothing: each byte waits for its reader.
func (s *timedServer) dial() (net.Conn, *hasty) {
	mine, theirs := net.Pipe()
	return s.take(mine, theirs)
}

// dialTCP makes one that is as usual, but holds little.
func (s *timedServer) dialTCP() (net.Conn, *hasty) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	mine, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	_ = mine.(*net.TCPConn).SetReadBuffer(1) // the system takes what is the least
	_ = theirs.(*net.TCPConn).SetWriteBuffer(1)
	return s.take(mine, theirs)
}

func (s *timedServer) take(mine, theirs net.Conn) (net.Conn, *hasty) {
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
	for began := time.Now(); s.h.active.Load() > 0; <-time.After(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			s.t.Fatalf("%d are held", s.h.active.Load())
		}
	}
}

func requestText(method, path, body string, headers ...string) string {
	var head strings.Builder
	fmt.Fprintf(&head,
		"%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n",
		method, path)
	for _, h := range headers {
		head.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&head, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return head.String() + "\r\n" + body
}

func modernText(name, params string, headers ...string) string {
	all := append([]string{
		"MCP-Protocol-Version: " + modernName, "Mcp-Method: tools/call",
		"Mcp-Name: " + name,
	}, headers...)
	return requestText("POST", "/mcp", modernBody("1", "tools/call", `"name":"`+name+`"`+params),
		all...)
}

// helloText is the body of a request to initialize.
const helloText = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` +
	legacyName + `","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// Anyone who does not read holds no handler, and in the end no connection, whatever the request
// was.
func TestDeafClients(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"small":          modernText("echo", ""),
		"below a buffer": modernText("echo", `,"text":"`+strings.Repeat("x", 60<<10)+`"`),
		"large":          modernText("echo", `,"text":"`+strings.Repeat("x", 1<<20)+`"`),
		"events":         modernText("progress", `,"n":100`),
		"refused": requestText("POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"x"}`),
		"no such method": requestText("PUT", "/mcp", ""),
		"preflight":      requestText("OPTIONS", "/mcp", ""),
		"a notification": requestText("POST", "/mcp", modernBody("", "notifications/x", ""),
			"MCP-Protocol-Version: "+modernName),
		"subscription": requestText("POST", "/mcp",
			modernBody("1", "subscriptions/listen", ""), "MCP-Protocol-Version: "+modernName,
			"Mcp-Method: subscriptions/listen"),
		"initialize": requestText("POST", "/mcp", helloText),
		"call": requestText("POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","text":"`+
				strings.Repeat("x", 60<<10)+`"}}`, "SESSION"),
		"call, events": requestText("POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","n":100}}`,
			"SESSION"),
		"stream": requestText("GET", "/mcp", "", "SESSION"),
		"delete": requestText("DELETE", "/mcp", "", "SESSION"),
		"notified": requestText("POST", "/mcp",
			`{"jsonrpc":"2.0","method":"notifications/x"}`, "SESSION"),
		"HTTP+SSE": requestText("GET", "/sse", ""),
		"HTTP+SSE, without a session": requestText("POST", "/messages?sessionId=x",
			`{"jsonrpc":"2.0","method":"x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaf(t, request)
		})
	}
	for name, request := range map[string]string{
		"TCP": strings.Repeat(modernText("echo", `,"text":"`+strings.Repeat("x", 50<<10)+`"`),
			200),
		"TCP, large":  modernText("echo", `,"text":"`+strings.Repeat("x", 20<<20)+`"`),
		"TCP, events": modernText("progress", `,"n":1000000`),
		"TCP, refusals": strings.Repeat(
			requestText("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"x"}`), 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveTimed(t, nil)
			conn, theirs := s.dialTCP()
			go func() { _, _ = io.WriteString(conn, request) }() // until the connection is closed
			s.free(theirs)
		})
	}
}

// deaf makes a request and reads no answer.
func deaf(t *testing.T, request string) {
	t.Helper()
	s := serveTimed(t, &Options{Heartbeat: 100 * time.Millisecond})
	if strings.Contains(request, "SESSION") {
		conn, _ := s.dial()
		go func() { _, _ = io.WriteString(conn, requestText("POST", "/mcp", helloText)) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		request = strings.Replace(request, "SESSION",
			"Mcp-Session-Id: "+resp.Header.Get("Mcp-Session-Id"), 1)
	}
	conn, theirs := s.dial()
	// On a loaded machine a large request misses the deadlines of a hasty connection.
	if _, err := io.WriteString(conn, request); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	s.free(theirs)
}

// A body may take its time, but not for ever, and one that is not wanted no longer than another.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	large := modernText("echo", `,"text":"`+strings.Repeat("x", 5*mb)+`"`)
	for _, c := range []struct {
		name, request string
		step          int // bytes
		every         time.Duration
		want          string
	}{
		{"a byte a minute", modernText("echo", ""), 1, time.Minute, "408 "},
		{"just in time", modernText("echo", ""), 20, time.Second, "200 "},
		{"large", large, 100 << 10, 900 * time.Millisecond, "200 "},
		{"large and slow", large, 50 << 10, time.Second, "408 "},
		{
			"unwanted", requestText("POST", "/mcp", strings.Repeat("x", 1000), "Content-Encoding: gzip"), 1,
			time.Minute, "",
		},
		{"of a page", requestText("POST", "/mcp", strings.Repeat("x", 1000),
			"Origin: http://evil.example", "Content-Type: application/json"), 1, time.Minute, ""},
		{
			"messages", requestText("POST", "/messages?sessionId=x", strings.Repeat("x", 1000)), 1,
			time.Minute, "408 ",
		},
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

// A call may take longer than its body: the deadline is gone then.
func TestSlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveTimed(t, &Options{Heartbeat: -1})
		s.pace = 1
		conn, _ := s.dial()
		in := bufio.NewReader(conn)
		for _, name := range []string{"wait", "echo"} { // the second on the same connection
			go func() {
				_, _ = io.WriteString(conn, modernText(name, `,"text":"`+strings.Repeat("x", 200<<10)+`"`))
				if name == "wait" {
					<-s.f.began
					<-time.After(time.Second)
					close(s.f.release)
				}
			}()
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || err != nil {
				t.Errorf("%s: %s, %.100s, %v", name, resp.Status, got, err)
			}
			<-time.After(time.Second)
		}
	})
}
