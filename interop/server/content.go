package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

var (
	//go:embed assets/pixel.png
	pixel []byte
	//go:embed assets/silence.wav
	silence []byte
	//go:embed assets/schema.json
	richSchema []byte
)

// regionArgs has an argument that clients repeat in the header Mcp-Param-Region,
// for routers to see. The server checks the two against each other.
type regionArgs struct {
	Region string `json:"region" doc:"where to run" header:"Region"`
}

// addContentTools adds the tools that answer at once: every kind of content, an
// error, and input schemas with more in them than types.
func addContentTools(s *mcp.Server) {
	answers := func(name, description string, content ...mcp.Content) {
		mcp.AddTool(s, mcp.Tool{Name: name, Description: description},
			func(context.Context, none) ([]mcp.Content, error) {
				return content, nil
			})
	}
	answers("test_simple_text", "Returns a text",
		mcp.Text("This is a simple text response for testing."))
	answers("test_image_content", "Returns an image", mcp.Image(pixel, "image/png"))
	answers("test_audio_content", "Returns a sound", mcp.Audio(silence, "audio/wav"))
	answers("test_embedded_resource", "Returns a resource", mcp.Embed(mcp.ResourceContents{
		URI: "test://embedded-resource", MIMEType: "text/plain",
		Text: "This is an embedded resource content.",
	}))
	answers("test_multiple_content_types", "Returns a text, an image and a resource",
		mcp.Text("Multiple content types test:"),
		mcp.Image(pixel, "image/png"),
		mcp.Embed(mcp.ResourceContents{
			URI: "test://mixed-content-resource", MIMEType: "application/json",
			Text: `{"test":"data","value":123}`,
		}))

	mcp.AddTool(s, mcp.Tool{Name: "test_error_handling", Description: "Always fails"},
		func(context.Context, none) (string, error) {
			return "", errors.New("This tool intentionally returns an error for testing") //nolint:staticcheck // the suite's words
		})

	mcp.AddTool(s, mcp.Tool{
		Name: "test_x_mcp_header", Description: "Takes an argument that is repeated in a header",
	}, func(_ context.Context, in regionArgs) (string, error) {
		return "Running in " + in.Region, nil
	})

	s.AddTool(mcp.Tool{
		Name:        "json_schema_2020_12_tool",
		Description: "Tool with JSON Schema 2020-12 features",
		InputSchema: richSchema,
	}, func(_ context.Context, arguments jsonrpc.Raw) (*mcp.ToolResult, error) {
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(string(arguments))}}, nil
	})
}
