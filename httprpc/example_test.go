package httprpc_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
)

func Example() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "greet", func(_ context.Context, p struct {
		Name string `json:"name"`
	},
	) (string, error) {
		return "hello " + p.Name, nil
	})
	server := httptest.NewServer(httprpc.NewHandler(mux, nil))
	defer server.Close()

	x, err := httprpc.Dial(server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	peer := farcall.NewClient(x, nil, nil)
	defer peer.Close()
	fmt.Println(
		farcall.Call[string](context.Background(), peer, "greet", map[string]string{"name": "world"}))
	// Output: hello world <nil>
}
