package gateway_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// The transports.
const (
	overStdio = "stdio"
	overHTTP  = "HTTP"
	overSSE   = "HTTP+SSE"
	overWS    = "WebSocket"
	overTCP   = "TCP"
	overUnix  = "unix"
)

// transportsOf returns those over which a revision is spoken.
func transportsOf(r *era.Revision) []string {
	all := []string{overStdio, overHTTP, overWS, overTCP, overUnix}
	if r.HTTPSSE {
		all = append(all, overSSE)
	}
	return all
}

// The environment of a child that is a server of a stage.
const (
	stageRevision = "FARCALL_STAGE_REVISION"
	stageAddress  = "FARCALL_STAGE_ADDRESS"
)

// A stage is a server of one revision, behind one transport. It may have several
// processes; what their handlers see is known here, and what happens to the server
// happens to all of them.
type stage struct {
	listener net.Listener // where its processes report
	wg       sync.WaitGroup

	mu      sync.Mutex
	seen    map[string]chan struct{}
	players map[*player]struct{}
	last    string // command that a new process gets
}

// player is one process of a server, or this one.
type player struct{ do func(command string) }

func newStage(t *testing.T) *stage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{
		listener: l, seen: map[string]chan struct{}{}, players: map[*player]struct{}{},
		last: "change 0",
	}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.hear(conn) })
		}
	})
	return s
}

// close waits for the processes to end.
func (s *stage) close() {
	s.listener.Close()
	s.wg.Wait()
}

// hear takes what a process reports.
func (s *stage) hear(conn net.Conn) {
	defer conn.Close()
	p := &player{do: func(command string) { fmt.Fprintln(conn, command) }}
	s.enter(p)
	defer s.leave(p)
	var running []string
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		s.say(lines.Text())
		if what, ok := strings.CutPrefix(lines.Text(), "begun "); ok {
			running = append(running, what)
		}
	}
	for _, what := range running {
		s.say("gone " + what) // as the process is
	}
}

func (s *stage) enter(p *player) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.players[p] = struct{}{}
	p.do(s.last)
}

func (s *stage) leave(p *player) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.players, p)
}

// tell gives all processes a command.
func (s *stage) tell(command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(command, "change ") {
		s.last = command
	}
	for p := range s.players {
		p.do(command)
	}
}

func (s *stage) event(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[name] == nil {
		s.seen[name] = make(chan struct{})
	}
	return s.seen[name]
}

// say is called by handlers.
func (s *stage) say(name string) {
	e := s.event(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-e:
	default:
		close(e)
	}
}

// wait waits until a handler has said so.
func (s *stage) wait(ctx context.Context, name string) error {
	select {
	case <-s.event(name):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the server did not come to say %q", name)
	}
}

// playServer is a process of a stage.
func playServer(revision string) int {
	conn, err := net.Dial("tcp", os.Getenv(stageAddress))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := newPlay(revision, func(event string) { fmt.Fprintln(conn, event) })
	lines := bufio.NewScanner(conn)
	lines.Scan()
	obey(s, lines.Text())
	go func() {
		for lines.Scan() {
			obey(s, lines.Text())
		}
	}()
	if err := s.ServeStdio(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// upstream returns a server of a revision over a transport, as a gateway has it.
func (s *stage) upstream(t *testing.T, rev *era.Revision, transport string) *gateway.Upstream {
	t.Helper()
	u := &gateway.Upstream{Name: "play", Profile: "mcp"}
	if transport == overStdio {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		u.Command = []string{path}
		// The race detector has a process sleep for a second before it exits.
		u.Env = map[string]string{
			stageRevision: rev.Name, stageAddress: s.listener.Addr().String(),
			"GORACE": "atexit_sleep_ms=0",
		}
		return u
	}
	server := newPlay(rev.Name, s.say)
	p := &player{do: func(command string) { obey(server, command) }}
	s.enter(p)
	t.Cleanup(func() {
		s.leave(p)
		server.Close()
	})
	switch transport {
	case overTCP, overUnix:
		u.URL = serveStreams(t, transport, func(tr farcall.Transport) {
			_ = server.Serve(t.Context(), tr)
		})
		return u
	case overSSE:
		u.Transport = "sse"
	}
	h := mcphttp.NewHandler(server, nil)
	ws := wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
		_ = server.Serve(context.WithoutCancel(t.Context()), tr)
	}, &wsrpc.Options{Subprotocols: []string{"mcp"}})
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.Handle("/ws", ws)
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/messages", h.ServeMessages)
	host := serveHTTP(t, mux, func() { _ = h.Shutdown(expired()) })
	u.URL = addressOf(transport, host)
	if transport == overWS {
		u.URL = "ws://" + host + "/ws"
	}
	return u
}

