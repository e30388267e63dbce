package gateway

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A format is the form in which a program that uses MCP servers writes them down.
type format struct {
	at    string // the path of the map that has the key; "" is the file
	key   string // under which they are
	whole bool   // the file has all settings of the program, and others are no surprise
	// common makes of a server what all clients write. Nil: it is that.
	common func(n *node) *node
}

// formatOf finds the editor that a file belongs to; nil: farcall's own.
func (r *reader) formatOf(n *node) (f *format, in *node) {
	switch ext := strings.ToLower(filepath.Ext(r.file)); {
	case n.get("upstreams") != nil:
		return nil, nil
	case n.get("mcpServers") != nil:
		return &format{key: "mcpServers"}, n
	case ext == ".toml":
		return &format{key: "mcp_servers", whole: true}, n // Codex
	case ext != ".json" && ext != ".jsonc":
		return nil, nil
	case n.get("servers") != nil:
		return &format{key: "servers"}, n // VS Code
	case n.get("context_servers") != nil:
		return &format{key: "context_servers", whole: true, common: ofZed}, n
	case n.get("mcp") != nil && n.get("mcp").get("servers") != nil:
		return &format{at: "mcp", key: "servers", whole: true}, n.get("mcp") // VS Code's settings
	case n.get("mcp") != nil:
		return &format{key: "mcp", whole: true, common: ofOpencode}, n
	}
	return nil, nil
}

// ofZed takes a command apart that is a map with path, args and env, as older versions of Zed write
// it.
func ofZed(n *node) *node {
	command := n.get("command")
	if command == nil || command.kind != mapNode {
		return n
	}
	out := *n
	out.members = nil
	for _, m := range n.members {
		if m.key != "command" {
			out.members = append(out.members, m)
			continue
		}
		for _, part := range command.members {
			if part.key == "path" {
				part.key = "command"
			}
			out.members = append(out.members, part)
		}
	}
	return &out
}

// ofOpencode gives the keys of opencode the names of others, and the form of its variables that of
// ours.
func ofOpencode(n *node) *node {
	out := *n
	out.members = nil
	for _, m := range n.members {
		switch {
		case m.key == "environment":
			m.key = "env"
		case m.key == "timeout": // of the list of its tools
			continue
		case m.key == "command" && m.value.kind == listNode && len(m.value.list) > 0:
			args := &node{kind: listNode, at: m.value.at, list: m.value.list[1:]}
			out.members = append(out.members, member{key: "args", at: m.at, value: opencodeWords(args)})
			m.value = m.value.list[0]
		}
		m.value = opencodeWords(m.value)
		out.members = append(out.members, m)
	}
	return &out
}

// opencodeWords writes {env:NAME} and {file:PATH} as ${env:NAME} and ${file:PATH}.
func opencodeWords(n *node) *node {
	out := *n
	out.text = strings.NewReplacer("${", "$${", "{env:", "${env:", "{file:", "${file:").Replace(n.text)
	out.list, out.members = nil, nil
	for _, item := range n.list {
		out.list = append(out.list, opencodeWords(item))
	}
	for _, m := range n.members {
		m.value = opencodeWords(m.value)
		out.members = append(out.members, m)
	}
	return &out
}

// codexKeys are the keys that Codex alone has.
func (r *reader) codexKeys(u *Upstream) map[string]take {
	return map[string]take{
		"env_vars":             r.texts(&u.InheritEnv),
		"http_headers":         r.secrets(&u.Headers, u, "headers"),
		"env_http_headers":     r.envHeaders(u),
		"bearer_token_env_var": r.bearer(u),
		"tool_timeout_sec":     r.seconds(&u.Timeout),
		"startup_timeout_sec":  r.seconds(&u.StartTimeout),
		"enabled_tools":        r.texts(&u.Tools.Allow),
		"disabled_tools":       r.texts(&u.Tools.Deny),
	}
}

// envHeaders reads headers with the names of variables that have their values. One that is not set
// is left out.
func (r *reader) envHeaders(u *Upstream) take {
	return func(n *node, path string) {
		r.each(n, path, func(m member, path string) {
			name, ok := r.value(m.value, path)
			if !ok {
				return
			}
			value, set := os.LookupEnv(name)
			if !set {
				r.notice(m.at, path, "is left out: the environment has no %s", publicName(name))
				return
			}
			put(&u.Headers, m.key, value)
			put(&u.origins, "headers."+m.key, "env "+name)
		})
	}
}

// bearer reads the name of a variable that has a token.
func (r *reader) bearer(u *Upstream) take {
	return func(n *node, path string) {
		token := *n
		token.text = "Bearer ${env:" + n.text + "}"
		if value, ok := r.private(&token, path); ok {
			put(&u.Headers, "Authorization", value)
			put(&u.origins, "headers.Authorization", r.origin)
		}
	}
}

// seconds reads a number of seconds.
func (r *reader) seconds(dst *time.Duration) take {
	return func(n *node, path string) {
		text, ok := r.value(n, path)
		if !ok {
			return
		}
		number, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		if err != nil || !(number > 0) || number > 1e6 {
			r.problemAt(n.at, path, "it is not a number of seconds", "write 60")
			return
		}
		*dst = time.Duration(number * float64(time.Second))
	}
}
