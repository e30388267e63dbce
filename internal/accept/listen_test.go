package accept

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func listen(t *testing.T, network, addr string, o *Options) net.Listener {
	t.Helper()
	inner, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, o)
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestListen(t *testing.T) {
	t.Parallel()
	for network, addr := range map[string]string{
		"tcp":  "127.0.0.1:0",
		"unix": filepath.Join(t.TempDir(), "s"),
	} {
		var refused atomic.Int64
		var told []string
		o := &Options{PerAddress: 2, Total: 3, Refused: &refused, OnRefuse: func(addr string) {
			told = append(told, addr)
		}}
		room := 2
		if network == "unix" {
			room = 3
		}
		l := listen(t, network, addr, o)
		var conns []net.Conn
		for range room {
			dial(t, l)
			conns = append(conns, accept(t, l))
		}
		over := []net.Conn{dial(t, l), dial(t, l), dial(t, l)}
		next := make(chan net.Conn)
		go func() {
			conn, _ := l.Accept() // refuses three, and goes on
			next <- conn
		}()
		for _, conn := range over {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: one too many is served", network)
			}
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { conns[0].Close() })
		}
		wg.Wait()
		dial(t, l)
		conn := <-next
		if refused.Load() != 3 || len(told) != 1 {
			t.Errorf("%s: %d refused, told %q", network, refused.Load(), told)
		}
		for _, c := range append(conns, conn) {
			c.Close()
		}
		b, _ := l.(*listener)
		if b.all != 0 || len(b.from) != 0 {
			t.Errorf("%s: %d open, %v", network, b.all, b.from)
		}
	}
}

// A direct reader is notified of the silence as well.
func TestDirectIdle(t *testing.T) {
	t.Parallel()
	l := listen(t, "tcp", "127.0.0.1:0", &Options{Idle: 20 * time.Millisecond})
	dial(t, l)
	conn, ok := accept(t, l).(interface {
		Direct() (syscall.RawConn, error)
		io.Writer
	})
	if !ok {
		t.Fatal("no Direct")
	}
	raw, err := conn.Direct()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(uintptr) bool { return false }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// pipes accepts the ends of pipes.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) { return <-p.conns, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.UnixAddr{} }

func idle(t *testing.T, d time.Duration) (conn *anyConn, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	p := pipes{make(chan net.Conn, 1)}
	p.conns <- near
	c, err := Listen(p, &Options{Idle: d}).Accept()
	conn, ok := c.(*anyConn)
	if err != nil || !ok {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); far.Close() })
	return conn, far
}

// read returns how long it took for the read to end.
func read(t *testing.T, conn net.Conn, want error) time.Duration {
	t.Helper()
	began := time.Now()
	if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, want) {
		t.Errorf("read: %v, want %v", err, want)
	}
	return time.Since(began)
}

