// Command openapi is an MCP server with tools that are the operations of an HTTP API that read, as
// its OpenAPI document describes them:
//
//	go run ./examples/mcp/openapi petstore.json https://petstore.example.com/v1
//	farcall mcp tools localhost:8080
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/openapi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: openapi DOCUMENT BASE-URL")
	}
	s, err := newServer(args[0], args[1], os.Getenv("API_TOKEN"))
	if err != nil {
		return err
	}
	return s.ListenAndServe(ctx, "localhost:8080")
}

func newServer(document, base, token string) (*mcp.Server, error) {
	o := &openapi.Options{
		BaseURL:  base,
		ReadOnly: true,
		// Models read descriptions: say here what the document does not.
		Edit: func(operation string, t *mcp.Tool) { t.Description += " (" + operation + ")" },
	}
	if token != "" {
		o.Header = http.Header{"Authorization": {"Bearer " + token}} // to that origin only
	}
	api, err := openapi.Open(document, o)
	if err != nil {
		return nil, err
	}
	for _, p := range api.Problems() {
		slog.Warn("not wholly a tool", "operation", p.Operation, "problem", p.Message)
	}
	s := mcp.NewServer("api", "1.0.0", nil)
	api.AddTo(s)
	return s, nil
}
