// Command pubsubjrpc2 is examples/pubsub with jrpc2, as far as that has it: there are no
// subscriptions, its client does not connect again, and there is no WebSocket.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: pubsubjrpc2 HOST:PORT NAMESPACE NAME PARAMS")
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
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	client := jrpc2.NewClient(channel.Line(conn, conn), &jrpc2.ClientOptions{
		OnNotify: func(req *jrpc2.Request) {
			var event struct {
				ID     string          `json:"subscription"`
				Result json.RawMessage `json:"result"`
			}
			if req.Method() == namespace+"/subscription" && req.UnmarshalParams(&event) == nil {
				fmt.Fprintf(w, "%s\n", event.Result)
			}
		},
		OnStop: func(_ *jrpc2.Client, err error) { ended <- err },
	})
	defer client.Close() //nolint:errcheck // everything was read
	var id string
	if err := client.CallResult(ctx, namespace+"/subscribe", []any{name, params}, &id); err != nil {
		return err
	}
	*connected = true
	fmt.Fprintln(os.Stderr, "connected: true")
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		_, _ = client.Call(context.WithoutCancel(ctx), namespace+"/unsubscribe", []any{id})
		return nil
	}
}
