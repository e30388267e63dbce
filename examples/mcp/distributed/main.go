// Command distributed is an MCP server that runs in any number of replicas behind any load
// balancer: what a call leaves for its next request, the client carries, sealed with a key that the
// replicas share. In 2026-07-28 there are no sessions, so each request may go to another replica,
// in the middle of a question to the user, too.
//
//	export CAFE_KEY=$(openssl rand -hex 32)
//	go run ./examples/mcp/distributed localhost:8081 &
//	go run ./examples/mcp/distributed localhost:8082 &
//	farcall mcp call localhost:8081 order --answer '{"cups":2}'
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/farcall-dev/farcall/mcp"
)

type order struct {
	Cups int `json:"cups" min:"1" max:"9"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("CAFE_KEY")); err != nil {
		fmt.Fprintln(os.Stderr, "distributed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, key string) error {
	if len(args) != 1 {
		return errors.New("usage: distributed HOST:PORT")
	}
	raw, err := hex.DecodeString(key)
	if err != nil || len(raw) != 32 {
		return errors.New("CAFE_KEY must be 64 hexadecimal digits: openssl rand -hex 32")
	}
	return newServer(args[0], raw).ListenAndServe(ctx, args[0])
}

// newServer returns a replica. The first key seals and each one opens. To change the key, add the
// new one behind the old one on each replica, then put it first on each, and drop the old one after
// ServerOptions.StateTTL.
func newServer(replica string, keys ...[]byte) *mcp.Server {
	s := mcp.NewServer("cafe", "1.0.0", &mcp.ServerOptions{Keys: keys})
	mcp.AddTool(s, mcp.Tool{Name: "order", Description: "Let the user order coffee"},
		func(ctx context.Context, _ struct{}) (string, error) {
			// It runs once, at the replica that gets the first request.
			began, err := mcp.Once(ctx, "began", func() (string, error) { return replica, nil })
			if err != nil {
				return "", err
			}
			o, err := mcp.Elicit[order](ctx, "How many cups?")
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%d cups, asked by %s, served by %s", o.Cups, began, replica), nil
		})
	return s
}
