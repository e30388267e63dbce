package policy

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Match reports whether a call, as [CallName] writes it, is one of a pattern. In a pattern * is any
// number of characters, slashes and spaces as well, and ? is one. All others stand for themselves.
func Match(pattern, call string) bool {
	p, c, star, from := 0, 0, -1, 0
	for c < len(call) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, c
			p++
		case p < len(pattern) && pattern[p] == '?':
			c += width(call[c:])
			p++
		case p < len(pattern) && pattern[p] == call[c]:
			p++
			c++
		case star < 0:
			return false
		default:
			from += width(call[from:])
			p, c = star+1, from
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

func width(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// CallName is how patterns see a call: METHOD, or METHOD NAME, or METHOD UPSTREAM/NAME.
func CallName(method, upstream, name string) string {
	switch {
	case name == "":
		return method
	case upstream == "":
		return method + " " + name
	}
	return method + " " + upstream + "/" + name
}

// kind is the type of the entity that a call is about.
func kind(method, name string) string {
	switch method {
	case "tools/call":
		return typeTool
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return typeResource
	case "prompts/get":
		return typePrompt
	case "completion/complete":
		switch {
		case name == "":
		case strings.Contains(name, "://"):
			return typeResource
		default:
			return typePrompt
		}
	}
	return typeMethod
}

// named are the methods that come with a name. A gateway gives calls of servers that speak no MCP
// as rpc UPSTREAM/METHOD, and changes of the gateway as gateway/admin CHANGE or gateway/admin
// UPSTREAM/CHANGE.
var named = []string{
	"gateway/admin", "rpc", "tools/call", "resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/get", "completion/complete",
}

// reads are MCP's methods that only look.
var reads = []string{
	"completion/complete", "initialize", "ping", "prompts/get", "prompts/list", "resources/list", "resources/read", "resources/subscribe",
	"resources/templates/list", "resources/unsubscribe", "server/discover", "tasks/get", "tasks/list", "tasks/result", "tools/list",
}

func isRead(method string) bool {
	_, found := slices.BinarySearch(reads, method)
	return found
}

// callFault says why a call cannot be named without doubt. "" is none.
func callFault(q *Query) string {
	switch {
	case q.Method == "":
		return "the call has no method"
	case !plain(q.Method) || strings.Contains(q.Method, " "):
		return "the method has a space or a character that is not printed"
	case !plain(q.Upstream) || strings.ContainsAny(q.Upstream, "/ "):
		return "the upstream's name has a slash, a space or a character that is not printed"
	case !plain(q.Name):
		return "the name has a character that is not printed"
	case kind(q.Method, q.Name) == typeResource:
		if f := URIFault(q.Name); f != "" {
			return "the URI " + f
		}
	}
	return ""
}

// plain reports that s is UTF-8 without control characters.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return utf8.ValidString(s)
}
