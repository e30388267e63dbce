package main

import (
	"context"
	"encoding/json"
	"net/http"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// addends and sum are the types of the tool that everybody serves.
type (
	addends struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}
	sum struct {
		Sum float64 `json:"sum"`
	}
)

// sumSchema is the schema of its result. It says more than the type does, so
// that whoever validates has to look.
const sumSchema = `{"type":"object","properties":{"sum":{"type":"number","minimum":-1e9,"maximum":1e9}},` +
	`"required":["sum"],"additionalProperties":false}`

// The revisions in which tools are called: with a session and without.
const (
	legacyRevision = "2025-06-18"
	modernRevision = "2026-07-28"
)

// callID is the id in the requests below. Those that are sent over a
// connection get others of the same length in its place.
const (
	callID     = "1000000000"
	callHead   = `{"jsonrpc":"2.0","id":` + callID + `,"method":"tools/call","params":{`
	callTail   = `"name":"add","arguments":{"a":1,"b":2}}}`
	legacyCall = callHead + callTail
	modernCall = callHead + `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernRevision + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},` + callTail
	callResult = `"sum":3`

	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacyRevision + `",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// modernHeaders are what a modern call has besides its body.
var modernHeaders = map[string]string{
	"MCP-Protocol-Version": modernRevision, "Mcp-Method": "tools/call", "Mcp-Name": "add",
}

func farcallMCP() *mcp.Server {
	s := mcp.NewServer("bench", "1", nil)
	mcp.AddTool(s, "add", "Add two numbers", func(_ context.Context, in addends) (sum, error) {
		return sum{in.A + in.B}, nil
	}, mcp.Tool{OutputSchema: []byte(sumSchema)})
	return s
}

func farcallMCPHandler() http.Handler { return mcphttp.NewHandler(farcallMCP(), nil) }

// mcpGo validates what its options say, which by default is nothing.
func mcpGo(opts ...mcpgoserver.ServerOption) *mcpgoserver.MCPServer {
	s := mcpgoserver.NewMCPServer("bench", "1", opts...)
	s.AddTool(
		mcpgo.NewTool("add", mcpgo.WithDescription("Add two numbers"),
			mcpgo.WithInputSchema[addends](), mcpgo.WithRawOutputSchema(json.RawMessage(sumSchema))),
		mcpgo.NewStructuredToolHandler(func(_ context.Context, _ mcpgo.CallToolRequest, in addends) (sum, error) {
			return sum{in.A + in.B}, nil
		}))
	return s
}

func mcpGoValidating() *mcpgoserver.MCPServer {
	return mcpGo(mcpgoserver.WithInputSchemaValidation(), mcpgoserver.WithOutputSchemaValidation())
}

func mcpGoHandler(s *mcpgoserver.MCPServer) http.Handler {
	return mcpgoserver.NewStreamableHTTPServer(s)
}

func goSDK() *gosdk.Server {
	s := gosdk.NewServer(&gosdk.Implementation{Name: "bench", Version: "1"}, nil)
	tool := &gosdk.Tool{Name: "add", Description: "Add two numbers", OutputSchema: json.RawMessage(sumSchema)}
	gosdk.AddTool(s, tool, func(_ context.Context, _ *gosdk.CallToolRequest, in addends) (*gosdk.CallToolResult, sum, error) {
		return nil, sum{in.A + in.B}, nil
	})
	return s
}

// goSDKHandler answers with JSON, which is faster than its default, an event
// stream for each answer.
func goSDKHandler(stateless bool) http.Handler {
	s := goSDK()
	return gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return s },
		&gosdk.StreamableHTTPOptions{Stateless: stateless, JSONResponse: true})
}

// mcpHandlers are the servers that a child process can be over HTTP.
var mcpHandlers = map[string]func() http.Handler{
	"net/http echo":     func() http.Handler { return http.HandlerFunc(echoHTTP) },
	"farcall":           farcallMCPHandler,
	"mcp-go":            func() http.Handler { return mcpGoHandler(mcpGo()) },
	"go-sdk":            func() http.Handler { return goSDKHandler(true) },
	"go-sdk, a session": func() http.Handler { return goSDKHandler(false) },
}

// mcpStdio are the servers that it can be on its standard input and output.
var mcpStdio = map[string]func(context.Context) error{
	"farcall": func(ctx context.Context) error { return farcallMCP().ServeStdio(ctx) },
	"mcp-go":  func(context.Context) error { return mcpgoserver.ServeStdio(mcpGo()) },
	"go-sdk":  func(ctx context.Context) error { return goSDK().Run(ctx, &gosdk.StdioTransport{}) },
}
