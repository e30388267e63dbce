package wsrpc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/wsrpc"
)

// Both ends serve: the server asks its caller for a name.
func Example() {
	greet := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		name, err := farcall.Call[string](ctx, farcall.CallerFrom(ctx), "name", nil)
		return "hello " + name, err
	})
	server := httptest.NewServer(wsrpc.NewHandler(func(t farcall.Transport, _ *http.Request) {
		farcall.NewPeer(t, greet, nil)
	}, nil))
	defer server.Close()

	ctx := context.Background()
	t, err := wsrpc.Dial(ctx, "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	name := farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return "world", nil
	})
	peer := farcall.NewPeer(t, name, nil)
	defer peer.Close()
	fmt.Println(farcall.Call[string](ctx, peer, "greet", nil))
	// Output: hello world <nil>
}
