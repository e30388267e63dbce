package jsonrpc

import "slices"

// Condition is one meaning of an error code: a row of the registry. The same
// number may mean different things to different peers, and the same condition
// may have different numbers.
type Condition struct {
	Name       string // as its source writes it
	Category   string // what it is about: protocol, limit, auth, tool ...
	Severity   string // info, warning, error or critical
	Retryable  bool   // the same call may succeed later
	HTTPStatus int
	Plain      Code   // the code on plain JSON-RPC; 0: none
	Legacy     Code   // the code on MCP up to 2025-11-25; 0: none
	Modern     Code   // the code on MCP 2026-07-28; 0: none
	Source     string // who gave the condition its name and its code
}

// Conditions returns the registry.
func Conditions() []Condition { return slices.Concat(conditions, erlmcp) }

// Lookup returns every meaning of a code. A code of the specification itself
// has only that meaning, though other conditions are sent with it where a
// dialect has no closer code.
func Lookup(c Code) []Condition {
	standard := c >= ParseError && c <= InvalidRequest
	var all []Condition
	for _, row := range Conditions() {
		if c != 0 && (row.Plain == c || !standard && (row.Legacy == c || row.Modern == c)) {
			all = append(all, row)
		}
	}
	return all
}

// The sources.
const (
	specification = "JSON-RPC 2.0"
	farcall       = "farcall"
	tutorial      = "JSON-RPC for agents" // the convention of a tutorial; the playground follows it
	lsp           = "LSP 3.17"
	mcp           = "MCP"
	mcpTypeScript = "MCP TypeScript SDK"
)

// conditions has the registry's rows but for those of one large list.
//
// MCP 2026-07-28 reserves -32020…-32099 for itself and discourages
// -32000…-32019, and JSON-RPC reserves -32768…-32000. So a condition of our own
// has there a code that is a thousand higher than elsewhere, outside all of
// them, unless MCP or JSON-RPC has one for it.
var conditions = []Condition{
	{"Parse error", "protocol", "error", false, 400, -32700, -32700, -32700, specification},
	{"Invalid Request", "protocol", "error", false, 400, -32600, -32600, -32600, specification},
	{"Method not found", "protocol", "error", false, 404, -32601, -32601, -32601, specification},
	{"Invalid params", "validation", "error", false, 400, -32602, -32602, -32602, specification},
	{"Internal error", "server", "critical", false, 500, -32603, -32603, -32603, specification},

	{"not initialized", "protocol", "error", false, 400, -32005, -32005, 0, farcall},
	{"unavailable", "transport", "error", true, 503, -32008, -32008, -31008, farcall},
	{"timeout", "limit", "warning", true, 504, -32009, -32009, -31009, farcall},
	{"overloaded", "limit", "warning", true, 503, -32010, -32010, -31010, farcall},
	{"too large", "limit", "error", false, 413, -32012, -32012, -31012, farcall},
	{"schema not supported", "validation", "error", false, 422, -32040, -32040, -31040, farcall},
	{"shutting down", "server", "warning", true, 503, -32041, -32041, -31041, farcall},
	{"no callback", "transport", "error", false, 501, -32043, -32043, -31043, farcall},
	{"rate limited", "limit", "warning", true, 429, -32050, -32050, -31050, farcall},
	{"unauthenticated", "auth", "error", false, 401, -32051, -32051, -31051, farcall},
	{"replayed request", "auth", "error", false, 401, -32052, -32052, -31052, farcall},
	{"bad signature", "auth", "error", false, 401, -32053, -32053, -31053, farcall},
	{"stale request", "auth", "error", false, 401, -32054, -32054, -31054, farcall},
	{"cancelled", "call", "info", false, 499, -32800, -32800, -32800, farcall},

	{"validation failed", "validation", "error", false, 400, -32001, -32602, -32602, tutorial},
	{"permission denied", "auth", "error", false, 403, -32002, -32056, -31056, tutorial},
	{"request timeout", "limit", "warning", true, 504, -32003, -32009, -31009, tutorial},
	{"dependency failed", "dependency", "error", true, 502, -32004, -32039, -31039, tutorial},

	{"UnknownErrorCode", "protocol", "error", false, 500, -32001, 0, 0, lsp},
	{"ServerNotInitialized", "protocol", "error", true, 503, -32002, 0, 0, lsp},
	{"RequestCancelled", "call", "info", false, 499, -32800, 0, 0, lsp},
	{"ContentModified", "call", "info", true, 409, -32801, 0, 0, lsp},
	{"ServerCancelled", "call", "info", true, 503, -32802, 0, 0, lsp},
	{"RequestFailed", "call", "error", false, 500, -32803, 0, 0, lsp},

	{"Resource not found", "resource", "error", false, 404, 0, -32002, -32602, mcp},
	{"URLElicitationRequired", "elicitation", "info", true, 400, 0, -32042, 0, mcp},
	{"HeaderMismatch", "protocol", "error", false, 400, 0, 0, -32020, mcp},
	{"MissingRequiredClientCapability", "protocol", "error", false, 400, 0, 0, -32021, mcp},
	{"UnsupportedProtocolVersion", "protocol", "error", false, 400, -32061, -32602, -32022, mcp},
	{"ConnectionClosed", "transport", "error", true, 503, 0, -32000, 0, mcpTypeScript},
	{"RequestTimeout", "limit", "warning", true, 504, 0, -32001, 0, mcpTypeScript},
}
