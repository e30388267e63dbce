// Command small is a server and its client, for TestSmallProgram.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/rpc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mux := farcall.NewMux()
	farcall.Handle(mux, "add", func(_ context.Context, p struct{ A, B int }) (int, error) {
		return p.A + p.B, nil
	})
	fmt.Println(rpc.ListenAndServe(ctx, os.Args[1], mux, nil))
	fmt.Println(rpc.Dial(ctx, os.Args[1], nil))
}