func TestIdle(t *testing.T) {
	t.Parallel()
	const second = time.Second
	synctest.Test(t, func(t *testing.T) {
		conn, far := idle(t, 4*second)
		go func() {
			for range 20 {
				<-time.After(3 * second)
				_, _ = far.Write([]byte("x"))
			}
		}()
		for range 20 {
			read(t, conn, nil)
		}
		if d := read(t, conn, os.ErrDeadlineExceeded); d < 4*second || d > 5*second {
			t.Error(d)
		}
		read(t, conn, io.ErrClosedPipe)
	})
	synctest.Test(t, func(t *testing.T) {
		conn, far := idle(t, 4*second)
		go func() { _, _ = far.Write([]byte("x")); _, _ = far.Write([]byte("y")) }()
		read(t, conn, nil)
		<-time.After(100 * second) // without a reader
		read(t, conn, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		conn, _ := idle(t, 4*second)
		_ = conn.SetReadDeadline(time.Now().Add(second)) // of another, who tries again
		if d := read(t, conn, os.ErrDeadlineExceeded); d != second {
			t.Error(d)
		}
		_ = conn.SetDeadline(time.Now().Add(50 * second))
		if d := read(t, conn, os.ErrDeadlineExceeded); d != 50*second {
			t.Error(d)
		}
		go func() {
			<-time.After(10 * second)
			_ = conn.SetDeadline(time.Time{}) // ours is back, for a read that has begun, too
		}()
		_ = conn.SetReadDeadline(time.Now().Add(50 * second))
		if d := read(t, conn, os.ErrDeadlineExceeded); d < 14*second || d > 15*second {
			t.Error(d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		conn, far := idle(t, 4*second)
		go func() {
			<-time.After(second)
			conn.StopIdle()
			conn.StopIdle()
			_ = conn.SetReadDeadline(time.Time{})
			<-time.After(1000 * second)
			far.Close()
		}()
		if d := read(t, conn, io.EOF); d != 1001*second {
			t.Error(d)
		}
	})
}

func TestPeer(t *testing.T) {
	t.Parallel()
	l, _ := Listen(pipes{}, &Options{PerAddress: 1}).(*listener)
	for _, test := range []struct {
		addr string
		want bool
	}{
		{"192.0.2.1", true},
		{"::ffff:192.0.2.1", false},
		{"192.0.2.2", true},
		{"2001:db8::1", true},
		{"2001:db8::2", false},
		{"2001:db8:0:1::1", true},
	} {
		if got := l.enter(network(netip.MustParseAddr(test.addr))); got != test.want {
			t.Errorf("%s: %v", test.addr, got)
		}
	}
	l.leave(network(netip.MustParseAddr("192.0.2.1")))
	if !l.enter(network(netip.MustParseAddr("::ffff:192.0.2.1"))) {
		t.Error("there is no room after a connection was closed")
	}
}

// sharedConn is a connection of a proxy that carries many clients.
type sharedConn struct{ net.Conn }

func (sharedConn) Shared() bool { return true }

func (sharedConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// TestSharedConnections: those of a proxy are not those of one address.
func TestSharedConnections(t *testing.T) {
	l := Listen(nil, &Options{PerAddress: 1, Total: 3}).(*listener)
	for i := range 5 {
		if got, want := l.enter(peerOf(sharedConn{})), i < 3; got != want {
			t.Errorf("connection %d: %v", i, got)
		}
	}
}

// Writing is use, and so is what Use reports to the connection.
func TestUse(t *testing.T) {
	t.Parallel()
	const second = time.Second
	synctest.Test(t, func(t *testing.T) {
		conn, far := idle(t, 4*second)
		go func() {
			for range 10 {
				<-time.After(3 * second)
				_, _ = conn.Write([]byte("x"))
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		if d := read(t, conn, os.ErrDeadlineExceeded); d < 34*second || d > 35*second {
			t.Error(d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		conn, _ := idle(t, 4*second)
		began := time.Now()
		conn.Busy(func() bool { return time.Since(began) < 100*second })
		if d := read(t, conn, os.ErrDeadlineExceeded); d < 103*second || d > 105*second {
			t.Error(d)
		}
	})
}

// More connections than may be accepted in a second wait; none is refused.
func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn, 100)}
		for range 30 {
			near, far := net.Pipe()
			far.Close()
			p.conns <- near
		}
		l := Listen(p, &Options{Rate: 10, Idle: -1})
		defer l.Close()
		began := time.Now()
		for i := range 30 {
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			if took := time.Since(began); i == 9 && took > 0 ||
				i == 29 && (took < 1900*time.Millisecond || took > 2100*time.Millisecond) {
				t.Errorf("%d connections after %v", i+1, took)
			}
		}
	})
}

// Behind a proxy on this machine all clients have its address.
func TestLoopbackHasNoBoundByDefault(t *testing.T) {
	t.Parallel()
	l, _ := Listen(pipes{}, &Options{Total: -1}).(*listener)
	for range DefaultPerAddress + 1 {
		if !l.enter(network(netip.MustParseAddr("127.0.0.1"))) ||
			!l.enter(network(netip.MustParseAddr("::1"))) {
			t.Fatal("a connection from this machine was refused")
		}
	}
	for i := range DefaultPerAddress + 1 {
		if l.enter(network(netip.MustParseAddr("192.0.2.1"))) != (i < DefaultPerAddress) {
			t.Fatalf("connection %d of another address", i)
		}
	}
}
