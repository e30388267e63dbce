package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// childLogVar names the file in which the child of a cluster's node writes what it has executed.
const childLogVar = "FARCALL_TEST_CHILD_LOG"

// childLine appends a line to the file of the children: one write, so that lines of several stay
// whole.
func childLine(text string) error {
	f, err := os.OpenFile(os.Getenv(childLogVar), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// clusterChildMain is an MCP server that says which process it is, asks, reports progress, waits,
// and answers with much.
func clusterChildMain() int {
	s := mcp.NewServer("child", "1", &mcp.ServerOptions{Eras: os.Getenv("FARCALL_TEST_ERA")})
	defer s.Close()
	var calls atomic.Int64
	mcp.AddTool(s, mcp.Tool{Name: "where"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprintf("%d:%d", os.Getpid(), calls.Add(1)), nil
	})
	s.AddTool(mcp.Tool{Name: "ask", InputSchema: jsonrpc.Raw(`{"type":"object"}`)},
		func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
			answer, err := mcp.Elicit[struct{ Name string }](ctx, "Who?")
			if err != nil {
				return nil, err
			}
			return &mcp.ToolResult{
				Content: []mcp.Content{mcp.Text(fmt.Sprint(os.Getpid(), " ", answer.Name))},
			}, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		_ = mcp.Progress(ctx, 1, 2, "half")
		<-ctx.Done()
		return "", errors.Join(ctx.Err(), childLine("cancelled"))
	})
	mcp.AddTool(s, mcp.Tool{Name: "big"},
		func(_ context.Context, p struct{ Size int }) (string, error) {
			return strings.Repeat("x", p.Size), nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "note"},
		func(_ context.Context, p struct{ Text string }) (string, error) {
			return p.Text, childLine(p.Text)
		})
	if err := s.ServeStdio(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
