package wsrpc_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

func message(size int) []byte { return []byte(`"` + strings.Repeat("x", size-2) + `"`) }

func held(t *testing.T, b *farcall.Budget, want int64) {
	t.Helper()
	if n, few := b.Used(); n+few != want {
		t.Errorf("%d bytes of the budget are held, want %d", n+few, want)
	}
}

func codeOf(err error) jsonrpc.Code {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e.Code
	}
	return 0
}

// One connection sends what there is no room for: it is refused, and stays in
// step; another one works.
func TestBudgetIsShared(t *testing.T) {
	b := farcall.NewBudget(2<<20, 0)
	s := serve(t, &wsrpc.Options{Budget: b})
	one := dial(t, s.url(), nil)
	oneEnd := <-s.conns
	two := dial(t, s.url(), nil)
	twoEnd := <-s.conns
	sent := make(chan error, 1)
	go func() { sent <- one.Write(message(1500<<10), []byte("1")) }()
	if _, err := oneEnd.Read(); codeOf(err) != jsonrpc.Overloaded {
		t.Errorf("%v", err)
	}
	if err := two.Write(message(100 << 10)); err != nil {
		t.Fatal(err)
	}
	if frame, err := twoEnd.Read(); err != nil || len(frame) != 100<<10 {
		t.Errorf("the other connection got %d bytes, %v", len(frame), err)
	}
	if n, _ := b.Used(); n < 100<<10 {
		t.Errorf("a message that is being handled holds %d bytes", n)
	}
	twoEnd.(farcall.Keeper).Keep()
	if frame, err := oneEnd.Read(); err != nil || string(frame) != "1" {
		t.Errorf("after the refusal came %.100s, %v", frame, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := hangUp(one, oneEnd, two, twoEnd); err != nil {
		t.Error(err)
	}
	held(t, b, 0)
}

// rawConn makes the handshake of a WebSocket and returns the connection.
func rawConn(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	handshake(t, conn)
	return conn
}

func handshake(t *testing.T, conn net.Conn) {
	t.Helper()
	const request = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: " +
		"Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		p := make([]byte, 1)
		if _, err := conn.Read(p); err != nil {
			t.Fatal(err)
		}
		head = append(head, p...)
	}
}

// masked begins a text message of so many bytes; only some follow. The
// mask is zero.
func masked(size, follow int) []byte {
	return append([]byte{
		0x81, 0x80 | 127, 0, 0, 0, 0, byte(size >> 24), byte(size >> 16),
		byte(size >> 8), byte(size), 0, 0, 0, 0,
	}, message(size)[:follow]...)
}

// The oldest incomplete message of an unauthenticated connection makes room.
func TestOldestUnauthenticatedMessageGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := farcall.NewBudget(0, 1<<20)
		s := servePipes(&wsrpc.Options{Budget: b.Unauthenticated()}, &farcall.Options{Budget: b})
		var said [4]chan []byte
		for i := range said {
			conn := s.dial(t)
			said[i] = make(chan []byte, 1)
			go func() {
				all, _ := io.ReadAll(conn)
				said[i] <- all
			}()
			if _, err := conn.Write(masked(400<<10, 300<<10)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // each message has begun before the next
		}
		<-time.After(10 * time.Second) // for goodbyes; a message may take longer
		synctest.Wait()
		var ended []int
		for i, c := range said {
			select {
			case all := <-c:
				ended = append(ended, i)
				if !bytes.Contains(all, []byte("-32010")) ||
					!bytes.Contains(all, []byte("\x03\xf5no memory")) { // 1013
					t.Errorf("connection %d ended with %q", i, all)
				}
			default:
			}
		}
		// Buffers double, or come from a pool, so that there is room for two or three.
		if !slices.Equal(ended, []int{0}) && !slices.Equal(ended, []int{0, 1}) {
			t.Errorf("connections %v ended; the oldest was 0", ended)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		held(t, b, 0)
	})
}

// pipeServer serves WebSocket on pipes, which a bubble of synctest can wait for.
type pipeServer struct {
	server *http.Server
	conns  chan net.Conn
	peers  chan *farcall.Peer
	served chan struct{}

	dialed []net.Conn
	peer   []*farcall.Peer
}

func servePipes(o *wsrpc.Options, peer *farcall.Options) *pipeServer {
	s := &pipeServer{
		conns: make(chan net.Conn), peers: make(chan *farcall.Peer, 1), served: make(chan struct{}),
	}
	s.server = &http.Server{Handler: wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
		s.peers <- farcall.NewPeer(tr, nil, peer)
	}, o)}
	go func() { defer close(s.served); _ = s.server.Serve(pipeListener(s.conns)) }()
	return s
}

// dial returns a connection after the handshake.
func (s *pipeServer) dial(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	s.conns <- theirs
	s.dialed = append(s.dialed, ours)
	handshake(t, ours)
	s.peer = append(s.peer, <-s.peers)
	return ours
}

// Close ends the peers, then all else.
func (s *pipeServer) Close() error {
	var errs []error
	for _, p := range s.peer {
		errs = append(errs, p.Close())
	}
	for _, c := range s.dialed {
		c.Close()
	}
	close(s.conns)
	errs = append(errs, s.server.Close())
	<-s.served
	return errors.Join(errs...)
}

// pipeListener accepts what is sent.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// A message that has begun must go on, whatever else comes in between.
func TestMessageTimeout(t *testing.T) {
	for name, parts := range map[string]func() [][]byte{
		"bytes": func() [][]byte {
			all := [][]byte{masked(100<<10, 10)}
			for range 1000 {
				all = append(all, []byte("x"))
			}
			return all
		},
		"pings between fragments": func() [][]byte {
			all := [][]byte{{0x01, 0x80 | 1, 0, 0, 0, 0, '1'}}
			for range 1000 {
				all = append(all, []byte{0x89, 0x80, 0, 0, 0, 0})
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servePipes(nil, nil)
				conn := s.dial(t)
				began := time.Now()
				said := make(chan []byte)
				go func() {
					all, _ := io.ReadAll(conn)
					said <- all
				}()
				for _, part := range parts() {
					if _, err := conn.Write(part); err != nil {
						break
					}
					<-time.After(time.Second)
				}
				all, took := <-said, time.Since(began)
				if !bytes.Contains(all, []byte("-32600")) ||
					!bytes.Contains(all, []byte("\x03\xf0the message took too long")) || took < 30*time.Second ||
					took > 33*time.Second {
					// 1008
					t.Errorf("after %v: %.300q", took, all)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A large message over a slow line arrives, and a connection may be silent.
func TestMessageTimeoutOfLargeMessages(t *testing.T) {
	t.Parallel()
	s := serve(t, &wsrpc.Options{MessageTimeout: 500 * time.Millisecond})
	conn := rawConn(t, s.url())
	tr := <-s.conns
	go func() {
		all := masked(900<<10, 900<<10)
		for len(all) > 0 {
			n := min(len(all), 150<<10)
			if _, err := conn.Write(all[:n]); err != nil {
				return
			}
			all = all[n:]
			<-time.After(200 * time.Millisecond)
		}
	}()
	if frame, err := tr.Read(); err != nil || len(frame) != 900<<10 {
		t.Errorf("%d bytes, %v", len(frame), err)
	}
	conn.Close()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
