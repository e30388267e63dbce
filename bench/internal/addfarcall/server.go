// Package addfarcall serves the tool with farcall.
package addfarcall

import (
	"context"

	"github.com/farcall-dev/farcall/bench/internal/add"
	"github.com/farcall-dev/farcall/mcp"
)

// NewServer returns a server that has the tool.
func NewServer() *mcp.Server {
	s := mcp.NewServer("bench", "1", nil)
	mcp.AddTool(s, mcp.Tool{
		Name: "add", Description: "Add two numbers",
		OutputSchema: []byte(add.SumSchema),
	}, func(_ context.Context, in add.Addends) (add.Sum, error) {
		return add.Sum{Sum: in.A + in.B}, nil
	})
	return s
}
