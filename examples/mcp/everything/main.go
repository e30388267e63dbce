// Command everything is an MCP server with one small thing of each kind that the protocol has:
//
//	go run ./examples/mcp/everything localhost:8080
//	farcall mcp discover localhost:8080
//	farcall mcp call localhost:8080 book --answer '{"seats":4}' --sample 'See you soon'
//	farcall mcp call localhost:8080 count to=3 --log info
//	farcall mcp read localhost:8080 greeting:///Ada
//	farcall mcp complete localhost:8080 prompt greet style=f
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A dot is a picture of one pixel.
const dot = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff," +
	"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"

type (
	square struct {
		Side float64 `json:"side" min:"0"`
	}
	area struct {
		Area float64 `json:"area"`
	}
	limit struct {
		To int `json:"to" min:"1" max:"100"`
	}
	greeting struct {
		Style string `json:"style" doc:"any, such as formal"`
		Words int    `json:"words,omitempty" doc:"how many at most"`
	}
	booking struct {
		Seats int    `json:"seats" doc:"how many of you" min:"1" max:"12"`
		Where string `json:"where" enum:"inside,outside" default:"inside"`
	}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := "localhost:8080"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	if err := newServer().ListenAndServe(ctx, addr); err != nil {
		fmt.Fprintln(os.Stderr, "everything:", err)
		os.Exit(1)
	}
}

func newServer() *mcp.Server {
	s := mcp.NewServer("everything", "1.0.0", &mcp.ServerOptions{
		Title:        "Everything",
		Instructions: "Each tool shows one thing.",
		WebsiteURL:   "https://example.com",
		Icons:        []spec.Icon{{Src: "https://example.com/icon.png", MIMEType: "image/png"}},
	})
	addTools(s)
	addQuestions(s)
	s.AddResource(mcp.Resource{URI: "text:///motto", Name: "motto", MIMEType: "text/plain"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: "One handler, every revision"}}, nil
		})
	s.AddTemplate(mcp.ResourceTemplate{
		URITemplate: "greeting:///{name}", Name: "greeting",
		MIMEType: "text/plain",
	},
		func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: "Hello, " + vars.Get("name") + "!"}}, nil
		})
	mcp.AddPrompt(s, mcp.Prompt{Name: "greet", Description: "Greet in some style"},
		func(_ context.Context, in greeting) (*mcp.PromptResult, error) {
			text := "Write a " + in.Style + " greeting"
			if in.Words > 0 {
				text += fmt.Sprintf(" of at most %d words", in.Words)
			}
			return &mcp.PromptResult{Messages: []mcp.PromptMessage{{Role: "user", Content: mcp.Text(text)}}},
				nil
		})
	s.CompletePrompt("greet", "style", completeStyle)
	return s
}

func addTools(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{
		Name: "area", Description: "Structured content: the area of a square",
		Annotations: &spec.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, in square) (area, error) { return area{in.Side * in.Side}, nil })

	mcp.AddTool(s, mcp.Tool{Name: "draw", Description: "Content of every kind"},
		func(context.Context, struct{}) ([]mcp.Content, error) {
			return []mcp.Content{
				mcp.Text("A dot:"),
				mcp.Image([]byte(dot), "image/gif"),
				mcp.Link(mcp.Resource{URI: "text:///motto", Name: "motto"}),
				mcp.Embed(mcp.ResourceContents{URI: "text:///note", Text: "It is black"}),
			}, nil
		})

	mcp.AddTool(s, mcp.Tool{
		Name: "count", Description: "Progress and log; may run as a task",
		Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, func(ctx context.Context, in limit) (string, error) {
		for n := 1; n <= in.To; n++ {
			err1 := mcp.Progress(ctx, float64(n), float64(in.To), "counting")
			err2 := mcp.Log(ctx, "info", "count", map[string]int{"n": n})
			if err := errors.Join(err1, err2, ctx.Err()); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("Counted to %d", in.To), nil
	})

	mcp.AddTool(s, mcp.Tool{Name: "fail", Description: "An error for the model to read"},
		func(context.Context, struct{}) (string, error) {
			return "", errors.New("this tool always fails; use another one")
		})
}

// addQuestions adds tools that ask the client.
func addQuestions(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{
		Name: "book", Description: "A form for the user, then a sentence of the model",
	},
		func(ctx context.Context, _ struct{}) (string, error) {
			b, err := mcp.Elicit[booking](ctx, "Which table?")
			if errors.Is(err, mcp.ErrDeclined) {
				return "No table was booked", nil
			}
			if err != nil {
				return "", err
			}
			table := fmt.Sprintf("a table for %d, %s", b.Seats, b.Where)
			said, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
				Messages: []spec.SamplingMessage{
					{Role: "user", Content: []mcp.Content{mcp.Text("Confirm " + table)}},
				},
				MaxTokens: 50,
			})
			if err != nil {
				return "", err
			}
			return table + ": " + said.Content[0].Text, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "sign_in", Description: "A page for the user"},
		func(ctx context.Context, _ struct{}) (string, error) {
			return "Signed in", mcp.ElicitURL(ctx, "Please sign in", "https://example.com/sign-in")
		})
	mcp.AddTool(s, mcp.Tool{Name: "where", Description: "The roots of the client"},
		func(ctx context.Context, _ struct{}) ([]mcp.Content, error) {
			roots, err := mcp.Roots(ctx)
			var content []mcp.Content
			for _, r := range roots {
				content = append(content, mcp.Text(r.URI))
			}
			return content, err
		})
}

func completeStyle(_ context.Context, value string, _ map[string]string) ([]string, error) {
	var matching []string
	for _, style := range []string{"formal", "friendly", "short"} {
		if strings.HasPrefix(style, value) {
			matching = append(matching, style)
		}
	}
	return matching, nil
}
