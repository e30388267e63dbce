package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// wireServer makes the server of an exchange. Each line of its section is
//
//	tools NAME …      of wireTools
//	resources         note:///readme, and notes by number
//	prompts           review
//	completion        of the prompt's argument
//	page N            items on a page
func wireServer(t *testing.T, section string) *mcp.Server {
	t.Helper()
	o := &mcp.ServerOptions{}
	lines := strings.Split(strings.TrimSpace(section), "\n")
	for _, line := range lines {
		if size, ok := strings.CutPrefix(line, "page "); ok {
			o.PageSize, _ = strconv.Atoi(size)
		}
	}
	if slices.Contains(lines, "completion") {
		o.Complete = func(
			_ context.Context, p *spec.CompleteRequestParams,
		) (*spec.CompleteResult, error) {
			var r spec.CompleteResult
			r.Completion.Values = []string{}
			for _, v := range []string{"go", "gleam", "rust"} {
				if strings.HasPrefix(v, p.Argument.Value) {
					r.Completion.Values = append(r.Completion.Values, v)
				}
			}
			return &r, nil
		}
	}
	s := mcp.NewServer("example", "1.0", o)
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "tools":
			for _, name := range words[1:] {
				if !wireTool(s, name) {
					t.Fatalf("there is no tool %q", name)
				}
			}
		case "resources":
			wireResources(s)
		case "prompts":
			wirePrompts(s)
		case "completion", "page":
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return s
}

type (
	wireNothing struct{}
	wireSum     struct {
		Sum int `json:"sum" doc:"the sum"`
	}
	wireAdd struct {
		A int `json:"a" doc:"the first number"`
		B int `json:"b" doc:"the second number"`
	}
	wireName struct {
		Name string `json:"name" doc:"your name" min:"1"`
	}
	wireRegion struct {
		Region string `json:"region" header:"Region"`
	}
)

