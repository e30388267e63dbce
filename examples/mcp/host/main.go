// Command host uses all servers of an mcpServers file, as a program that embeds a model does: it
// lists what they offer and calls one of their tools.
//
//	host ~/.cursor/mcp.json                        # the tools of all servers, and which servers are missing
//	host ~/.cursor/mcp.json files__list '{"path":"."}'
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/host"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdin, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: host FILE [TOOL [ARGUMENTS]]")
	}
	config, err := gateway.Load(args[0])
	if err != nil {
		return err
	}
	servers, err := config.Servers()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	h, err := host.New(ctx, servers, &host.Options{
		Elicit: func(
			_ context.Context, server string, p *spec.ElicitRequestParams,
		) (*spec.ElicitResult, error) {
			fmt.Fprintf(out, "%s asks: %s (y/n) ", server, p.Message)
			if lines.Scan() && lines.Text() == "y" {
				return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
			}
			return &spec.ElicitResult{Action: spec.ElicitDecline}, nil
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = h.Close(ctx)
	}()
	if len(args) == 1 {
		return list(ctx, out, h)
	}
	arguments := jsonrpc.Raw(strings.Join(args[2:], " "))
	r, err := h.CallTool(ctx, args[1], arguments)
	if err != nil {
		return err
	}
	return show(out, r)
}

// list writes the tools of all servers.
func list(ctx context.Context, out io.Writer, h *host.Host) error {
	if err := h.Wait(ctx); err != nil {
		return err
	}
	tools := h.Tools()
	for _, item := range tools.Items {
		fmt.Fprintln(out, item.Value.Name, "-", item.Value.Description)
	}
	for _, s := range tools.Missing {
		fmt.Fprintln(out, s.Name, "is missing:", s.Err)
	}
	return nil
}

// show writes what a tool has answered.
func show(out io.Writer, r *mcp.ToolResult) error {
	if r.IsError {
		return &mcp.ToolError{Result: r}
	}
	for _, c := range r.Content {
		fmt.Fprintln(out, c.Text)
	}
	return nil
}
