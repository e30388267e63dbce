package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/target"
)

// TestAddTransport adds a transport, of pipes in memory, which takes a row to listen on and a row
// to dial: two files outside of its package. What is local to the machine needs no guard.
func TestAddTransport(t *testing.T) {
	t.Parallel()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	schemes := append(port.Schemes(), &port.Scheme{
		Name: "memory", Network: "memory", Part: "name", Example: "memory:x",
		Listen: func(context.Context, string) (net.Listener, error) { return l, nil },
	})
	table := append(target.Standard(), &target.Scheme{
		Names: []string{"memory"}, Kind: target.Stream, Opaque: true, Form: ":x", Help: "memory:NAME",
		Parse: func(to *target.Target, text string) string { to.Address = text; return "" },
		Open: func(context.Context, *target.Target, *target.Options) (io.ReadWriteCloser, error) {
			return l.dial()
		},
	})
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", add)
	s, err := newServer(mux, nil, schemes)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(nil, "memory:"); err == nil ||
		!strings.Contains(err.Error(), "has no name; write memory:x") {
		t.Error(err)
	}
	open, err := s.Listen(t.Context(), "memory:here")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.schemes.Text(open[0].Addr()); got != "memory:here" {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, open[0]) }()
	to, err := table.Parse("memory:here")
	if err != nil {
		t.Fatal(err)
	}
	c, err := open1(t, to)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := farcall.Call[float64](t.Context(), c, "math/add", addParams{2, 3}); sum != 5 ||
		err != nil {
		t.Errorf("%v, %v", sum, err)
	}
	cancel()
	if err := errors.Join(<-ended, c.Close()); err != nil {
		t.Error(err)
	}
}

// open1 is Dial of a target that was read.
func open1(t *testing.T, to *target.Target) (*Client, error) {
	t.Helper()
	return open(t.Context(), to, nil)
}

// pipes is a listener of pipes in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

type name string

func (name) Network() string { return "memory" }

func (n name) String() string { return string(n) }

// memoryConn is an end of a pipe with addresses.
type memoryConn struct{ net.Conn }

func (memoryConn) LocalAddr() net.Addr { return name("here") }

func (memoryConn) RemoteAddr() net.Addr { return name("there") }

func (p *pipes) dial() (io.ReadWriteCloser, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- memoryConn{theirs}:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return name("here") }
