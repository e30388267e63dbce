package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/relay"
)

// The forms of the tools below.
type (
	nameForm struct {
		Name string `json:"name"`
	}
	colorForm struct {
		Color string `json:"color"`
	}
	okForm struct {
		OK bool `json:"ok"`
	}
	contextForm struct {
		Context string `json:"context"`
	}
)

// askName asks for a name, as what the suite calls user_name.
func askName(ctx context.Context) (string, error) {
	form, err := mcp.Elicit[nameForm](relay.Named(ctx, "user_name"), "What is your name?")
	return form.Name, err
}

// addQuestionTools adds the tools that ask before they answer. In the modern
// revision each question ends the call with a result of type input_required, and
// the client calls again with the answer; the handlers need not know.
func addQuestionTools(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_input_required_result_elicitation",
		Description: "Asks for a name",
	}, func(ctx context.Context, _ none) (string, error) {
		name, err := askName(ctx)
		return "Hello, " + name + "!", err
	})
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_input_required_result_sampling",
		Description: "Asks the client's model",
	}, func(ctx context.Context, _ none) (string, error) {
		return sample(relay.Named(ctx, "capital_question"), "What is the capital of France?")
	})
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_input_required_result_list_roots",
		Description: "Asks for the roots",
	}, func(ctx context.Context, _ none) (string, error) {
		roots, err := mcp.Roots(relay.Named(ctx, "client_roots"))
		return fmt.Sprintf("The roots are %v", uris(roots)), err
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "test_input_required_result_request_state", Description: "Asks, and keeps state meanwhile",
	}, func(ctx context.Context, _ none) (string, error) {
		form, err := mcp.Elicit[okForm](relay.Named(ctx, "confirm"), "Please confirm")
		return fmt.Sprintf("state-ok, confirmed: %t", form.OK), err
	})
	mcp.AddTool(s, mcp.Tool{
		Name:        "test_input_required_result_tampered_state",
		Description: "Asks, and finds out when its state was changed",
	},
		func(ctx context.Context, _ none) (string, error) {
			form, err := mcp.Elicit[okForm](relay.Named(ctx, "confirm"), "Please confirm")
			return fmt.Sprintf("Confirmed: %t", form.OK), err
		})
	mcp.AddTool(s, mcp.Tool{
		Name: "test_input_required_result_multiple_inputs", Description: "Asks for three things at once",
	}, func(ctx context.Context, _ none) (string, error) {
		// All three are asked at the same time, so it is one round.
		var name, greeting string
		var roots []mcp.Root
		var errs [3]error
		var asking sync.WaitGroup
		asking.Go(func() { name, errs[0] = askName(ctx) })
		asking.Go(func() {
			greeting, errs[1] = sample(relay.Named(ctx, "greeting"), "Generate a greeting")
		})
		asking.Go(func() { roots, errs[2] = mcp.Roots(relay.Named(ctx, "client_roots")) })
		asking.Wait()
		return fmt.Sprintf("%s: %s %v", name, greeting, uris(roots)), errors.Join(errs[:]...)
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "test_input_required_result_multi_round", Description: "Asks for one thing after another",
	}, func(ctx context.Context, _ none) (string, error) {
		name, err := askName(ctx)
		if err != nil {
			return "", err
		}
		form, err := mcp.Elicit[colorForm](relay.Named(ctx, "favorite_color"),
			"What is your favorite color, "+name+"?")
		return name + " likes " + form.Color, err
	})
	mcp.AddTool(s, mcp.Tool{
		Name: "test_input_required_result_capabilities", Description: "Asks what the client can answer",
	}, func(ctx context.Context, _ none) (string, error) {
		if mcp.ClientFrom(ctx).Capabilities.Elicitation != nil {
			return askName(ctx)
		}
		return sample(ctx, "Make up a name")
	})

	s.AddPrompt(mcp.Prompt{
		Name: "test_input_required_result_prompt", Description: "Asks for its context",
	}, func(ctx context.Context, _ map[string]string) (*mcp.PromptResult, error) {
		form, err := mcp.Elicit[contextForm](relay.Named(ctx, "user_context"),
			"What context should the prompt use?")
		if err != nil {
			return nil, err
		}
		return userSays(mcp.Text("The context is: " + form.Context)), nil
	})
}

func uris(roots []mcp.Root) (all []string) {
	for _, root := range roots {
		all = append(all, root.URI)
	}
	return all
}
