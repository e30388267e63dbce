// Command client is the client that the official MCP conformance suite tests: it
// plays one scenario against the server at the URL that is its last argument.
// Which one, and with what, the suite says in the environment.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// waitLimit bounds a scenario; the suite's own bound is 30 s.
const waitLimit = 25 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	if err := run(ctx, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	play, known := scenarios[os.Getenv("MCP_CONFORMANCE_SCENARIO")]
	if !known {
		play = callTools
	}
	auth, err := authorization(url)
	if err != nil {
		return err
	}
	o := options()
	o.HTTP = &mcphttp.DialOptions{Authorize: auth}
	c, err := mcp.Dial(ctx, url, o)
	if err != nil {
		return err
	}
	return errors.Join(play(ctx, c), c.Close())
}

// options are those of every scenario. The client finds out which revision the
// server speaks.
func options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Name: "farcall-conformance", Version: "1.0.0",
		// The user accepts every form as it is: its defaults are the answer.
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
		},
		Sample: func(
			context.Context, *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			return &spec.CreateMessageResult{
				Role: spec.RoleAssistant, Content: []mcp.Content{mcp.Text("Hello")}, Model: "test-model",
				StopReason: spec.StopEndTurn,
			}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///workspace", Name: "workspace"}}, nil
		},
		OnWarning: func(err error) { fmt.Fprintln(os.Stderr, "client: warning:", err) },
		// The suite's server answers over HTTP, however late, and counts an initialize as a failure.
		ProbeTimeout: 20 * time.Second,
	}
}

// settings reads what the suite gives to a scenario.
func settings(into any) error {
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), into); err != nil {
		return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
	}
	return nil
}
