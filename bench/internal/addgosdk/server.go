// Package addgosdk serves the tool with go-sdk.
package addgosdk

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farcall-dev/farcall/bench/internal/add"
)

// NewServer returns a server that has the tool.
func NewServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	tool := &mcp.Tool{
		Name: "add", Description: "Add two numbers",
		OutputSchema: json.RawMessage(add.SumSchema),
	}
	mcp.AddTool(s, tool, func(
		_ context.Context, _ *mcp.CallToolRequest, in add.Addends,
	) (*mcp.CallToolResult, add.Sum, error) {
		return nil, add.Sum{Sum: in.A + in.B}, nil
	})
	return s
}
