package playground

import (
	"context"
	"errors"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// form is what demo_form asks the user for: a field of each kind.
type form struct {
	Name    string   `json:"name" doc:"how to call you" min:"1" max:"60"`
	Email   string   `json:"email,omitzero" doc:"leave it empty if you like" format:"email"`
	Size    string   `json:"size" doc:"of the drink" enum:"small,medium,large" default:"medium"`
	Cups    int      `json:"cups" doc:"how many" min:"1" max:"9" default:"1"`
	Extras  []string `json:"extras,omitzero" doc:"what goes in" enum:"milk,sugar,cinnamon"`
	Outside bool     `json:"outside" doc:"sit outside" default:"false"`
}

// answered is what became of a question.
type answered struct {
	Action string `json:"action" doc:"what the user did" enum:"accept,decline,cancel"`
	Form   *form  `json:"form,omitzero" doc:"what was filled in"`
}

// addQuestions adds the tools that ask the client.
func addQuestions(s *mcp.Server) {
	mcp.AddTool(s, demo("demo_form", "Form",
		"Asks the user to fill in a form with a field of each kind, and gives back what was filled in. The client must support elicitation."),
		func(ctx context.Context, _ none) (answered, error) {
			f, err := mcp.Elicit[form](ctx, "A drink, perhaps? Nothing is really ordered.")
			if err != nil {
				return refusal(err)
			}
			return answered{spec.ElicitAccept, &f}, nil
		})
	mcp.AddTool(s, demo("demo_url", "URL",
		"Asks the user to visit a page in a browser, as one does to sign in, and tells whether the user agreed. The client must support elicitation of URLs."),
		func(ctx context.Context, _ none) (answered, error) {
			if err := mcp.ElicitURL(ctx, "Please have a look at farcall's home page.", website); err != nil {
				return refusal(err)
			}
			return answered{Action: spec.ElicitAccept}, nil
		})
	mcp.AddTool(s, demo("demo_sampling", "Sampling",
		"Asks the client's language model, and gives back what it says. The client must support sampling."),
		sample)
	mcp.AddTool(s, demo("demo_roots", "Roots",
		"Lists the places that the client lets servers work in. The client must support roots."),
		func(ctx context.Context, _ none) (found, error) {
			roots, err := mcp.Roots(ctx)
			return found{append([]mcp.Root{}, roots...)}, err
		})
}

func demo(name, title, description string) mcp.Tool {
	return mcp.Tool{Name: name, Title: title, Description: description, Annotations: readOnly()}
}

// refusal makes a result of it when the user would not answer.
func refusal(err error) (answered, error) {
	switch {
	case errors.Is(err, mcp.ErrDeclined):
		return answered{Action: spec.ElicitDecline}, nil
	case errors.Is(err, mcp.ErrCancelled):
		return answered{Action: spec.ElicitCancel}, nil
	}
	return answered{}, err
}

type question struct {
	Question  string `json:"question" doc:"what to ask the model" default:"What is a remote procedure call? Answer in one sentence." max:"4000"`
	MaxTokens int64  `json:"max_tokens" doc:"how long the answer may be" min:"1" max:"4096" default:"200"`
}

func sample(ctx context.Context, q question) ([]mcp.Content, error) {
	answer, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
		Messages:     []spec.SamplingMessage{{Role: "user", Content: []mcp.Content{mcp.Text(q.Question)}}},
		SystemPrompt: "Answer briefly.",
		MaxTokens:    q.MaxTokens,
	})
	if err != nil {
		return nil, err
	}
	return answer.Content, nil
}

type found struct {
	Roots []mcp.Root `json:"roots"`
}
