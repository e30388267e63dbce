package playground

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// addDemos adds the tools that show what a call can do in addition to answering.
func addDemos(s *mcp.Server) {
	mcp.AddTool(s, demo("demo_progress", "Progress",
		"Takes some steps and reports its progress after each of them, when the client asks for that."),
		steps)
	mcp.AddTool(s, demo("demo_log", "Logging",
		"Sends the client one log message of each level. The client's log level says which of "+
			"them arrive."),
		func(ctx context.Context, _ none) (string, error) {
			for _, level := range spec.LogLevels() {
				if err := mcp.Log(ctx, level, "playground",
					map[string]string{"message": "This is what " + level + " looks like."}); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("Sent %d messages, as far as they were wanted.", len(spec.LogLevels())), nil
		})
	task := demo("demo_task", "Task",
		"Works for a while, as a task when the client supports tasks: it gets a handle at once and "+
			"asks for the result later.")
	task.Execution = &spec.ToolExecution{TaskSupport: spec.TaskOptional}
	mcp.AddTool(s, task, work)
	required := demo("demo_task_required", "Task only",
		"The same as demo_task, for clients that support tasks only.")
	required.Execution = &spec.ToolExecution{TaskSupport: spec.TaskRequired}
	mcp.AddTool(s, required, work)
	mcp.AddTool(s, demo("demo_content", "Content",
		"Gives back content of one type, or of every type: text, Markdown, JSON, an image, audio, a "+
			"PDF, a link to a resource and an embedded resource."),
		content)
}

type stepsParams struct {
	Steps int `json:"steps" doc:"how many" min:"1" max:"100" default:"5"`
	MS    int `json:"ms" doc:"milliseconds that each step takes" min:"0" max:"10000" default:"200"`
}

func steps(ctx context.Context, p stepsParams) (string, error) {
	for i := range p.Steps {
		if err := wait(ctx, p.MS); err != nil {
			return "", err
		}
		if err := mcp.Progress(ctx, float64(i+1), float64(p.Steps),
			fmt.Sprintf("Step %d of %d", i+1, p.Steps)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("Took %d steps.", p.Steps), nil
}

type workParams struct {
	MS   int  `json:"ms" doc:"milliseconds that it takes" min:"0" max:"600000" default:"1000"`
	Fail bool `json:"fail" doc:"fail in the end" default:"false"`
}

func work(ctx context.Context, p workParams) (string, error) {
	if err := wait(ctx, p.MS); err != nil {
		return "", err
	}
	if p.Fail {
		return "", errors.New("failed as asked")
	}
	return fmt.Sprintf("Worked for %d ms.", p.MS), nil
}

func wait(ctx context.Context, ms int) error {
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type contentParams struct {
	Type string `json:"type" doc:"which one" enum:"all,text,markdown,json,image,audio,pdf,link,embedded" default:"all"`
}

func content(_ context.Context, p contentParams) ([]mcp.Content, error) {
	var all []mcp.Content
	for _, one := range []struct {
		name string
		make func() (mcp.Content, error)
	}{
		{"text", func() (mcp.Content, error) { return mcp.Text("Plain text, with an umlaut: ü."), nil }},
		{"markdown", func() (mcp.Content, error) {
			return embed("content.md",
				mcp.ResourceContents{
					MIMEType: "text/markdown", Text: "# Markdown\n\nWith a [link](" + website + ") and `code`.\n",
				}), nil
		}},
		{"json", func() (mcp.Content, error) {
			return embed("content.json",
					mcp.ResourceContents{MIMEType: "application/json", Text: `{"pi":3.14159,"primes":[2,3,5,7]}`}),
				nil
		}},
		{"image", func() (mcp.Content, error) {
			data, err := picture()
			return mcp.Image(data, "image/png"), err
		}},
		{"audio", func() (mcp.Content, error) { return mcp.Audio(tone(), "audio/wav"), nil }},
		{"pdf", func() (mcp.Content, error) {
			return embed("content.pdf",
				mcp.ResourceContents{
					MIMEType: "application/pdf",
					Blob:     document("One page, made by farcall."),
				}), nil
		}},
		{"link", func() (mcp.Content, error) { return mcp.Link(guide()), nil }},
		{"embedded", func() (mcp.Content, error) {
			return mcp.Embed(
				mcp.ResourceContents{URI: guideURI, MIMEType: "text/markdown", Text: guideText}), nil
		}},
	} {
		if p.Type != "all" && p.Type != one.name {
			continue
		}
		c, err := one.make()
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func embed(name string, c mcp.ResourceContents) mcp.Content {
	c.URI = "playground://content/" + name
	return mcp.Embed(c)
}

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
		"Asks the user to fill in a form with a field of each kind, and gives back what was filled in. "+
			"The client must support elicitation."),
		func(ctx context.Context, _ none) (answered, error) {
			f, err := mcp.Elicit[form](ctx, "A drink, perhaps? Nothing is really ordered.")
			if err != nil {
				return refusal(err)
			}
			return answered{spec.ElicitAccept, &f}, nil
		})
	mcp.AddTool(s, demo("demo_url", "URL",
		"Asks the user to visit a page in a browser, as one does to sign in, and tells whether the "+
			"user agreed. The client must support elicitation of URLs."),
		func(ctx context.Context, _ none) (answered, error) {
			if err := mcp.ElicitURL(ctx, "Please have a look at farcall's home page.", website); err != nil {
				return refusal(err)
			}
			return answered{Action: spec.ElicitAccept}, nil
		})
	mcp.AddTool(s, demo("demo_sampling", "Sampling",
		"Asks the client's language model, and gives back what it says. The client must "+
			"support sampling."),
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
		Messages: []spec.SamplingMessage{
			{Role: "user", Content: []mcp.Content{mcp.Text(q.Question)}},
		},
		SystemPrompt: "Answer briefly.", MaxTokens: q.MaxTokens,
	})
	if err != nil {
		return nil, err
	}
	return answer.Content, nil
}

type found struct {
	Roots []mcp.Root `json:"roots"`
}
