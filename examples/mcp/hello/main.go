// Command hello is an MCP server with one tool, over standard input and output, or over HTTP at an
// address:
//
//	farcall mcp call hello name=Ada -- go run ./examples/mcp/hello
//
//	go run ./examples/mcp/hello localhost:8080
//	farcall mcp call localhost:8080 hello name=Ada
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/farcall-dev/farcall/mcp"
)

type person struct {
	Name string `json:"name" doc:"who to greet" pattern:"\\S"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return newServer().ServeStdio(ctx)
	}
	return newServer().ListenAndServe(ctx, args[0])
}

func newServer() *mcp.Server {
	s := mcp.NewServer("hello", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "hello", Description: "Greet a person"},
		func(_ context.Context, p person) (string, error) {
			return "Hello, " + p.Name + "!", nil
		})
	return s
}
