// Command server is the server that the official MCP conformance suite tests:
// tools, prompts, resources, tasks and skills of given names. One process at one
// URL serves every revision of the protocol.
//
//	go -C interop run ./server --listen 127.0.0.1:7331    http://127.0.0.1:7331/mcp
//	go -C interop run ./server --stdio [--eras 2025-11-25]
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/mcp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7331", "`address` to serve MCP over HTTP on, at /mcp")
	stdio := flag.Bool("stdio", false, "serve standard input and output, and not HTTP")
	eras := flag.String("eras", "auto",
		"which revisions to speak: auto, modern, legacy or a `revision`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *eras, *stdio); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, eras string, stdio bool) error {
	s := newServer(eras)
	defer s.Close()
	if stdio {
		return s.ServeStdio(ctx)
	}
	return s.ListenAndServe(ctx, listen)
}

// newServer returns the server with all that the suite asks for, in the revisions
// of eras.
func newServer(eras string) *mcp.Server {
	s := mcp.NewServer("farcall-conformance", "1.0.0", &mcp.ServerOptions{
		Title:        "Conformance",
		Instructions: "Everything here is for tests.",
		Complete:     complete,
		CacheTTL:     time.Minute,
		TaskPoll:     100 * time.Millisecond,
		TaskAfter:    -1, // the suite looks at tasks, also of calls that are fast
		Eras:         eras,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	addContentTools(s)
	addConversationTools(s)
	addQuestionTools(s)
	addTaskTools(s)
	addResources(s)
	addPrompts(s)
	addSkills(s)
	return s
}

// none is the arguments of a tool that has none.
type none = struct{}

// pause waits, unless no caller waits for the tool any more.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
