// Command sampling is an MCP server with a tool that lets the client's model work in a loop: the
// model asks for tools of the server's, the server runs them and hands the results back, until the
// model has an answer.
//
//	go run ./examples/mcp/sampling
//	farcall mcp call localhost:8080 solve question='What is 2+3?' --sample 'It is 5'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// maxTurns bounds what one question may cost the client.
const maxTurns = 8

const addSchema = `{"type":"object","properties":{"numbers":{"type":"array",` +
	`"items":{"type":"number"}}},"required":["numbers"]}`

type question struct {
	Question string `json:"question"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newServer().ListenAndServe(ctx, "localhost:8080"); err != nil {
		fmt.Fprintln(os.Stderr, "sampling:", err)
		os.Exit(1)
	}
}

func newServer() *mcp.Server {
	s := mcp.NewServer("solver", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "solve", Description: "Answer a question with sums"}, solve)
	return s
}

// solve asks the model again with the results of the tools that it has used. Each Sample is a round
// of the call in 2026-07-28: the handler begins again then, and the answers that are there already
// are returned at once.
func solve(ctx context.Context, in question) (string, error) {
	var tools []mcp.Tool
	if can := mcp.ClientFrom(ctx).Capabilities.Sampling; can != nil && can.Tools != nil {
		tools = []mcp.Tool{{Name: "add", Description: "Add numbers", InputSchema: jsonrpc.Raw(addSchema)}}
	}
	messages := []spec.SamplingMessage{{Role: "user", Content: []mcp.Content{mcp.Text(in.Question)}}}
	for range maxTurns {
		said, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
			Messages:  messages,
			MaxTokens: 500,
			Tools:     tools,
		})
		if err != nil {
			return "", err
		}
		var results []mcp.Content
		for _, c := range said.Content {
			if c.Type == spec.TypeToolUse {
				results = append(results, run(c))
			}
		}
		if len(results) == 0 {
			return said.Content[0].Text, nil
		}
		messages = append(messages,
			spec.SamplingMessage{Role: "assistant", Content: said.Content},
			spec.SamplingMessage{Role: "user", Content: results})
	}
	return "", errors.New("the model did not come to an end")
}

// run runs a tool of the loop. What is wrong is for the model to read.
func run(c mcp.Content) mcp.Content {
	var in struct {
		Numbers []float64 `json:"numbers"`
	}
	var text string
	failed := false
	if err := json.Unmarshal(c.Input, &in); err != nil || c.Name != "add" {
		text, failed = "call the tool add with a list of numbers", true
	} else {
		sum := 0.0
		for _, n := range in.Numbers {
			sum += n
		}
		text = fmt.Sprint(sum)
	}
	return mcp.Content{
		Type: spec.TypeToolResult, ToolUseID: c.ID, IsError: failed,
		Content: []mcp.Content{mcp.Text(text)},
	}
}
