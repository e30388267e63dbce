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
		"Sends the client one log message of each level. The client's log level says which of them arrive."),
		func(ctx context.Context, _ none) (string, error) {
			for _, level := range spec.LogLevels() {
				if err := mcp.Log(ctx, level, "playground", map[string]string{"message": "This is what " + level + " looks like."}); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("Sent %d messages, as far as they were wanted.", len(spec.LogLevels())), nil
		})
	task := demo("demo_task", "Task", "Works for a while, as a task when the client supports tasks: it gets a handle at once and asks for the result later.")
	task.Execution = &spec.ToolExecution{TaskSupport: spec.TaskOptional}
	mcp.AddTool(s, task, work)
	required := demo("demo_task_required", "Task only", "The same as demo_task, for clients that support tasks only.")
	required.Execution = &spec.ToolExecution{TaskSupport: spec.TaskRequired}
	mcp.AddTool(s, required, work)
	mcp.AddTool(s, demo("demo_content", "Content",
		"Gives back content of one type, or of every type: text, Markdown, JSON, an image, audio, a PDF, a link to a resource and an embedded resource."),
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
		if err := mcp.Progress(ctx, float64(i+1), float64(p.Steps), fmt.Sprintf("Step %d of %d", i+1, p.Steps)); err != nil {
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
			return embed("content.md", mcp.ResourceContents{MIMEType: "text/markdown", Text: "# Markdown\n\nWith a [link](" + website + ") and `code`.\n"}), nil
		}},
		{"json", func() (mcp.Content, error) {
			return embed("content.json", mcp.ResourceContents{MIMEType: "application/json", Text: `{"pi":3.14159,"primes":[2,3,5,7]}`}), nil
		}},
		{"image", func() (mcp.Content, error) {
			data, err := picture()
			return mcp.Image(data, "image/png"), err
		}},
		{"audio", func() (mcp.Content, error) { return mcp.Audio(tone(), "audio/wav"), nil }},
		{"pdf", func() (mcp.Content, error) {
			return embed("content.pdf", mcp.ResourceContents{MIMEType: "application/pdf", Blob: document("One page, made by farcall.")}), nil
		}},
		{"link", func() (mcp.Content, error) { return mcp.Link(guide()), nil }},
		{"embedded", func() (mcp.Content, error) {
			return mcp.Embed(mcp.ResourceContents{URI: guideURI, MIMEType: "text/markdown", Text: guideText}), nil
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
