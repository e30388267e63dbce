package mcp

import (
	"bytes"
	"fmt"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// checkHeaders compares the headers of an HTTP request with the arguments that they repeat.
func (c *call) checkHeaders(t *tool) error {
	if len(t.headers) == 0 || !c.rev.MirroredHeaders || c.mounted != nil { // the outer server has compared them
		return nil
	}
	return c.compareHeaders(t.spec.Name, t.headers)
}

// CheckHeaders is relay.CheckHeaders.
func (c *call) CheckHeaders(tool string, inputSchema jsonrpc.Raw) error {
	if !c.rev.MirroredHeaders || !bytes.Contains(inputSchema, []byte(schema.HeaderKeyword)) {
		return nil
	}
	headers, err := schema.Headers(inputSchema)
	if err != nil {
		return nil //nolint:nilerr // clients do not take such a tool, or they repeat nothing
	}
	return c.compareHeaders(tool, headers)
}

func (c *call) compareHeaders(tool string, headers []schema.Header) error {
	r := mcphttp.RequestFrom(c)
	if r == nil {
		return nil
	}
	given := c.in.arguments
	if c.sent != nil {
		given = scan.Member(*c.sent, "arguments")
	}
	if err := arguments.CheckHeaders(headers, r.Header, given); err != nil {
		return &jsonrpc.Error{
			Code:    spec.HeaderMismatch,
			Message: fmt.Sprintf("Header mismatch: %v; see the input schema of the tool %s in tools/list", err, tool),
		}
	}
	return nil
}
