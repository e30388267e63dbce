package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// The events go on over another connection when one has broken.
func TestFollow(t *testing.T) {
	var connections atomic.Int32
	mux := farcall.NewMux()
	farcall.HandleSubscription(mux, "news/items",
		func(ctx context.Context, p struct{ Topic string }) (iter.Seq2[string, error], error) {
			return func(yield func(string, error) bool) {
				if yield(fmt.Sprint(p.Topic, " ", connections.Load()), nil) {
					<-ctx.Done()
				}
			}, nil
		})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers := make(chan *farcall.Peer, 1)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			peers <- farcall.NewPeer(stream.New(conn, stream.NDJSON, nil), mux, nil)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- follow(ctx, "tcp://"+l.Addr().String(), "news/items", jsonrpc.Raw(`{"Topic":"go"}`), w)
	}()
	lines := bufio.NewReader(r)
	for _, want := range []string{"\"go 1\"\n", "\"go 2\"\n", "\"go 3\"\n"} {
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		if err := (<-peers).Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	l.Close()
	<-served
	select {
	case p := <-peers:
		p.Close()
	default:
	}
}
