package mcp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/http1"
)

// flooding is a listener with many connections from one address at once.
type flooding struct {
	conns    chan net.Conn
	accepted atomic.Int64
	closed   context.CancelFunc
	done     <-chan struct{}
}

func (l *flooding) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		l.accepted.Add(1)
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *flooding) Close() error {
	l.closed()
	return nil
}

func (l *flooding) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// farConn is a connection from another machine.
type farConn struct{ net.Conn }

func (c farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// TestServeBounds: ListenAndServe bounds connections without any option: so many are accepted in a
// second, so many are open of one address, and one that is not used is closed.
func TestServeBounds(t *testing.T) {
	for _, std := range []string{"", "std"} {
		t.Setenv("FARCALL_HTTP", std)
		synctest.Test(t, func(t *testing.T) { serveFlood(t, http1.Std()) })
	}
}

func serveFlood(t *testing.T, std bool) {
	const flood = 5000
	l := &flooding{conns: make(chan net.Conn, flood)}
	var ctx context.Context
	ctx, l.closed = context.WithCancel(context.Background())
	l.done = ctx.Done()
	far := make([]net.Conn, flood)
	for i := range far {
		var near net.Conn
		near, far[i] = net.Pipe()
		l.conns <- farConn{near}
	}
	serving, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- calculator(nil).serveHTTP(serving, l) }()
	synctest.Wait()
	if n := l.accepted.Load(); n == 0 || n > 1500 {
		t.Errorf("std %v: %d connections accepted at once", std, n)
	}
	began := time.Now()
	const request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	go io.WriteString(far[0], request)
	r := bufio.NewReader(far[0])
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	_, err = r.ReadByte() // until it is closed
	if idle := time.Since(began); err == nil || idle > 3*time.Minute {
		t.Errorf("std %v: a connection that is not used is closed after %v: %v", std, idle, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, conn := range far {
		_ = conn.Close()
	}
}
