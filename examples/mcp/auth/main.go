// Command auth is an MCP server behind a guard: keys say who calls, rules say what they may call,
// and lists show each caller its own tools only. What a caller leaves here belongs to it.
//
//	farcall key new --id ada > FILE        # the key goes to FILE, its hash to the terminal
//	go run ./examples/mcp/auth HASH        # ada may read and write with it
//	farcall mcp tools localhost:8080 --bearer FILE
//	farcall mcp call localhost:8080 note text='Buy milk' --bearer FILE
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

type note struct {
	Text string `json:"text" pattern:"\\S"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "auth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: auth HASH, of a key that farcall key new has made")
	}
	h, err := newHandler(guard.Key{ID: "ada", Hash: args[0], Roles: []string{"writer"}})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "localhost:8080")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })() //nolint:errcheck // it is over
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newHandler returns the server with its guard. For tokens of an issuer, Config.JWT and
// Config.Resource take the place of keys; for your own way there is guard.Options.Authenticate.
func newHandler(keys ...guard.Key) (http.Handler, error) {
	g, err := guard.New(&guard.Config{
		Keys: keys,
		Allow: []guard.Rule{
			{Roles: []string{"reader", "writer"}, Calls: []string{"tools/call notes"}},
			{Roles: []string{"writer"}, Calls: []string{"tools/call note"}},
		},
	}, nil)
	if err != nil {
		return nil, err
	}
	s := mcp.NewServer("notes", "1.0.0", &mcp.ServerOptions{
		RPC:   &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}},
		Owner: func(ctx context.Context) string { return guard.From(ctx).Owner() },
		Visible: func(ctx context.Context, kind, name string) bool {
			return kind != "tool" || g.Visible(ctx, &guard.Call{Method: "tools/call", Name: name, MCP: true})
		},
	})
	addNotes(s)
	return g.HTTP(mcphttp.NewHandler(s, nil)), nil
}

func addNotes(s *mcp.Server) {
	var mu sync.Mutex
	notes := []string{} // with their writers: the last 100
	mcp.AddTool(s, mcp.Tool{Name: "note", Description: "Write a note"},
		func(ctx context.Context, n note) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			notes = append(notes, guard.From(ctx).ID+": "+n.Text)
			notes = notes[max(0, len(notes)-100):]
			return "Written", nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "notes", Description: "Read the notes"},
		func(context.Context, struct{}) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(notes), nil
		})
}
