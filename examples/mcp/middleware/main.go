// Command middleware is an MCP server; its requests pass three functions: one logs them, one bounds
// their time, and one fills in an argument that models must not choose. They see every transport
// and every revision in one form.
//
//	go run ./examples/mcp/middleware
//	farcall mcp call localhost:8080 orders limit=1 -H 'X-Tenant: acme'
//	farcall mcp call localhost:8080 orders tenant=other -H 'X-Tenant: acme'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type search struct {
	Tenant string `json:"tenant,omitempty" doc:"filled in by the server"`
	Limit  int    `json:"limit" min:"1" max:"10" default:"10"`
}

type found struct {
	Tenant string   `json:"tenant"`
	Orders []string `json:"orders"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newServer(slog.Default()).ListenAndServe(ctx, "localhost:8080"); err != nil {
		fmt.Fprintln(os.Stderr, "middleware:", err)
		os.Exit(1)
	}
}

func newServer(log *slog.Logger) *mcp.Server {
	s := mcp.NewServer("orders", "1.0.0", nil)
	s.Use(logged(log), within(5*time.Second), tenant) // the first one is the outermost
	mcp.AddTool(s, mcp.Tool{Name: "orders", Description: "List the newest orders"},
		func(_ context.Context, in search) (found, error) {
			orders := []string{"42 apples", "1 pear"}
			return found{in.Tenant, orders[:min(in.Limit, len(orders))]}, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "wait", Description: "Wait for ever"},
		func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	return s
}

// logged writes a line for each request, with the error of the tool if that failed.
func logged(log *slog.Logger) func(mcp.Handler) mcp.Handler {
	return func(next mcp.Handler) mcp.Handler {
		return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
			began := time.Now()
			res, err := next(ctx, r)
			failure := err
			if err == nil {
				failure = res.Err()
			}
			log.InfoContext(ctx, r.Method, "name", r.Name, "client", r.Client().Name, "took",
				time.Since(began), "error", failure)
			return res, err
		}
	}
}

// within ends the context of a request after some time.
func within(limit time.Duration) func(mcp.Handler) mcp.Handler {
	return func(next mcp.Handler) mcp.Handler {
		return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return next(ctx, r)
		}
	}
}

// tenant sets the argument tenant to what stands in the header, whatever the model has written.
func tenant(next mcp.Handler) mcp.Handler {
	return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
		if r.Method != spec.MethodToolsCall || r.Name != "orders" {
			return next(ctx, r)
		}
		name := r.Header().Get("X-Tenant") // a nil Header has no values
		if name == "" {
			return nil, errors.New("no tenant; send the header X-Tenant") // for the model to read
		}
		arguments := map[string]any{}
		if r.Arguments != nil {
			if err := json.Unmarshal(r.Arguments, &arguments); err != nil {
				return nil, err
			}
		}
		arguments["tenant"] = name
		changed, err := json.Marshal(arguments)
		if err != nil {
			return nil, err
		}
		r.Arguments = changed
		return next(ctx, r)
	}
}
