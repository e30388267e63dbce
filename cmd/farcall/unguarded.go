package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/port"
)

// unguarded checks an address for a command that authenticates no callers. Other machines must not
// reach it, unless the user insists with a flag.
func unguarded(command, address, flag string, insists bool) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	if port.Reachable(address) && !insists {
		return usagef("Listen on 127.0.0.1, or add "+flag+".",
			"%s can be reached from other machines, and %s does not authenticate callers", address, command)
	}
	return nil
}

// localHosts refuses requests that a web page may have sent by a host name that its owner has let
// point to this machine (DNS rebinding). A server behind the handler cannot refuse them: it sees
// its own address as the host.
func localHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := new(origin.Policy).CheckHost(r); err != nil {
			http.Error(w, "the Host header has to be an address or localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveUntil serves HTTP until the context ends. Streams would not end then, so it closes them.
func serveUntil(ctx context.Context, s *http.Server, l net.Listener) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.Close()
		close(closed)
	})
	err := s.Serve(l)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// noHTTP is a connection of a client that sends a byte stream. It fails when that begins as a
// request of HTTP does: a browser sends one for any web page, and a server that reads lines would
// skip the head and execute the lines of the body.
type noHTTP struct {
	net.Conn
	in io.Reader // from the first Read on
}

var errHTTP = errors.New("the client speaks HTTP; an http:// address as TO is for that")

// Read implements net.Conn.
func (c *noHTTP) Read(p []byte) (int, error) {
	if c.in == nil {
		var head [2]byte
		n, err := io.ReadFull(c.Conn, head[:])
		if n == len(head) && isCapital(head[0]) && isCapital(head[1]) {
			return 0, errHTTP
		}
		c.in = io.MultiReader(bytes.NewReader(head[:n]), c.Conn)
		if n == 0 {
			return 0, err
		}
	}
	return c.in.Read(p)
}

// isCapital reports whether c is a letter of a method of HTTP. No message of JSON-RPC begins with
// two of them, nor do the headers of a frame.
func isCapital(c byte) bool { return 'A' <= c && c <= 'Z' }

// CloseWrite ends what is sent to the client, and not what comes from it.
func (c *noHTTP) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
