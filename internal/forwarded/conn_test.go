package forwarded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// header2 is a header of version 2 for TCP over IPv4.
func header2(command byte, from string, more ...byte) string {
	ap := netip.MustParseAddrPort(from)
	body := append(append(ap.Addr().AsSlice(), 10, 0, 0, 9),
		binary.BigEndian.AppendUint16(nil, ap.Port())...)
	body = append(append(body, 0, 80), more...)
	return signature + string([]byte{0x20 | command, 0x11, 0, byte(len(body))}) + string(body)
}

// fakeConn is one end of a pipe with an address.
type fakeConn struct {
	net.Conn
	remote net.Addr
}

func (f fakeConn) RemoteAddr() net.Addr { return f.remote }

// fakeListener hands out connections.
type fakeListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (f *fakeListener) Accept() (net.Conn, error) {
	conn, ok := <-f.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (f *fakeListener) Close() error   { f.once.Do(func() { close(f.conns) }); return nil }
func (f *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

func tcp(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }

// TestListener: what a connection is taken for, by who sends what.
func TestListener(t *testing.T) {
	const rest = "{\"jsonrpc\":\"2.0\"}\n"
	for name, c := range map[string]struct {
		proxy, send string
		remote      string // "": the connection is refused
		via, shared bool
		read        string
	}{
		"version 2": {
			"10.0.0.1:5", header2(1, "203.0.113.7:99") + rest, "203.0.113.7:99",
			true, false, rest,
		},
		"version 2, with TLVs": {
			"10.0.0.1:5", header2(1, "203.0.113.7:99", 4, 0, 1, 0) + rest,
			"203.0.113.7:99", true, false, rest,
		},
		"version 1": {
			"10.0.0.1:5", "PROXY TCP4 203.0.113.7 10.0.0.9 99 80\r\n" + rest,
			"203.0.113.7:99", true, false, rest,
		},
		"version 1, IPv6": {
			"10.0.0.1:5", "PROXY TCP6 2001:db8::1 ::1 99 80\r\n" + rest,
			"[2001:db8::1]:99", true, false, rest,
		},
		"version 1, unknown": {
			"10.0.0.1:5", "PROXY UNKNOWN\r\n" + rest, "10.0.0.1:5", true,
			true, rest,
		},
		"health check": {
			"10.0.0.1:5", header2(0, "203.0.113.7:99") + rest, "10.0.0.1:5", true,
			true, rest,
		},
		"TLS follows": {
			"10.0.0.1:5", header2(1, "203.0.113.7:99") + "\x16\x03\x01",
			"203.0.113.7:99", true, false, "\x16\x03\x01",
		},
		"two headers": {
			"10.0.0.1:5", header2(1, "203.0.113.7:99") + header2(1, "1.2.3.4:5"),
			"203.0.113.7:99", true, false, header2(1, "1.2.3.4:5"),
		},
		"no header": {
			"10.0.0.1:5", "GET / HTTP/1.1\r\n", "10.0.0.1:5", true, true,
			"GET / HTTP/1.1\r\n",
		},
		"no header, P": {
			"10.0.0.1:5", "POST / HTTP/1.1\r\n", "10.0.0.1:5", true, true,
			"POST / HTTP/1.1\r\n",
		},
		"no header, blank lines": {
			"10.0.0.1:5", "\r\n\r\n{}\n", "10.0.0.1:5", true, true,
			"\r\n\r\n{}\n",
		},
		"nothing": {"10.0.0.1:5", "", "10.0.0.1:5", true, true, ""},
		"not listed, version 2": {
			"198.51.100.9:5", header2(1, "127.0.0.1:99"), "198.51.100.9:5", false,
			false, header2(1, "127.0.0.1:99"),
		},
		"not listed, version 1": {
			"198.51.100.9:5", "PROXY TCP4 127.0.0.1 10.0.0.9 99 80\r\n",
			"198.51.100.9:5", false, false, "PROXY TCP4 127.0.0.1 10.0.0.9 99 80\r\n",
		},
		"loopback of the proxy": {
			"10.0.0.1:5", header2(1, "127.0.0.1:99"), "10.0.0.1:5", true,
			true, "",
		},
		"loopback of this host": {
			"127.0.0.1:5", header2(1, "127.0.0.1:99"), "127.0.0.1:99", true,
			false, "",
		},
		"half a header": {
			"10.0.0.1:5", header2(1, "203.0.113.7:99")[:20], "", false,
			false, "",
		},
		"half a signature":  {"10.0.0.1:5", signature[:3], "", false, false, ""},
		"half of version 1": {"10.0.0.1:5", "PROXY TCP4 203.0.113.7 ", "", false, false, ""},
		"another version": {
			"10.0.0.1:5", signature + "\x31\x11\x00\x0c123456789012", "", false,
			false, "",
		},
		"a length that is wrong": {
			"10.0.0.1:5", signature + "\x21\x11\x00\x04\x01\x02\x03\x04", "",
			false, false, "",
		},
		"version 1 without end": {
			"10.0.0.1:5", "PROXY TCP4 " + strings.Repeat("1", 300), "", false,
			false, "",
		},
		"version 1, no addresses": {"10.0.0.1:5", "PROXY TCP4 x y 1 2\r\n", "", false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &fakeListener{conns: make(chan net.Conn)}
				var log bytes.Buffer
				l := parsed(t, "10.0.0.0/8", "127.0.0.1").Listener(inner,
					slog.New(slog.NewTextHandler(&log, nil)))
				ours, theirs := net.Pipe()
				stop := make(chan struct{})
				go func() { inner.conns <- fakeConn{theirs, tcp(c.proxy)} }()
				go func() {
					_, _ = io.WriteString(ours, c.send)
					select {
					case <-time.After(2 * headerTime):
					case <-stop:
					}
					ours.Close()
				}()
				began := time.Now()
				got := make(chan net.Conn, 1)
				go func() {
					conn, _ := l.Accept()
					got <- conn
				}()
				select {
				case conn := <-got:
					if conn == nil {
						t.Fatal("the listener was closed")
					}
					text, err := io.ReadAll(conn)
					if conn.RemoteAddr().String() != c.remote || Via(conn) != c.via || string(text) != c.read ||
						err != nil {
						t.Errorf("remote %v, via %v, read %q, %v", conn.RemoteAddr(), Via(conn), text, err)
					}
					if s, ok := conn.(interface{ Shared() bool }); ok != c.via || ok && s.Shared() != c.shared {
						t.Errorf("shared %v", !c.shared)
					}
					conn.Close()
				case <-time.After(headerTime + time.Second):
					synctest.Wait()
					if c.remote != "" || time.Since(began) != headerTime+time.Second ||
						!strings.Contains(log.String(), "proxy=10.0.0.1:5") {
						t.Errorf("nothing was accepted; log %s", &log)
					}
					if _, err := ours.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
						t.Errorf("the connection is open: %v", err)
					}
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				close(stop)
			})
		})
	}
}