// addressOf is where a gateway or a stage has a transport over HTTP.
func addressOf(transport, host string) string {
	switch transport {
	case overWS:
		return "ws://" + host + "/mcp"
	case overSSE:
		return "http://" + host + "/sse"
	}
	return "http://" + host + "/mcp"
}

// expired is the context of a shutdown that waits for nothing.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// serveHTTP serves at its own address until the test ends.
func serveHTTP(t *testing.T, h http.Handler, stop func()) (host string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		stop()
		server.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// serveStreams serves byte streams until the test ends, and returns where.
func serveStreams(t *testing.T, transport string, serve func(farcall.Transport)) (url string) {
	t.Helper()
	network, addr := "tcp", "127.0.0.1:0"
	if transport == overUnix {
		network, addr = "unix", filepath.Join(shortDir(t), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]struct{}{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = struct{}{}
			mu.Unlock()
			wg.Go(func() {
				serve(stream.New(conn, stream.NDJSON, nil))
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	if network == "unix" {
		return "unix:" + addr
	}
	return "tcp://" + l.Addr().String()
}

// shortDir is a directory with a path that is short enough for a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fc") //nolint:usetesting // that of the test is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A house is a gateway and all its doors.
type house struct {
	g               *gateway.Gateway
	host, tcp, unix string
}

// newHouse returns a gateway that shows plain names, unless the configuration says otherwise.
func newHouse(t *testing.T, c *gateway.Config, o *gateway.Options) *house {
	t.Helper()
	c.Namespace = cmp.Or(c.Namespace, "auto")
	g, err := gateway.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{g: g}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Errorf("the gateway did not shut down in time: %v", err)
		}
	})
	h.host = serveHTTP(t, g, func() {})
	h.tcp = serveStreams(t, overTCP, func(t farcall.Transport) {
		g.ServeStream(t, &guard.Conn{Transport: "tcp"})
	})
	h.unix = serveStreams(t, overUnix, func(t farcall.Transport) {
		g.ServeStream(t, &guard.Conn{Transport: "unix"})
	})
	return h
}

// enter returns a client of the gateway. The caller closes it, by leave.
func (h *house) enter(
	ctx context.Context, transport string, o *mcp.ClientOptions,
) (c *mcp.Client, leave func() error, err error) {
	var target string
	switch transport {
	case overTCP:
		target = h.tcp
	case overUnix:
		target = h.unix
	case overStdio:
		return h.enterPipes(ctx, o)
	default:
		target = addressOf(transport, h.host)
	}
	if c, err = mcp.Dial(ctx, target, o); err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// pipes are the two ends of standard input and output.
type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipes) Close() error {
	p.out.Close()
	return p.in.Close()
}

// enterPipes is a client that has started the gateway as its child.
func (h *house) enterPipes(
	ctx context.Context, o *mcp.ClientOptions,
) (*mcp.Client, func() error, error) {
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		h.g.ServeStream(stream.New(pipes{theirIn, theirOut}, stream.NDJSON, nil),
			&guard.Conn{Transport: "stdio"})
	})
	c, err := mcp.Connect(ctx, stream.New(pipes{in, out}, stream.NDJSON, nil), o)
	if err != nil {
		return nil, nil, err
	}
	return c, func() error {
		defer wg.Wait()
		return c.Close()
	}, nil
}
