package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// userSays is a prompt in which the user says some things, one after another.
func userSays(content ...mcp.Content) *mcp.PromptResult {
	r := &mcp.PromptResult{}
	for _, c := range content {
		r.Messages = append(r.Messages, mcp.PromptMessage{Role: spec.RoleUser, Content: c})
	}
	return r
}

// says returns a text, whatever the arguments.
func says(text string) func(context.Context, map[string]string) (*mcp.PromptResult, error) {
	return func(context.Context, map[string]string) (*mcp.PromptResult, error) {
		return userSays(mcp.Text(text)), nil
	}
}

func addPrompts(s *mcp.Server) {
	s.AddPrompt(mcp.Prompt{Name: "test_simple_prompt", Description: "A prompt without arguments"},
		says("This is a simple prompt for testing."))
	s.AddPrompt(mcp.Prompt{
		Name: "test_prompt_with_arguments", Description: "A prompt with two arguments",
		Arguments: []spec.PromptArgument{
			{Name: "arg1", Description: "First test argument", Required: true},
			{Name: "arg2", Description: "Second test argument", Required: true},
		},
	}, func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
		return userSays(
			mcp.Text(
				fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", args["arg1"], args["arg2"]))), nil
	})
	s.AddPrompt(mcp.Prompt{
		Name: "test_prompt_with_embedded_resource", Description: "A prompt about a resource",
		Arguments: []spec.PromptArgument{
			{Name: "resourceUri", Description: "URI of the resource to embed", Required: true},
		},
	}, func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
		return userSays(
			mcp.Embed(mcp.ResourceContents{
				URI: args["resourceUri"], MIMEType: "text/plain",
				Text: "Embedded resource content for testing.",
			}),
			mcp.Text("Please process the embedded resource above."),
		), nil
	})
	s.AddPrompt(mcp.Prompt{Name: "test_prompt_with_image", Description: "A prompt about an image"},
		func(context.Context, map[string]string) (*mcp.PromptResult, error) {
			return userSays(mcp.Image(pixel, "image/png"), mcp.Text("Please analyze the image above.")), nil
		})
}

// complete suggests words that begin with what is there.
func complete(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
	values := slices.DeleteFunc([]string{"paris", "park", "parting", "test", "testing"},
		func(word string) bool {
			return !strings.HasPrefix(word, p.Argument.Value)
		})
	return &spec.CompleteResult{Completion: spec.Completion{Values: values}}, nil
}
