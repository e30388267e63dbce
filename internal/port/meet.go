package port

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/farcall-dev/farcall/internal/http1"
)

const (
	lingerTime  = time.Second // for a client to read why it was refused
	lingerBytes = 256 << 10   // that may still come from it meanwhile
)

// meet finds out what a connection speaks and hands it over.
func (s *Server) meet(ctx context.Context, conn net.Conn) {
	k, prefix, err := s.sniff(conn)
	switch {
	case err != nil:
		s.failed(conn, err)
	case k == speaksTLS && s.opts.TLS == nil:
		// The client expects a record: an alert, fatal, handshake_failure.
		s.refuse(conn, "\x15\x03\x03\x00\x02\x02\x28",
			"TLS on a port that has no certificate; configure one, or connect without TLS")
	case k == speaksTLS:
		s.secure(ctx, conn, prefix)
	default:
		if reason := s.opts.Plain(conn); reason != "" {
			s.refuseKind(conn, k, reason)
			return
		}
		s.hand(conn, conn, k, prefix)
	}
}

// notPlain is the default of Options.Plain.
func (s *Server) notPlain(conn net.Conn) string {
	if s.opts.TLS == nil || s.opts.Schemes.network(conn.LocalAddr().Network()) != nil {
		return ""
	}
	return "this port speaks TLS only; use https://, wss:// or tls://"
}

// hand gives a connection to who serves what it speaks. conn may be inside of
// outer.
func (s *Server) hand(outer, conn net.Conn, k kind, prefix []byte) {
	switch {
	case k == speaksHTTP && s.handler.HTTP != nil:
		if s.leave(outer) {
			s.serveHTTP(outer, conn, prefix)
		}
	case k >= speaksLines && s.handler.Stream != nil:
		if s.leave(outer) {
			s.handler.Stream(conn, prefix, k == speaksHeader)
		}
	default:
		s.refuseKind(conn, k, "this port understands "+s.understood())
		outer.Close()
		s.leave(outer)
	}
}

// serveHTTP serves a connection that speaks HTTP; prefix was read from it. conn may be inside of
// outer. HTTP has its own time-outs: a bound of package accept ends here.
func (s *Server) serveHTTP(outer, conn net.Conn, prefix []byte) {
	stopIdle(outer)
	const post = "POST "
	if s.fast == nil ||
		string(prefix[:min(len(prefix), len(post))]) != post[:min(len(prefix), len(post))] {
		s.toHTTP(http1.TakeOver(conn, prefix, nil))
		return
	}
	// Its own goroutine, as in net/http: Close does not wait for handlers, and the stack of an
	// idle connection is small.
	go func() {
		if rest, ctx := s.fast.Serve(conn, prefix); ctx != nil {
			s.toHTTP(http1.TakeOver(conn, rest, ctx))
		}
	}()
}

func stopIdle(conn net.Conn) {
	if c, ok := conn.(interface{ StopIdle() }); ok {
		c.StopIdle()
	}
}

// toHTTP hands a connection to the HTTP server.
func (s *Server) toHTTP(conn net.Conn) {
	select {
	case s.pass.conns <- conn:
	case <-s.done:
		conn.Close()
	}
}

// sniff reads as much as it takes to know what a connection speaks.
func (s *Server) sniff(conn net.Conn) (kind, []byte, error) {
	prefix := make([]byte, 0, sniffSize)
	limited := false
	for {
		n, err := conn.Read(prefix[len(prefix):sniffSize])
		prefix = prefix[:len(prefix)+n]
		if k := classify(prefix); k != undecided {
			if limited {
				err = conn.SetReadDeadline(time.Time{})
			} else {
				err = nil
			}
			return k, prefix, err
		}
		if err == nil && !limited && n > 0 {
			// Not before the first byte: an idle connection needs no timer.
			limited = true
			err = conn.SetReadDeadline(time.Now().Add(s.opts.SniffTimeout))
		}
		if err != nil {
			return undecided, prefix, err
		}
	}
}

// secure makes the TLS handshake and looks at what is inside.
func (s *Server) secure(ctx context.Context, outer net.Conn, prefix []byte) {
	conn := tls.Server(http1.TakeOver(outer, prefix, nil), s.opts.TLS)
	err := outer.SetDeadline(time.Now().Add(s.opts.SniffTimeout))
	if err == nil {
		err = conn.HandshakeContext(ctx)
	}
	if err == nil {
		err = outer.SetDeadline(time.Time{})
	}
	if err != nil {
		s.failed(outer, err)
		return
	}
	if proto := conn.ConnectionState().NegotiatedProtocol; (proto == "h2" || proto == "http/1.1") &&
		s.handler.HTTP != nil {
		switch {
		case !s.leave(outer):
		case proto == "h2" || s.fast == nil:
			stopIdle(outer)
			s.toHTTP(conn)
		default:
			s.serveHTTP(outer, conn, nil)
		}
		return
	}
	k, prefix, err := s.sniff(conn)
	if err != nil {
		s.failed(outer, err)
		return
	}
	if k == speaksTLS {
		k = unknown
	}
	s.hand(outer, conn, k, prefix)
}

// failed closes a connection that ended too early or took too long.
func (s *Server) failed(conn net.Conn, err error) {
	conn.Close()
	if s.leave(conn) && !errors.Is(err, io.EOF) {
		s.opts.Logger.Debug("a connection ended before it was clear what it speaks", "client",
			address(conn), "error", err)
	}
}

func (s *Server) understood() string {
	text := ""
	if s.handler.HTTP != nil {
		text += "HTTP, "
	}
	if s.handler.Stream != nil {
		text += "JSON texts one per line, JSON texts each after a Content-Length header, "
	}
	if s.opts.TLS != nil {
		return text + "and TLS around them"
	}
	return text + "all without TLS"
}

// refuseKind refuses in the words of what the client speaks.
func (s *Server) refuseKind(conn net.Conn, k kind, reason string) {
	answer := `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error",` +
		`"data":{"reason":"` + reason + "\"}}}\n"
	if k == speaksHTTP {
		answer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n" +
			"Connection: close\r\n\r\n" + reason + "\n"
	}
	s.refuse(conn, answer, reason)
}

// refuse answers and closes.
func (s *Server) refuse(conn net.Conn, answer, reason string) {
	s.opts.Logger.Info("refused a connection", "client", address(conn), "reason", reason)
	_ = conn.SetDeadline(time.Now().Add(lingerTime))
	if _, err := io.WriteString(conn, answer); err == nil {
		// With input left unread, closing resets the connection, and the client may
		// never see the answer.
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		_, _ = io.CopyN(io.Discard, conn, lingerBytes)
	}
	conn.Close()
	s.leave(conn)
}

func address(conn net.Conn) string {
	if a := conn.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}