// wireTool adds a tool by its name.
func wireTool(s *mcp.Server, name string) bool {
	text := func(
		description string, f func(ctx context.Context) (string, error), execution ...*spec.ToolExecution,
	) {
		tool := mcp.Tool{Name: name, Description: description}
		if len(execution) > 0 {
			tool.Execution = execution[0]
		}
		mcp.AddTool(s, tool, func(ctx context.Context, _ wireNothing) (string, error) { return f(ctx) })
	}
	switch name {
	case "add":
		mcp.AddTool(s, mcp.Tool{
			Name: name, Description: "Add two numbers", Title: "Addition",
			Annotations: &spec.ToolAnnotations{ReadOnlyHint: true},
		},
			func(_ context.Context, in wireAdd) (wireSum, error) {
				return wireSum{in.A + in.B}, nil
			})
	case "scores":
		mcp.AddTool(s, mcp.Tool{Name: name, Description: "The scores, a list"},
			func(context.Context, wireNothing) ([]int, error) {
				return []int{3, 1, 4}, nil
			})
	case "fail":
		text("Fail", func(context.Context) (string, error) { return "", errors.New("the disk is full") })
	case "media":
		mcp.AddTool(s, mcp.Tool{Name: name, Description: "Content of every kind"},
			func(context.Context, wireNothing) ([]mcp.Content, error) {
				return []mcp.Content{
					mcp.Text("hello"), mcp.Image([]byte("png"), "image/png"),
					mcp.Audio([]byte("wav"), "audio/wav"),
					mcp.Link(mcp.Resource{URI: "note:///readme", Name: "readme"}),
					mcp.Embed(mcp.ResourceContents{URI: "note:///1", MIMEType: "text/plain", Text: "one"}),
				}, nil
			})
	case "region":
		mcp.AddTool(s, mcp.Tool{Name: name, Description: "Runs in a region"},
			func(_ context.Context, in wireRegion) (string, error) {
				return in.Region, nil
			})
	case "forever":
		text("Wait until cancelled", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	case "change":
		text("Change what the server has", func(context.Context) (string, error) {
			wireTool(s, "fail")
			s.ResourceUpdated("note:///readme")
			return "changed", nil
		})
	case "work":
		text("Work for two seconds", func(ctx context.Context) (string, error) {
			select {
			case <-time.After(2 * time.Second):
				return "worked", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, &spec.ToolExecution{TaskSupport: spec.TaskOptional})
	case "poll":
		text("Close the stream, and go on for a second", func(ctx context.Context) (string, error) {
			_ = mcp.Progress(ctx, 1, 2, "begun")
			mcphttp.CloseStream(ctx)
			<-time.After(time.Second)
			return "done", mcp.Progress(ctx, 2, 2, "almost")
		})
	case "count":
		text("Count to three", func(ctx context.Context) (string, error) {
			for i := range 3 {
				err := errors.Join(mcp.Progress(ctx, float64(i+1), 3, "counting"),
					mcp.Log(ctx, "info", "counter", i+1), mcp.Log(ctx, "debug", "", "detail"))
				if err != nil {
					return "", err
				}
			}
			return "counted", nil
		})
	default:
		return wireAsker(text, name)
	}
	return true
}

// wireAsker adds a tool that asks the client.
func wireAsker(
	text func(string, func(context.Context) (string, error), ...*spec.ToolExecution), name string,
) bool {
	switch name {
	case "greet":
		text("Greet the user by name", func(ctx context.Context) (string, error) {
			who, err := mcp.Elicit[wireName](ctx, "Who are you?")
			if errors.Is(err, mcp.ErrDeclined) {
				return "Hello, stranger", nil
			}
			return "Hello, " + who.Name, err
		}, &spec.ToolExecution{TaskSupport: spec.TaskOptional})
	case "visit":
		text("Sign in on a page", func(ctx context.Context) (string, error) {
			return "signed in", mcp.ElicitURL(ctx, "Sign in", "https://example.com/login")
		})
	case "capital":
		text("Ask the model", func(ctx context.Context) (string, error) {
			m, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
				Messages: []spec.SamplingMessage{
					{Role: "user", Content: []mcp.Content{mcp.Text("The capital of France?")}},
				}, MaxTokens: 10,
			})
			if err != nil {
				return "", err
			}
			return m.Content[0].Text, nil
		})
	case "where":
		text("List the roots", func(ctx context.Context) (string, error) {
			roots, err := mcp.Roots(ctx)
			if err != nil {
				return "", err
			}
			return roots[0].URI, nil
		})
	case "both":
		text("Ask for two things at once", func(ctx context.Context) (string, error) {
			who, err := mcp.Elicit[wireName](ctx, "Who are you?")
			roots, err2 := mcp.Roots(ctx)
			if err := errors.Join(err, err2); err != nil {
				return "", err
			}
			return who.Name + " in " + roots[0].URI, nil
		})
	case "rounds":
		text("Ask, and ask again", func(ctx context.Context) (string, error) {
			first, err := mcp.Elicit[wireName](ctx, "First name?")
			if err != nil {
				return "", err
			}
			last, err := mcp.Elicit[wireName](ctx, "Last name, "+first.Name+"?")
			return first.Name + " " + last.Name, err
		})
	default:
		return false
	}
	return true
}

func wireResources(s *mcp.Server) {
	s.AddResource(mcp.Resource{
		URI: "note:///readme", Name: "readme", Title: "Read me",
		MIMEType: "text/plain",
	},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: "Welcome"}}, nil
		})
	s.AddTemplate(mcp.ResourceTemplate{
		URITemplate: "note:///{number}", Name: "note",
		MIMEType: "text/plain",
	},
		func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
			if _, err := strconv.Atoi(vars.Get("number")); err != nil {
				return nil, mcp.ErrNotFound
			}
			return []mcp.ResourceContents{{Text: "note " + vars.Get("number")}}, nil
		})
}

func wirePrompts(s *mcp.Server) {
	s.AddPrompt(mcp.Prompt{
		Name: "review", Title: "Code review",
		Arguments: []spec.PromptArgument{{Name: "language", Required: true}},
	},
		func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
			return &mcp.PromptResult{
				Messages: []mcp.PromptMessage{
					{Role: "user", Content: mcp.Text(fmt.Sprintf("Review this %s code", args["language"]))},
				},
			}, nil
		})
}
