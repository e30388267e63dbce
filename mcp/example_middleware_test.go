package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// This is the code of docs/mcp.md: TestDocuments compares them.

func logRequests(log *slog.Logger) func(mcp.Handler) mcp.Handler {
	return func(next mcp.Handler) mcp.Handler {
		return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
			res, err := next(ctx, r)
			failure := err
			if err == nil {
				failure = res.Err() // of a tool
			}
			log.Info(r.Method, "name", r.Name, "client", r.Client().Name, "error", failure)
			return res, err
		}
	}
}

func limitCalls(most int) func(mcp.Handler) mcp.Handler {
	var mu sync.Mutex
	calls := map[string]int{}
	return func(next mcp.Handler) mcp.Handler {
		return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
			if r.Method == spec.MethodToolsCall && !r.Continues() {
				mu.Lock()
				calls[r.Owner()]++
				over := calls[r.Owner()] > most
				mu.Unlock()
				if over {
					return nil, errors.New("too many calls; go on tomorrow") // for the model to read
				}
			}
			return next(ctx, r)
		}
	}
}

func ExampleServer_Use() {
	plain := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "add", Description: "Add two numbers"},
		func(_ context.Context, in Add) (int, error) { return in.A + in.B, nil })
	s.Use(logRequests(slog.New(slog.NewTextHandler(os.Stdout, &plain))), limitCalls(2))

	client, hangUp := connect(s, &mcp.ClientOptions{Name: "reader", Era: "legacy"})
	defer hangUp()
	for n := range 3 {
		sum, err := mcp.CallTool[int](context.Background(), client, "add", Add{n, 1})
		fmt.Println(sum, err)
	}
	// Output:
	// msg=tools/call name=add client=reader error=<nil>
	// 1 <nil>
	// msg=tools/call name=add client=reader error=<nil>
	// 2 <nil>
	// msg=tools/call name=add client=reader error="too many calls; go on tomorrow"
	// 0 too many calls; go on tomorrow
}
