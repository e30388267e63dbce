package guard

import (
	"bytes"
	"strings"

	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// callOf finds out what a message is about.
func callOf(method string, params jsonrpc.Raw) Call {
	c := Call{Method: method, Params: params}
	c.MCP, c.Modern = dialect(method, params)
	switch method {
	case spec.MethodToolsCall:
		c.Name, c.Arguments = text(params, "name"), scan.Member(params, "arguments")
	case spec.MethodPromptsGet:
		c.Name, c.Arguments = text(params, "name"), scan.Member(params, "arguments")
	case spec.MethodResourcesRead:
		c.Name = text(params, "uri")
	case spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe:
		c.Method, c.Name = spec.MethodResourcesRead, text(params, "uri")
	case spec.MethodCompletionComplete: // what may be used may be completed
		ref := scan.Member(params, "ref")
		c.Method, c.Name = spec.MethodPromptsGet, text(ref, "name")
		if text(ref, "type") == spec.RefResource {
			c.Method, c.Name = spec.MethodResourcesRead, text(ref, "uri")
		}
	default:
		c.Arguments = params
	}
	return c
}

func text(object jsonrpc.Raw, member string) string {
	raw := scan.Member(object, member)
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return string(scan.Unquote(raw))
}

var modernKey = []byte(spec.MetaProtocolVersion)

// dialect says how errors are numbered for anyone who sent a message.
func dialect(method string, params jsonrpc.Raw) (mcp, modern bool) {
	if bytes.Contains(params, modernKey) && scan.Member(scan.Member(params, "_meta"), spec.MetaProtocolVersion) != nil {
		return true, true
	}
	return ofMCP(method), false
}

func ofMCP(method string) bool {
	before, _, ok := strings.Cut(method, "/")
	if !ok {
		return method == spec.MethodInitialize || method == spec.MethodPing
	}
	switch before {
	case "tools", "resources", "prompts", "completion", "logging", "notifications", "tasks", "subscriptions", "server":
		return true
	}
	return false
}

// open reports whether a method is for everybody who was let in: what a client needs to begin,
// and what answers with that alone which is its own or which it may use.
func open(method string) bool {
	switch method {
	case spec.MethodInitialize, spec.MethodPing, spec.MethodServerDiscover, spec.MethodLoggingSetLevel,
		spec.MethodToolsList, spec.MethodResourcesList, spec.MethodResourcesTemplatesList, spec.MethodPromptsList,
		spec.MethodSubscriptionsListen, spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe, // each resource is asked about
		spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel, spec.MethodTasksResult, spec.MethodTasksList,
		spec.NotificationCancelled, spec.NotificationProgress, spec.NotificationInitialized, spec.NotificationRootsListChanged,
		"$/cancelRequest", "$/progress":
		return true
	}
	return false
}

// mustBeGranted reports whether a method needs a rule that allows it, also where there are no
// policies and in shadow mode: it changes the gateway itself.
func mustBeGranted(method string) bool { return method == "gateway/admin" }

// name is what patterns are checked against.
func (c *Call) name() string { return policy.CallName(c.Method, c.Upstream, c.Name) }
