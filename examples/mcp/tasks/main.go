// Command tasks is an MCP server with a tool that takes long. A call that ends within a second is
// answered like any other; one that takes longer becomes a task, which the client follows, asks for
// its state, or cancels.
//
//	go run ./examples/mcp/tasks
//	farcall mcp call localhost:8080 bake minutes=1             # waits for the end of the task
//	farcall mcp tasks --help                                   # starts, follows and cancels tasks
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type cake struct {
	Minutes int `json:"minutes" min:"0" max:"90" doc:"how long to bake"`
}

type baked struct {
	Cake string `json:"cake"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newServer().ListenAndServe(ctx, "localhost:8080"); err != nil {
		fmt.Fprintln(os.Stderr, "tasks:", err)
		os.Exit(1)
	}
}

func newServer() *mcp.Server {
	s := mcp.NewServer("bakery", "1.0.0", &mcp.ServerOptions{
		TaskAfter: time.Second,
		TaskTTL:   2 * time.Hour,
		MaxTasks:  100,
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "bake", Description: "Bake a cake",
		Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, bake)
	return s
}

// bake does not know whether it is a task: Progress sets the status of one, and is a notification
// otherwise. Its context ends when the task is cancelled.
func bake(ctx context.Context, in cake) (baked, error) {
	for minute := range in.Minutes {
		if err := mcp.Progress(ctx, float64(minute), float64(in.Minutes), "in the oven"); err != nil {
			return baked{}, err
		}
		select {
		case <-ctx.Done():
			return baked{}, ctx.Err()
		case <-time.After(time.Minute):
		}
	}
	return baked{fmt.Sprintf("a cake of %d minutes", in.Minutes)}, nil
}
