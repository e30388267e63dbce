package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/rpc"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestService(t *testing.T) {
	var log lines
	s, err := rpc.NewServer(service(), options(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	for _, scheme := range []string{"http", "ws", "tcp"} {
		c, err := rpc.Dial(t.Context(), scheme+"://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := farcall.Call[float64](t.Context(), c, "sum",
			numbers{[]float64{1, 2, 3}}); sum != 6 || err != nil {
			t.Errorf("%s: %v, %v", scheme, sum, err)
		}
		var got []int
		for n, err := range farcall.Stream[int](t.Context(), c, "countdown", start{3}) {
			if err != nil {
				t.Errorf("%s: %v", scheme, err)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, []int{3, 2, 1, 0}) {
			t.Errorf("%s: %v", scheme, got)
		}
		if err := c.Call(t.Context(), "rpc.discover", nil, nil); !errors.Is(err,
			jsonrpc.PermissionDenied) {
			t.Errorf("%s: %v", scheme, err)
		}
		if err := c.Call(t.Context(), "countdown", start{-1}, nil); !errors.Is(err,
			jsonrpc.InvalidParams) {
			t.Errorf("%s: %v", scheme, err)
		}
		c.Close()
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if n := strings.Count(log.text.String(), "method=countdown"); n != 6 {
		t.Errorf("%d calls were logged:\n%s", n, log.text.String())
	}
}
