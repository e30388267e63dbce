package rpc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/rpc"
)

func ExampleDial() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, p struct{ A, B int }) (int, error) {
		return p.A + p.B, nil
	})
	server := httptest.NewServer(httprpc.NewHandler(mux, nil))
	defer server.Close()

	ctx := context.Background()
	client, err := rpc.Dial(ctx, server.URL+"/rpc", &rpc.Options{
		OnState: func(s rpc.State) { fmt.Println(s) }, // of a connection; over HTTP there is none to lose
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	sum, err := farcall.Call[int](ctx, client, "math/add", []int{2, 3})
	fmt.Println(sum, err)
	// Output: 5 <nil>
}

// A Server is an http.Handler, for a program that has an http.Server already.
func ExampleServer() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, p struct{ A, B int }) (int, error) {
		return p.A + p.B, nil
	})
	s, err := rpc.NewServer(mux, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = s.Shutdown(ctx) }()
	routes := http.NewServeMux()
	routes.Handle("/rpc", s) // POST and WebSocket
	server := httptest.NewServer(routes)
	defer server.Close()

	client, err := rpc.Dial(ctx, server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	sum, err := farcall.Call[int](ctx, client, "math/add", []int{2, 3})
	fmt.Println(sum, err)
	// Output: 5 <nil>
}

// An address that other machines can reach needs a guard, and TLS where the guard has keys.
func ExampleListenAndServe() {
	c := &guard.Config{
		Keys: []guard.Key{
			{ID: "ci", Hash: "sha256:4a1f0e8c9c0b6f0d2f4f6b7f3f1f1c1b5c5a4d3e2f1a0b9c8d7e6f5a4b3c2d1e"},
		},
	}
	g, err := guard.New(c, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	err = rpc.ListenAndServe(context.Background(), ":7331", farcall.NewMux(),
		&rpc.ServeOptions{Guard: g})
	fmt.Println(strings.ReplaceAll(err.Error(), "; ", ";\n"))
	// Output:
	// rpc: other machines can reach :7331, and API keys would cross the network unencrypted;
	// set ServeOptions.CertFile and ServeOptions.KeyFile, name the proxy that terminates TLS (ServeOptions.TrustedProxies), listen on 127.0.0.1:7331 or a unix socket, or insist with ServeOptions.Insecure
}
