// Package words answers one question: which words have OpenTelemetry's conventions for what an
// observer sees? Metrics and traces have the same.
package words

const (
	// Other is the value for names that the other end has chosen.
	Other = "_OTHER"
	// ToolError is the error.type of a result with isError.
	ToolError = "tool_error"
)

// Network is a transport of observe.Call as network.transport.
func Network(transport string) string {
	switch transport {
	case "stdio":
		return "pipe"
	case "http", "https", "mcp-http", "sse", "sse+tls", "ws", "wss", "tls":
		return "tcp"
	}
	return transport
}
