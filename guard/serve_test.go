package guard

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/farcall-dev/farcall"
)

// ends is a connection with two addresses.
type ends struct {
	net.Conn
	local, remote net.Addr
}

func (e ends) LocalAddr() net.Addr  { return e.local }
func (e ends) RemoteAddr() net.Addr { return e.remote }

func TestConnOver(t *testing.T) {
	t.Parallel()
	here, there := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1},
		&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2}
	socket := &net.UnixAddr{Name: "/s", Net: "unix"}
	for _, c := range []struct {
		conn      net.Conn
		transport string
		local     bool
	}{
		{nil, "stdio", true},
		{ends{local: here, remote: here}, "tcp", true},
		{ends{local: here, remote: there}, "tcp", false},
		{ends{local: socket, remote: socket}, "unix", true},
		{
			tls.Server(ends{local: here, remote: there}, &tls.Config{MinVersion: tls.VersionTLS12}),
			"tcp+tls", false,
		},
	} {
		got := ConnOver(c.conn)
		if got.Transport != c.transport || got.Local != c.local ||
			(got.TLS != nil) != (c.transport == "tcp+tls") {
			t.Errorf("%+v, want %+v", got, c)
		}
		if c.conn != nil && got.Remote != c.conn.RemoteAddr().String() {
			t.Errorf("%+v", got)
		}
	}
}

// TestConnection: what no credentials were accepted on is bounded, and the guard is the first
// interceptor.
func TestConnection(t *testing.T) {
	t.Parallel()
	g, err := New(
		&Config{
			Keys: []Key{
				{ID: "a", Hash: "sha256:4a1f0e8c9c0b6f0d2f4f6b7f3f1f1c1b5c5a4d3e2f1a0b9c8d7e6f5a4b3c2d1e"},
			},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	there := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2}
	for name, want := range map[string]int{
		"tcp": unauthenticatedMessage, "ws": unauthenticatedMessage,
		"stdio": 0,
	} {
		own := func(next farcall.Handler) farcall.Handler { return next }
		o := &farcall.Options{Transport: name, Interceptors: []farcall.Interceptor{own}}
		var got int
		switch name {
		case "tcp":
			got = g.Connection(o, ends{local: there, remote: there}, nil, nil)
		case "ws":
			got = g.Connection(o, nil, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), nil)
		default:
			got = g.Connection(o, nil, nil, nil)
		}
		if got != want || len(o.Interceptors) != 2 || o.Budget == nil {
			t.Errorf("%s: at most %d bytes, want %d; %+v", name, got, want, o)
		}
	}
}
