package farcall_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

// This file is the Go example of README.md. Keep them the same.

type Add struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func serve(routes *http.ServeMux) {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, p Add) (float64, error) {
		return p.A + p.B, nil
	})
	routes.Handle("POST /rpc", httprpc.NewHandler(mux, nil))
	routes.Handle("GET /rpc/ws", wsrpc.NewHandler(func(t farcall.Transport, _ *http.Request) {
		farcall.NewPeer(t, mux, nil)
	}, nil))
}

func add(ctx context.Context, url string) (float64, error) {
	client, err := rpc.Dial(ctx, url, nil)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return farcall.Call[float64](ctx, client, "math/add", Add{2, 3})
}

func Example() {
	routes := http.NewServeMux()
	serve(routes)
	server := httptest.NewServer(routes)
	defer server.Close()

	sum, err := add(context.Background(), "ws"+server.URL[len("http"):]+"/rpc/ws")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
	// Output: 5
}
