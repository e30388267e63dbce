// Command pubsubgeth is examples/pubsub with go-ethereum's rpc. Its client does not connect again.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: pubsubgeth ADDRESS NAMESPACE NAME PARAMS")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := follow(ctx, os.Args[1], os.Args[2], os.Args[3], json.RawMessage(os.Args[4]),
		os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func follow(
	ctx context.Context, address, namespace, name string, params json.RawMessage, w io.Writer,
) error {
	delay := 100 * time.Millisecond
	for connected := false; ; {
		began := time.Now()
		err := once(ctx, address, namespace, name, params, w, &connected)
		switch {
		case ctx.Err() != nil:
			return nil
		case !connected: // the first attempt
			return err
		case time.Since(began) > time.Minute:
			delay = 100 * time.Millisecond
		}
		fmt.Fprintln(os.Stderr, "connected: false", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay/2 + rand.N(delay)):
		}
		delay = min(2*delay, 30*time.Second)
	}
}

func once(
	ctx context.Context, address, namespace, name string, params json.RawMessage, w io.Writer,
	connected *bool,
) error {
	client, err := rpc.DialContext(ctx, address)
	if err != nil {
		return err
	}
	defer client.Close()
	events := make(chan json.RawMessage)
	sub, err := client.Subscribe(ctx, namespace, events, name, params)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	*connected = true
	fmt.Fprintln(os.Stderr, "connected: true")
	for {
		select {
		case event := <-events:
			fmt.Fprintf(w, "%s\n", event)
		case err := <-sub.Err():
			return err
		case <-ctx.Done():
			return nil
		}
	}
}
