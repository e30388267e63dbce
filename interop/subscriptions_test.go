package interop

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"

	"github.com/farcall-dev/farcall"
	farrpc "github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A tickServer is ours, and has the peers of its connections.
type tickServer struct {
	mux   *farcall.Mux
	topic farcall.Topic[int]
	stdio net.Conn // which go-ethereum's client waits for, but does not close; nil: there is none

	mu    sync.Mutex
	peers []*farcall.Peer
}

func newTickServer() *tickServer {
	s := &tickServer{mux: farcall.NewMux()}
	farcall.HandleSubscription(s.mux, "calc_ticks",
		func(ctx context.Context, p struct{ N int }) (iter.Seq2[int, error], error) {
			return func(yield func(int, error) bool) {
				for i := 0; i < p.N && yield(i, nil); i++ {
				}
				<-ctx.Done()
			}, nil
		})
	farcall.HandleTopic(s.mux, "calc_topic",
		func(context.Context, struct{}) (*farcall.Topic[int], error) { return &s.topic, nil })
	return s
}

func (s *tickServer) serve(t farcall.Transport) *farcall.Peer {
	p := farcall.NewPeer(t, s.mux, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = append(s.peers, p)
	return p
}

// open is how many subscriptions there are.
func (s *tickServer) open() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		n += p.Stats().Subscriptions
	}
	return n
}

func (s *tickServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		p.Close()
	}
}

// expect waits until as many subscriptions are open.
func (s *tickServer) expect(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(waitLimit); s.open() != want; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d subscriptions are open, want %d", s.open(), want)
		}
	}
}

// gethClients connect go-ethereum's client to our server.
var gethClients = map[string]func(t *testing.T, s *tickServer) (*rpc.Client, error){
	"WebSocket": func(t *testing.T, s *tickServer) (*rpc.Client, error) {
		hs := httptest.NewServer(wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
			<-s.serve(tr).Done()
		}, nil))
		t.Cleanup(hs.Close)
		return rpc.DialContext(t.Context(), "ws"+strings.TrimPrefix(hs.URL, "http"))
	},
	"IPC": func(t *testing.T, s *tickServer) (*rpc.Client, error) {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.serve(stream.New(c, stream.Detect, nil))
			}
		}()
		return rpc.DialIPC(t.Context(), path)
	},
	"stdio": func(t *testing.T, s *tickServer) (*rpc.Client, error) {
		far, near := net.Pipe()
		t.Cleanup(func() { far.Close() })
		s.stdio = far
		s.serve(stream.New(near, stream.Detect, nil))
		return rpc.DialIO(t.Context(), far, far)
	},
}

// go-ethereum's client subscribes to our server, unsubscribes and goes away.
func TestGethSubscribesToOurs(t *testing.T) {
	for name, dial := range gethClients {
		t.Run(name, func(t *testing.T) {
			s := newTickServer()
			t.Cleanup(s.close)
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			c, err := dial(t, s)
			if err != nil {
				t.Fatal(err)
			}
			gethSubscribes(t, ctx, c, true)
			s.expect(t, 0)

			events := make(chan int)
			sub, err := c.Subscribe(ctx, "calc", events, "topic")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				s.topic.Publish(i)
				if got := <-events; got != i {
					t.Fatalf("event %d = %d", i, got)
				}
			}
			sub.Unsubscribe()
			s.expect(t, 0)

			if sub, err = c.Subscribe(ctx, "calc", events, "topic"); err != nil {
				t.Fatal(err)
			}
			s.topic.Close(errors.New("no more"))
			select {
			case err := <-sub.Err():
				if err == nil {
					t.Error("a subscription that the server ended has no error")
				}
			case <-ctx.Done():
				t.Error("the client does not see that the server has ended it")
			}
			if _, err = c.Subscribe(ctx, "calc", events, "nosuch"); err == nil ||
				!strings.Contains(err.Error(), "there is no subscription") {
				t.Errorf("nosuch: %v", err)
			}
			if _, err = c.Subscribe(ctx, "calc", events, "topic"); err != nil {
				t.Fatal(err)
			}
			if s.stdio != nil {
				s.stdio.Close()
			}
			c.Close()
			s.expect(t, 0)
			if n := s.topic.Subscribers(); n != 0 {
				t.Errorf("%d subscribers are left", n)
			}
		})
	}
}

// Our client subscribes to go-ethereum's server, unsubscribes, and goes on when the connection
// breaks.
func TestOursSubscribesToGeth(t *testing.T) {
	s := rpc.NewServer()
	if err := s.RegisterName("calc", calculator{}); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	hs := httptest.NewServer(s.WebsocketHandler([]string{"*"}))
	defer hs.Close()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cuts := &cutListener{Listener: l}
	go s.ServeListener(cuts)
	for name, address := range map[string]string{
		"WebSocket": "ws" + strings.TrimPrefix(hs.URL, "http") + "/", "IPC": "unix:" + path,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			c, err := farrpc.Dial(ctx, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 20 { // the first event follows its id at once
				sub, err := farcall.Subscribe[int](ctx, c, "calc_ticks", []int{50})
				if err != nil {
					t.Fatal(err)
				}
				expectTicks(t, sub, 50)
				if err := sub.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := farcall.Subscribe[int](ctx, c, "calc_nosuch", nil); err == nil ||
				!strings.Contains(err.Error(), "nosuch") {
				t.Errorf("nosuch: %v", err)
			}
			if name != "IPC" {
				return
			}
			sub, err := farcall.Subscribe[int](ctx, c, "calc_ticks", []int{5})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			expectTicks(t, sub, 5)
			cuts.cut()
			for _, err := range sub.Events() {
				if _, gap := errors.AsType[*farcall.GapError](err); !gap {
					t.Errorf("cut: %v", err)
				}
				break
			}
			expectTicks(t, sub, 5)
		})
	}
}

func expectTicks(t *testing.T, sub *farcall.Subscription[int], n int) {
	t.Helper()
	i := 0
	for tick, err := range sub.Events() {
		if err != nil || tick != i {
			t.Fatalf("tick %d = %d, %v", i, tick, err)
		}
		if i++; i == n {
			return
		}
	}
	t.Fatalf("ended at %d", i)
}

// cutListener can cut the connections that it has accepted.
type cutListener struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
}

func (l *cutListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *cutListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}