// TestListenerClose ends connections with a header that is being read, and one that is late holds
// up no other.
func TestListenerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &fakeListener{conns: make(chan net.Conn)}
		l := parsed(t, "10.0.0.0/8").Listener(inner, nil)
		slow, theirs := net.Pipe()
		inner.conns <- fakeConn{theirs, tcp("10.0.0.1:1")}
		quick, other := net.Pipe()
		inner.conns <- fakeConn{other, tcp("10.0.0.2:2")}
		go func() { _, _ = io.WriteString(quick, header2(1, "203.0.113.7:99")) }()
		conn, err := l.Accept()
		if err != nil || conn.RemoteAddr().String() != "203.0.113.7:99" {
			t.Fatal(conn, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := slow.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		quick.Close()
		conn.Close()
	})
}

// FuzzHeader: whatever a proxy sends, a connection that is accepted either has no header, and all
// that was sent can be read, or a header of one of both versions with an address that is in it.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(header2(1, "203.0.113.7:99") + "{}"))
	f.Add([]byte(header2(0, "203.0.113.7:99")))
	f.Add([]byte("PROXY TCP6 2001:db8::1 ::1 99 80\r\nGET / HTTP/1.1\r\n"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte("\r\n\r\n{}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = ours.Write(in)
			ours.Close()
		}()
		proxy := tcp("10.0.0.1:5")
		conn, err := readHeader(fakeConn{theirs, proxy})
		if err != nil {
			theirs.Close()
			return
		}
		rest, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		known := bytes.HasPrefix(in, []byte("PROXY ")) || bytes.HasPrefix(in, []byte(signature))
		switch {
		case !bytes.HasSuffix(in, rest):
			t.Errorf("%q: read %q", in, rest)
		case !known && (!bytes.Equal(in, rest) || conn.RemoteAddr() != proxy):
			t.Errorf("%q without a header: read %q from %v", in, rest, conn.RemoteAddr())
		case conn.RemoteAddr() == nil || conn.RemoteAddr().String() == "":
			t.Errorf("%q: no address", in)
		}
	})
}

// Connections with a header that has come, and that Accept does not take, are bounded; those that
// find no place are closed, and Close closes the rest.
func TestWaitingForAcceptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &fakeListener{conns: make(chan net.Conn)}
		l := parsed(t, "10.0.0.0/8").Listener(inner, nil)
		const more = 50
		closed := make(chan struct{}, maxPending+more)
		for range maxPending + more {
			ours, theirs := net.Pipe()
			inner.conns <- fakeConn{theirs, tcp("10.0.0.1:5")}
			go func() {
				_, _ = io.WriteString(ours, "PROXY TCP4 203.0.113.7 10.0.0.9 99 80\r\n")
				_, _ = io.Copy(io.Discard, ours)
				closed <- struct{}{}
			}()
		}
		synctest.Wait()
		if n := len(closed); n != more {
			t.Errorf("%d connections are closed, want the %d beyond %d", n, more, maxPending)
		}
		if conn, err := l.Accept(); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
		l.Close()
		synctest.Wait()
		if n := len(closed); n != maxPending+more {
			t.Errorf("%d connections are closed in the end", n)
		}
	})
}
