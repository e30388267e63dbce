package mcp_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The fields of the struct are the arguments of the prompt, and its enum completes.
func ExampleAddPrompt() {
	type args struct {
		Service string         `json:"service" doc:"what to report on" enum:"api,web,worker"`
		Last    *time.Duration `json:"last" doc:"how far to look back, such as 24h"`
		Lines   uint8          `json:"lines" default:"10"`
	}
	s := mcp.NewServer("reports", "1.0.0", nil)
	mcp.AddPrompt(s, mcp.Prompt{Name: "report", Description: "Report what went wrong"},
		func(_ context.Context, in args) (*mcp.PromptResult, error) {
			text := fmt.Sprintf("Sum up the errors of %s in %d lines", in.Service, in.Lines)
			if in.Last != nil {
				text += fmt.Sprintf(", those of the last %.0f hours", in.Last.Hours())
			}
			return &mcp.PromptResult{Messages: []mcp.PromptMessage{{Role: "user", Content: mcp.Text(text)}}},
				nil
		})

	client, hangUp := connect(s, nil)
	defer hangUp()
	ctx := context.Background()
	r, err := client.Prompt(ctx, "report", map[string]string{"service": "api", "last": "48h"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Messages[0].Content.Text)
	_, err = client.Prompt(ctx, "report", map[string]string{"service": "api", "lines": "few"})
	fmt.Println(err)
	completed, err := client.Complete(ctx, &spec.CompleteRequestParams{
		Ref:      spec.CompleteReference{Type: spec.RefPrompt, Name: "report"},
		Argument: spec.CompleteArgument{Name: "service", Value: "w"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(completed.Completion.Values)
	// Output:
	// Sum up the errors of api in 10 lines, those of the last 48 hours
	// Invalid params: the argument "lines" is "few"; it must be an integer from 0 to 255 (code -32602)
	// [web worker]
}
