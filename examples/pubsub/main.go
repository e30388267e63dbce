// Command pubsub prints the events of a server, and goes on when the connection breaks:
//
//	go run ./cmd/farcall serve
//	go run ./examples/pubsub ws://localhost:7331 time/ticks '{"interval_ms":500}'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/rpc"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pubsub ADDRESS METHOD PARAMS")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := follow(ctx, os.Args[1], os.Args[2], jsonrpc.Raw(os.Args[3]), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// follow writes the events until the context ends.
func follow(ctx context.Context, address, method string, params jsonrpc.Raw, w io.Writer) error {
	client, err := rpc.Dial(ctx, address, &rpc.Options{OnState: func(s rpc.State) {
		fmt.Fprintf(os.Stderr, "connected: %t\n", s.Connected)
	}})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // everything was read
	sub, err := farcall.Subscribe[jsonrpc.Raw](ctx, client, method, params)
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // the server may be gone
	for event, err := range sub.Events() {
		gap := (*farcall.GapError)(nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &gap):
			fmt.Fprintln(os.Stderr, err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(w, "%s\n", event)
		}
	}
	return nil
}
