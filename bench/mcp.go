package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/valyala/fasthttp"

	"github.com/farcall-dev/farcall/bench/internal/add"
	"github.com/farcall-dev/farcall/bench/internal/addfarcall"
	"github.com/farcall-dev/farcall/bench/internal/addgosdk"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/rpc"
)

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
	modernCall = callHead + `"_meta":{"io.modelcontextprotocol/protocolVersion":"` +
		modernRevision + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}},` + callTail
	callResult = `"sum":3`
	textResult = `\"sum\":3` // where there is no structured output

	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
		legacyRevision + `",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func isCallResult(answer []byte) bool {
	return bytes.Contains(answer, []byte(callResult)) || bytes.Contains(answer, []byte(textResult))
}

// modernHeaders are what a modern call has in addition to its body.
var modernHeaders = map[string]string{
	"MCP-Protocol-Version": modernRevision, "Mcp-Method": "tools/call", "Mcp-Name": "add",
}

func farcallMCPHandler() http.Handler { return mcphttp.NewHandler(addfarcall.NewServer(), nil) }

// mcpGo validates what its options say, which by default is nothing.
func mcpGo(opts ...mcpgoserver.ServerOption) *mcpgoserver.MCPServer {
	s := mcpgoserver.NewMCPServer("bench", "1", opts...)
	s.AddTool(
		mcpgo.NewTool("add", mcpgo.WithDescription("Add two numbers"),
			mcpgo.WithInputSchema[add.Addends](), mcpgo.WithRawOutputSchema(json.RawMessage(add.SumSchema))),
		mcpgo.NewStructuredToolHandler(func(
			_ context.Context, _ mcpgo.CallToolRequest, in add.Addends,
		) (add.Sum, error) {
			return add.Sum{Sum: in.A + in.B}, nil
		}))
	return s
}

func mcpGoValidating() *mcpgoserver.MCPServer {
	return mcpGo(mcpgoserver.WithInputSchemaValidation(), mcpgoserver.WithOutputSchemaValidation())
}

func mcpGoHandler(s *mcpgoserver.MCPServer) http.Handler {
	return mcpgoserver.NewStreamableHTTPServer(s)
}

// goSDKHandler answers with JSON, which is faster than its default, an event
// stream for each answer.
func goSDKHandler(stateless bool) http.Handler {
	s := addgosdk.NewServer()
	return gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return s },
		&gosdk.StreamableHTTPOptions{Stateless: stateless, JSONResponse: true})
}

// mcpHandlers are the servers that a child process can be over HTTP.
var mcpHandlers = map[string]func() http.Handler{
	"net/http echo":        func() http.Handler { return http.HandlerFunc(echoHTTP) },
	"farcall, http.Server": farcallMCPHandler,
	"mcp-go":               func() http.Handler { return mcpGoHandler(mcpGo()) },
	"go-sdk":               func() http.Handler { return goSDKHandler(true) },
	"go-sdk, a session":    func() http.Handler { return goSDKHandler(false) },
}

// mcpListeners are the servers that have a listener, not a handler of net/http.
var mcpListeners = map[string]func(net.Listener) error{
	"fasthttp echo": func(l net.Listener) error {
		go fasthttp.Serve(l, func(c *fasthttp.RequestCtx) {
			c.SetContentType("application/json")
			c.SetBody(c.PostBody())
		})
		return nil
	},
	"farcall": func(l net.Listener) error {
		go addfarcall.NewServer().ServeListener(context.Background(), l)
		return nil
	},
	"farcall, rpc.Server": func(l net.Listener) error { return serveRPC(l, false) },
	"farcall, net/http":   func(l net.Listener) error { return serveRPC(l, true) },
}

// serveRPC is what farcall serve does: with the fast path of HTTP, or net/http alone. Its
// port has JSON-RPC, WebSocket and the rest as well.
func serveRPC(l net.Listener, std bool) error {
	s, err := rpc.NewServer(farcallMethods(), &rpc.ServeOptions{
		MCP: addfarcall.NewServer(), StdHTTP: std, AcceptRate: -1, MaxConnections: -1,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	go s.Serve(context.Background(), l)
	return nil
}

// mcpStdio are the servers that it can be on its standard input and output.
var mcpStdio = map[string]func(context.Context) error{
	"farcall": func(ctx context.Context) error { return addfarcall.NewServer().ServeStdio(ctx) },
	"mcp-go":  func(context.Context) error { return mcpgoserver.ServeStdio(mcpGo()) },
	"go-sdk": func(ctx context.Context) error {
		return addgosdk.NewServer().Run(ctx, &gosdk.StdioTransport{})
	},
}
