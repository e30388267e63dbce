// Command service serves JSON-RPC over HTTP, WebSocket and TCP on one port, with interceptors and a
// streaming method:
//
//	go run ./examples/service
//	farcall call localhost:8080 sum '{"numbers":[1,2,3]}'
//	farcall stream ws://localhost:8080 countdown from=3
package main

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/rpc"
)

type numbers struct {
	Numbers []float64 `json:"numbers"`
}

type start struct {
	From int `json:"from" min:"0" max:"1000"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := rpc.ListenAndServe(ctx, "localhost:8080", service(),
		options(slog.Default())); err != nil {
		slog.Error("the service has ended", "error", err)
		os.Exit(1)
	}
}

func service() *farcall.Mux {
	mux := farcall.NewMux()
	farcall.Handle(mux, "sum", func(_ context.Context, p numbers) (sum float64, err error) {
		for _, n := range p.Numbers {
			sum += n
		}
		return sum, nil
	}, "Add numbers")
	farcall.HandleStream(mux, "countdown", func(ctx context.Context, p start) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for n := p.From; n >= 0 && yield(n, ctx.Err()); n-- {
			}
		}
	}, "Count down to 0")
	return mux
}

func options(log *slog.Logger) *rpc.ServeOptions {
	return &rpc.ServeOptions{
		RPC: &farcall.Options{Interceptors: []farcall.Interceptor{logged(log), known}},
	}
}

// logged writes a line for each call, a stream's when it has ended.
func logged(log *slog.Logger) farcall.Interceptor {
	return func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			began := time.Now()
			result, err := next.ServeRPC(ctx, req)
			log.InfoContext(ctx, "call", "method", req.Method, "took", time.Since(began), "error", err)
			return result, err
		})
	}
}

// known refuses names that are not public.
func known(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if req.Method == "rpc.discover" {
			return nil, &jsonrpc.Error{Code: jsonrpc.PermissionDenied, Message: "Permission denied"}
		}
		return next.ServeRPC(ctx, req)
	})
}
