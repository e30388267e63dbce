package http1

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// A Rest is a connection that net/http takes over: what was read of it and not used
// comes first.
type Rest struct {
	net.Conn
	rest []byte
	ctx  context.Context //nolint:containedctx // for HTTP1Context
}

// TakeOver returns the connection that hs gets, with what [Server.Serve] has returned.
// That of TLS has a method ConnectionState.
//
//nolint:revive // it belongs to the connection
func TakeOver(conn net.Conn, rest []byte, ctx context.Context) net.Conn {
	r := Rest{conn, rest, ctx}
	if t, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return &secureRest{r, t}
	}
	return &r
}

// Read implements net.Conn.
func (r *Rest) Read(p []byte) (int, error) {
	if len(r.rest) > 0 && len(p) > 0 {
		n := copy(p, r.rest)
		if r.rest = r.rest[n:]; len(r.rest) == 0 {
			r.rest = nil
		}
		return n, nil
	}
	return r.Conn.Read(p)
}

// HTTP1Context is for the ConnContext of New.
func (r *Rest) HTTP1Context() context.Context { return r.ctx }

// NetConn returns the connection below.
func (r *Rest) NetConn() net.Conn { return r.Conn }

// CloseWrite ends what we send. net/http asks for it.
func (r *Rest) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// A secureRest is a Rest of TLS. net/http asks for its state.
type secureRest struct {
	Rest
	state interface{ ConnectionState() tls.ConnectionState }
}

func (s *secureRest) ConnectionState() tls.ConnectionState { return s.state.ConnectionState() }

// A Front is the listener of an http.Server that has a Server in front: it serves
// what is ours, and Accept returns the connections for net/http. Connections with
// TLS are for net/http from the beginning.
type Front struct {
	net.Listener
	s     *Server
	next  chan accepted
	done  chan struct{}
	start sync.Once // of accept
	end   sync.Once // of done
}

type accepted struct {
	conn net.Conn
	err  error
}

// NewFront returns a Front of a listener. As in net/http nothing is served before
// the first Accept, so that the http.Server may be changed until then.
func NewFront(l net.Listener, s *Server) *Front {
	return &Front{Listener: l, s: s, next: make(chan accepted), done: make(chan struct{})}
}

func (f *Front) accept() {
	for !f.closed() {
		conn, err := f.Listener.Accept()
		if err != nil {
			f.give(nil, err) // it waits until net/http accepts again
			continue
		}
		go f.serve(conn)
	}
}

func (f *Front) serve(conn net.Conn) {
	if _, secure := conn.(*tls.Conn); secure {
		f.give(conn, nil)
	} else if rest, ctx := f.s.Serve(conn, nil); ctx != nil {
		f.give(TakeOver(conn, rest, ctx), nil)
	}
}

func (f *Front) give(conn net.Conn, err error) {
	select {
	case f.next <- accepted{conn, err}:
	case <-f.done:
		if conn != nil {
			_ = conn.Close() // as net/http does
		}
	}
}

func (f *Front) closed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener. An error is that of the listener; after one that
// is temporary Accept can be called again.
func (f *Front) Accept() (net.Conn, error) {
	f.start.Do(func() { go f.accept() })
	select {
	case a := <-f.next:
		return a.conn, a.err
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener. What the Server serves goes on.
func (f *Front) Close() error {
	f.end.Do(func() { close(f.done) })
	return f.Listener.Close()
}
