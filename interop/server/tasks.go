package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type (
	computeArgs struct {
		Seconds float64 `json:"seconds" doc:"how long" min:"0" max:"3600"`
		Label   string  `json:"label,omitempty" doc:"what to call it"`
	}
	deleteArgs struct {
		Filename string `json:"filename" doc:"what to delete"`
	}
	confirmForm struct {
		Confirm bool `json:"confirm"`
	}
)

// addTaskTools adds the tools that run in the background for clients that let
// them, and one that does not. They are tools as any other.
func addTaskTools(s *mcp.Server) {
	optional := &spec.ToolExecution{TaskSupport: spec.TaskOptional}
	required := &spec.ToolExecution{TaskSupport: spec.TaskRequired}

	mcp.AddTool(s, mcp.Tool{Name: "greet", Description: "Greets"},
		func(_ context.Context, in nameForm) (string, error) {
			return "Hello, " + in.Name + "!", nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "slow_compute", Description: "Takes its time", Execution: optional},
		func(ctx context.Context, in computeArgs) (string, error) {
			err := pause(ctx, time.Duration(in.Seconds*float64(time.Second)))
			return fmt.Sprintf("Computed %s for %v seconds", in.Label, in.Seconds), err
		})
	mcp.AddTool(s, mcp.Tool{
		Name: "failing_job", Description: "Fails after a second",
		Execution: required,
	}, func(ctx context.Context, _ none) (string, error) {
		return "", errors.Join(pause(ctx, time.Second), errors.New("this job always fails"))
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "protocol_error_job", Description: "Ends with an error of the protocol",
		Execution: optional,
	}, func(context.Context, none) (string, error) {
		return "", jsonrpc.Errorf(jsonrpc.InternalError, "this job ends with an error of the protocol")
	})

	mcp.AddTool(s, mcp.Tool{
		Name: "confirm_delete", Description: "Deletes nothing, but asks first",
		Execution: optional,
	}, func(ctx context.Context, in deleteArgs) (string, error) {
		form, err := mcp.Elicit[confirmForm](ctx, "Delete "+in.Filename+"?")
		if err == nil && form.Confirm {
			return "Deleted " + in.Filename, nil
		}
		return "Did not delete " + in.Filename, err
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "multi_input", Description: "Asks for two names at the same time",
		Execution: optional,
	}, func(ctx context.Context, _ none) (string, error) {
		var names [2]string
		var errs [2]error
		var asking sync.WaitGroup
		for i := range names {
			asking.Go(func() {
				var form nameForm
				form, errs[i] = mcp.Elicit[nameForm](relay.Named(ctx, fmt.Sprintf("name_%d", i+1)),
					fmt.Sprintf("What is name %d?", i+1))
				names[i] = form.Name
			})
		}
		asking.Wait()
		return fmt.Sprintf("The names are %q", names), errors.Join(errs[:]...)
	})

	// This one asks as any other tool does, and only then becomes a task.
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_tool_with_task",
		Description: "Asks for a name, then greets in the background", Execution: required,
	},
		func(ctx context.Context, _ none) (string, error) {
			name, err := askName(ctx)
			if err == nil {
				err = mcp.StartTask(ctx)
			}
			return "Hello, " + name + "!", err
		})
	s.TaskLater("test_tool_with_task")
}
