package rpc_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/rpc"
)

func ExampleDial() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, p struct{ A, B int }) (int, error) { return p.A + p.B, nil })
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
