package farcall_test

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The caller reads the text of a *jsonrpc.Error. The text of any other error stays in the server's
// log.
func ExampleHandle_errors() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "price", func(_ context.Context, p struct{ Item string }) (float64, error) {
		if p.Item != "tea" {
			return 0, jsonrpc.Errorf(404, "no such item: %s", p.Item)
		}
		return 3.5, nil
	})
	a, b := farcall.Pipe()
	server, client := farcall.NewPeer(a, mux, nil), farcall.NewPeer(b, nil, nil)
	defer server.Close()
	defer client.Close()

	_, err := farcall.Call[float64](context.Background(), client, "price", []string{"gold"})
	fmt.Println(err)
	// Output: no such item: gold (code 404)
}

// A topic gives each event to all of its subscribers.
func ExampleHandleTopic() {
	var prices farcall.Topic[float64]
	mux := farcall.NewMux()
	farcall.HandleTopic(mux, "prices",
		func(context.Context, struct{}) (*farcall.Topic[float64], error) {
			return &prices, nil
		})
	a, b := farcall.Pipe()
	server, client := farcall.NewPeer(a, mux, nil), farcall.NewPeer(b, nil, nil)
	defer server.Close()
	defer client.Close()

	sub, err := farcall.Subscribe[float64](context.Background(), client, "prices", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	if err := prices.Publish(3.5); err != nil {
		fmt.Println(err)
		return
	}
	for price, err := range sub.Events() {
		fmt.Println(price, err)
		break
	}
	// Output: 3.5 <nil>
}
