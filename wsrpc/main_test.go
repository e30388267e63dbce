package wsrpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/wsrpc"
)

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// server accepts connections and hands them out as they come.
type server struct {
	*httptest.Server
	conns chan farcall.Transport
}

func serve(t *testing.T, o *wsrpc.Options) *server {
	t.Helper()
	s := &server{conns: make(chan farcall.Transport, 16)}
	s.Server = httptest.NewServer(wsrpc.NewHandler(func(c farcall.Transport, _ *http.Request) {
		s.conns <- c
	}, o))
	t.Cleanup(s.Close)
	return s
}

func (s *server) url() string { return "ws" + strings.TrimPrefix(s.URL, "http") }

func dial(t *testing.T, url string, o *wsrpc.Options) farcall.Transport {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // the context bounds the handshake only
	c, err := wsrpc.Dial(ctx, url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// hangUp closes both ends at once: each answers the other one's goodbye.
func hangUp(ends ...io.Closer) error {
	var wg sync.WaitGroup
	errs := make([]error, len(ends))
	for i, c := range ends {
		wg.Go(func() { errs[i] = c.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pair returns the calling and the serving end of a connection.
func pair(t *testing.T, o *wsrpc.Options) (calling, serving farcall.Transport) {
	t.Helper()
	s := serve(t, o)
	calling = dial(t, s.url(), o)
	serving = <-s.conns
	t.Cleanup(func() { _ = hangUp(calling, serving) })
	return calling, serving
}

// peers returns peers at both ends.
func peers(t *testing.T, calling, serving farcall.Handler) (c, s *farcall.Peer) {
	t.Helper()
	a, b := pair(t, nil)
	c, s = farcall.NewPeer(a, calling, nil), farcall.NewPeer(b, serving, nil)
	t.Cleanup(func() {
		if err := hangUp(c, s); err != nil {
			t.Error(err)
		}
	})
	return c, s
}

func echo(_ context.Context, r *farcall.Request) (any, error) { return r.Params, nil }

// isEOF reports whether a connection ended in order.
func isEOF(err error) bool { return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) }
