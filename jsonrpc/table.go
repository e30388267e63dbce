package jsonrpc

import "slices"

// Condition is one meaning of an error code: a row of the registry. The same
// number may mean different things to different peers, and the same condition
// may have different numbers.
type Condition struct {
	Name       string // as its source writes it; the message of an error, if no other says more
	Category   string // what it is about: protocol, limit, auth, tool ...
	Severity   string // info, warning, error or critical
	Retryable  bool   // the same call may succeed later
	HTTPStatus int
	Plain      Code   // the code on plain JSON-RPC; 0: none
	Legacy     Code   // the code on MCP up to 2025-11-25; 0: none
	Modern     Code   // the code on MCP 2026-07-28; 0: none
	Source     string // who gave the condition its name and its code
}

// Conditions returns the registry: what farcall sends, and what LSP and MCP define.
func Conditions() []Condition { return slices.Clone(conditions) }

// Condition returns the condition that farcall means by a code of this package: its row of the
// registry, where others may have a row with the same code. For other codes it is zero.
func (c Code) Condition() Condition {
	for _, row := range conditions {
		if row.Plain == c && row.sent() {
			return row
		}
	}
	return Condition{}
}

// sent reports whether farcall itself sends a condition.
func (row *Condition) sent() bool {
	return row.Source == specification || row.Source == farcall ||
		row.Plain == PermissionDenied && row.Source == tutorial
}

// Explained reports whether every caller gets the reason, as the member reason of the error's data,
// or which limit it is. Of other conditions the reason is for the log, and for callers with
// Options.Details: it may be a secret, or tell an attacker how far it came.
func (row *Condition) Explained() bool {
	switch row.Plain {
	case ParseError, InvalidRequest, Overloaded, TooLarge:
		return row.sent()
	}
	return false
}

// Means reports whether a code has the meaning of the row in some dialect. A code of the
// specification itself has only that meaning, though other conditions are sent with it where a
// dialect has no closer code.
func (row *Condition) Means(c Code) bool {
	standard := c >= ParseError && c <= InvalidRequest
	return c != 0 && (row.Plain == c || !standard && (row.Legacy == c || row.Modern == c))
}

// Lookup returns every meaning of a code in the registry.
func Lookup(c Code) []Condition {
	return slices.DeleteFunc(Conditions(), func(row Condition) bool { return !row.Means(c) })
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

// conditions has the registry's rows.
//
// MCP 2026-07-28 reserves -32020…-32099 for itself and discourages
// -32000…-32019, and JSON-RPC reserves -32768…-32000. So our own condition
// has there a code that is a thousand higher than elsewhere, outside all of
// them, unless MCP or JSON-RPC has one for it. The two that a connection
// sends before it knows the revision keep theirs, which MCP only discourages.
var conditions = []Condition{
	{
		"Parse error", "protocol", "error", false, 400, ParseError, ParseError, ParseError,
		specification,
	},
	{
		"Invalid Request", "protocol", "error", false, 400, InvalidRequest, InvalidRequest,
		InvalidRequest, specification,
	},
	{
		"Method not found", "protocol", "error", false, 404, MethodNotFound, MethodNotFound,
		MethodNotFound, specification,
	},
	{
		"Invalid params", "validation", "error", false, 400, InvalidParams, InvalidParams, InvalidParams,
		specification,
	},
	{
		"Internal error", "server", "critical", false, 500, InternalError, InternalError, InternalError,
		specification,
	},

	{"Not initialized", "protocol", "error", false, 400, NotInitialized, NotInitialized, 0, farcall},
	{"Unavailable", "transport", "error", true, 503, Unavailable, Unavailable, -31008, farcall},
	{"Timeout", "limit", "warning", true, 504, Timeout, Timeout, Timeout, farcall},
	{"Overloaded", "limit", "warning", true, 503, Overloaded, Overloaded, Overloaded, farcall},
	{"Too large", "limit", "error", false, 413, TooLarge, TooLarge, -31012, farcall},
	{
		"Schema not supported", "validation", "error", false, 422, SchemaNotSupported, SchemaNotSupported,
		-31040, farcall,
	},
	{"Shutting down", "server", "warning", true, 503, ShuttingDown, ShuttingDown, -31041, farcall},
	{"No callback", "transport", "error", false, 501, NoCallback, NoCallback, -31043, farcall},
	{"Rate limited", "limit", "warning", true, 429, RateLimited, RateLimited, -31050, farcall},
	{
		"Unauthenticated", "auth", "error", false, 401, Unauthenticated, Unauthenticated, -31051,
		farcall,
	},
	{"Replayed request", "auth", "error", false, 401, Replayed, Replayed, -31052, farcall},
	{"Bad signature", "auth", "error", false, 401, BadSignature, BadSignature, -31053, farcall},
	{"Stale request", "auth", "error", false, 401, Stale, Stale, -31054, farcall},
	{"Cancelled", "call", "info", false, 499, Cancelled, Cancelled, Cancelled, farcall},

	{"Validation failed", "validation", "error", false, 400, -32001, -32602, -32602, tutorial},
	{"Permission denied", "auth", "error", false, 403, PermissionDenied, -32056, -31056, tutorial},
	{"Request timeout", "limit", "warning", true, 504, -32003, -32009, -31009, tutorial},
	{"Dependency failed", "dependency", "error", true, 502, -32004, -32039, -31039, tutorial},

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
