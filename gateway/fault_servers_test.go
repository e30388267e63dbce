package gateway_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// A mock is a server in this process; the test controls its calls.
type mock struct {
	*mcp.Server
	started chan string   // gets the text of each call of "wait"
	ended   chan error    // gets how it ended
	release chan struct{} // lets one end
}

type textIn struct {
	Text string `json:"text,omitempty"`
}

type nameForm struct {
	Name string `json:"name"`
}

func newMock(eras string) *mock {
	m := &mock{
		Server:  mcp.NewServer("mock", "1", &mcp.ServerOptions{Eras: eras}),
		started: make(chan string, 1000), ended: make(chan error, 1000),
		release: make(chan struct{}, 1000),
	}
	mcp.AddTool(m.Server, mcp.Tool{Name: "echo"}, func(_ context.Context, in textIn) (string, error) {
		return in.Text, nil
	})
	mcp.AddTool(m.Server, mcp.Tool{Name: "wait"},
		func(ctx context.Context, in textIn) (string, error) {
			m.started <- in.Text
			select {
			case <-m.release:
			case <-ctx.Done():
			}
			m.ended <- ctx.Err()
			return in.Text, ctx.Err()
		})
	mcp.AddTool(m.Server, mcp.Tool{Name: "ask"}, func(ctx context.Context, in textIn) (string, error) {
		m.started <- in.Text
		f, err := mcp.Elicit[nameForm](ctx, "name for "+in.Text)
		m.ended <- err
		return in.Text + " is " + f.Name, err
	})
	return m
}

// tcp is the mock at a TCP address.
func (m *mock) tcp(t *testing.T, name string) *gateway.Upstream { return over(t, name, m.Server) }

// http is the mock at an HTTP address. seen gets each request.
func (m *mock) http(t *testing.T, name string, seen func(*http.Request)) *gateway.Upstream {
	t.Helper()
	h := mcphttp.NewHandler(m.Server, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen != nil {
			seen(r)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		m.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return &gateway.Upstream{Name: name, URL: s.URL + "/mcp"}
}

// closedPort is an address without a listener, until serve is called.
type closedPort struct {
	t    *testing.T
	addr string
}

func newClosedPort(t *testing.T) *closedPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return &closedPort{t, l.Addr().String()}
}

// serve begins to listen.
func (p *closedPort) serve(serve func(net.Conn)) {
	p.t.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	listenOn(p.t, l, serve)
}

// lines serves a connection by a function that answers a line.
func lines(answer func(line string) string) func(net.Conn) {
	return func(conn net.Conn) {
		in := bufio.NewScanner(conn)
		for in.Scan() {
			if out := answer(in.Text()); out != "" {
				if _, err := conn.Write([]byte(out + "\n")); err != nil {
					return
				}
			}
		}
	}
}

// listenOn serves each connection to a listener until the test ends.
func listenOn(t *testing.T, l net.Listener, serve func(net.Conn)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = true
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

func serveConn(m *mock, conn net.Conn) {
	_ = mcp.Serve(context.Background(), m.Server, stream.New(conn, stream.NDJSON, nil), nil)
}

// kill kills a process, by its id in decimal.
func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

// answering answers "name for X" with the name "the one of X".
func answering(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
	who := strings.TrimPrefix(p.Message, "name for ")
	return &spec.ElicitResult{
		Action:  spec.ElicitAccept,
		Content: jsonrpc.Raw(`{"name":` + strconv.Quote("the one of "+who) + `}`),
	}, nil
}

func itoa(n int) string { return strconv.Itoa(n) }

func dialTCP(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (l *lab) serveConn(conn net.Conn) {
	l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "tcp"})
}
