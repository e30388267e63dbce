package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// step is how long the tools below take between two messages.
const step = 50 * time.Millisecond

// The arguments of the tools below, and the forms that they ask the user with.
type (
	promptArgs struct {
		Prompt string `json:"prompt" doc:"what to ask"`
	}
	messageArgs struct {
		Message string `json:"message" doc:"what to say to the user"`
	}
	userForm struct {
		Username string `json:"username" doc:"User's response"`
		Email    string `json:"email" doc:"User's email address"`
	}
	defaultsForm struct {
		Name     string  `json:"name" default:"John Doe"`
		Age      int     `json:"age" default:"30"`
		Score    float64 `json:"score" default:"95.5"`
		Status   string  `json:"status" enum:"active,inactive,pending" default:"active"`
		Verified bool    `json:"verified" default:"true"`
	}
)

// addConversationTools adds the tools that talk to the client while they run.
func addConversationTools(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{Name: "test_tool_with_logging", Description: "Logs what it does"},
		func(ctx context.Context, _ none) (string, error) {
			for _, line := range []string{
				"Tool execution started", "Tool processing data",
				"Tool execution completed",
			} {
				if err := errors.Join(mcp.Log(ctx, spec.LogInfo, "", line), pause(ctx, step)); err != nil {
					return "", err
				}
			}
			return "Tool with logging executed successfully", nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "test_logging_tool", Description: "Logs a line"},
		func(ctx context.Context, _ none) (string, error) {
			return "Logged, if anybody wants to know", mcp.Log(ctx, spec.LogInfo, "", "This tool logs")
		})
	mcp.AddTool(s, mcp.Tool{Name: "test_tool_with_progress", Description: "Reports its progress"},
		func(ctx context.Context, _ none) (string, error) {
			for _, done := range []float64{0, 50, 100} {
				if err := errors.Join(mcp.Progress(ctx, done, 100, ""), pause(ctx, step)); err != nil {
					return "", err
				}
			}
			return "Tool with progress executed successfully", nil
		})
	mcp.AddTool(s, mcp.Tool{
		Name: "test_reconnection", Description: "Lets the connection go before it answers",
	}, func(ctx context.Context, _ none) (string, error) {
		mcphttp.CloseStream(ctx) // the client comes back for the answer
		return "Reconnection test completed successfully", pause(ctx, 2*step)
	})

	mcp.AddTool(s, mcp.Tool{
		Name:        "test_trigger_tool_change",
		Description: "Adds a tool and removes it",
	}, func(context.Context, none) (string, error) {
		mcp.AddTool(s, mcp.Tool{Name: "test_dynamic_tool", Description: "Is there for a moment"},
			func(context.Context, none) (string, error) {
				return "", nil
			})
		s.RemoveTool("test_dynamic_tool")
		return "The tools have changed", nil
	})
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_trigger_prompt_change",
		Description: "Adds a prompt and removes it",
	}, func(context.Context, none) (string, error) {
		s.AddPrompt(mcp.Prompt{Name: "test_dynamic_prompt", Description: "Is there for a moment"},
			says("Hello"))
		s.RemovePrompt("test_dynamic_prompt")
		return "The prompts have changed", nil
	})

	mcp.AddTool(s, mcp.Tool{Name: "test_sampling", Description: "Asks the client's model"},
		func(ctx context.Context, in promptArgs) (string, error) {
			answer, err := sample(ctx, in.Prompt)
			return "LLM response: " + answer, err
		})
	mcp.AddTool(s, mcp.Tool{
		Name: "test_missing_capability", Description: "Cannot do without the client's model",
	}, func(ctx context.Context, _ none) (string, error) {
		return sample(ctx, "Say something")
	})
	addElicitationTools(s)
}

// sample asks the client's model and returns the text that it answers.
func sample(ctx context.Context, prompt string) (string, error) {
	answer, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
		Messages: []spec.SamplingMessage{
			{Role: spec.RoleUser, Content: []mcp.Content{mcp.Text(prompt)}},
		},
		MaxTokens: 100,
	})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, block := range answer.Content {
		text.WriteString(block.Text)
	}
	return text.String(), nil
}

// enumForm has the lists of options in all the ways that there are, also the
// one of old, which struct tags do not have.
//
//go:embed assets/enums.json
var enumForm []byte

func addElicitationTools(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{Name: "test_elicitation", Description: "Asks the user"},
		func(ctx context.Context, in messageArgs) (string, error) {
			form, err := mcp.Elicit[userForm](ctx, in.Message)
			return outcome("User response", form, err)
		})
	mcp.AddTool(s, mcp.Tool{Name: "test_streaming_elicitation", Description: "Asks the user"},
		func(ctx context.Context, _ none) (string, error) {
			form, err := mcp.Elicit[nameForm](ctx, "What is your name?")
			return outcome("User response", form, err)
		})
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_elicitation_sep1034_defaults",
		Description: "Asks the user, with defaults",
	}, func(ctx context.Context, _ none) (string, error) {
		form, err := mcp.Elicit[defaultsForm](ctx, "Please look at these values")
		return outcome("Elicitation completed", form, err)
	})
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_elicitation_sep1330_enums",
		Description: "Asks the user to select",
	}, func(ctx context.Context, _ none) (string, error) {
		var answer spec.ElicitResult
		err := mcp.Ask(ctx, spec.MethodElicitationCreate, &spec.ElicitRequestParams{
			Mode: spec.ElicitForm, Message: "Please select", RequestedSchema: enumForm,
		}, &answer)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("Elicitation completed: action=%s, content=%s", answer.Action, answer.Content),
			nil
	})
}

// outcome says what a user did with a form.
func outcome(what string, form any, err error) (string, error) {
	switch {
	case errors.Is(err, mcp.ErrDeclined):
		return what + ": action=" + spec.ElicitDecline, nil
	case errors.Is(err, mcp.ErrCancelled):
		return what + ": action=" + spec.ElicitCancel, nil
	case err != nil:
		return "", err
	}
	content, err := json.Marshal(form)
	return fmt.Sprintf("%s: action=%s, content=%s", what, spec.ElicitAccept, content), err
}
