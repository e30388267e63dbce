package gateway

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clients reads the servers of a desktop client: Claude, VS Code, Cursor, Windsurf, Cline, Codex
// and the like. They all write command, args and env, or a url with headers, and differ in the
// rest.
func (r *reader) clients(n *node, f *format, c *Config) {
	r.desktop = true
	r.workspace = r.dir
	if base := filepath.Base(r.dir); base == ".vscode" || base == ".cursor" || base == ".roo" {
		r.workspace = filepath.Dir(r.dir)
	}
	if full, err := filepath.Abs(r.workspace); err == nil {
		r.workspace = full
	}
	taken := map[string]string{}
	r.each(n, f.at, func(m member, path string) {
		if m.key != f.key {
			if m.key != "inputs" && !f.whole && !strings.HasPrefix(m.key, "$") {
				r.notice(m.at, path, "is not about servers and is ignored")
			}
			return
		}
		r.each(m.value, path, func(m member, path string) {
			r.spots[path] = m.at
			if f.common != nil && m.value.kind == mapNode {
				m.value = f.common(m.value)
			}
			u := r.client(m, path)
			if u.Name != m.key {
				r.notice(m.at, path, "is %q here: a name has letters, digits, - and _", u.Name)
			}
			if other, twice := taken[strings.ToLower(u.Name)]; twice {
				r.problemAt(m.at, path, fmt.Sprintf("its name here, %q, is also that of %q", u.Name, other),
					"rename one of them")
				return
			}
			taken[strings.ToLower(u.Name)] = m.key
			c.Upstreams = append(c.Upstreams, u)
			r.roots = append(r.roots, path)
		})
	})
}

// slug makes a name of what a client lets its users write.
func slug(name string) string {
	var b strings.Builder
	for _, c := range name {
		if c < 128 && isNameByte(byte(c)) && (c != '_' || !strings.HasSuffix(b.String(), "_")) {
			b.WriteRune(c)
		} else if !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	out := strings.Trim(b.String(), "-_")
	return strings.Trim(out[:min(len(out), maxName)], "-_")
}

// ignored are keys of clients that have no effect here, and why.
var ignored = map[string]string{
	"alwaysAllow": "a client asks its user for leave, not a gateway",
	"autoApprove": "a client asks its user for leave, not a gateway",
	"trust":       "a client asks its user for leave, not a gateway",
	"inputs":      "", "name": "", "description": "", "icon": "", "icons": "", "iconUrl": "",
	"version": "",
	"gallery": "", "source": "", "note": "", "notes": "", "comment": "",
	"dev":        "restarting on changes is for the editor",
	"watchPaths": "restarting on changes is for the editor",
	"oauth":      "put a token into headers", "auth": "put a token into headers",
	"authProviderType": "put a token into headers",
	"headersHelper":    "put a token into headers", "oauthScopes": "put a token into headers",
	"oauthClientId": "put a token into headers", "scopes": "put a token into headers",
	"sandbox": "commands run as they are", "sandboxEnabled": "commands run as they are",
	"alwaysLoad": "", "settings": "", "remote": "", "required": "", "supports_parallel_tool_calls": "",
	"oauth_resource":              "put a token into headers",
	"default_tools_approval_mode": "a client asks its user for leave, not a gateway",
	"initTimeout":                 "", "isActive": "", "tags": "", "provider": "", "providerUrl": "",
	"logoUrl": "",
}

// client reads one server of a desktop client.
func (r *reader) client(m member, path string) *Upstream {
	u, n := &Upstream{Name: slug(m.key)}, m.value
	if n.kind != mapNode {
		r.wrongKind(n, path, "a map with command or url is wanted")
		u.Disabled = true // the reason is reported already
		return u
	}
	off := n.get("disabled") != nil && n.get("disabled").text == "true" ||
		n.get("enabled") != nil && n.get("enabled").text == "false"
	if off {
		r.lenient, u.Disabled = true, true
		defer func() { r.lenient = false }()
	}
	var kind string
	var args, files []string
	enabled := true
	address := func(n *node, path string) { r.url(u, n, path) }
	table := map[string]take{
		"command":          func(n *node, path string) { r.command(u, n, path, false) },
		"args":             r.arguments(&args, &u.shown),
		"env":              r.secrets(&u.Env, u, "env"),
		"envFile":          r.scalar(func(_ *node, _, text string) { files = append(files, text) }),
		"cwd":              r.cwd(&u.Cwd),
		"workingDirectory": r.cwd(&u.Cwd), "working_directory": r.cwd(&u.Cwd),
		"url": address, "serverUrl": address, "httpUrl": address, "endpoint": address,
		"headers":     r.secrets(&u.Headers, u, "headers"),
		"requestInit": r.section(map[string]take{"headers": r.secrets(&u.Headers, u, "headers")}),
		"type":        r.text(&kind), "transport": r.text(&kind), "transportType": r.text(&kind),
		"timeout":       r.clientTimeout(&u.Timeout),
		"disabled":      r.flag(&u.Disabled),
		"enabled":       r.flag(&enabled),
		"disabledTools": r.texts(&u.Tools.Deny), "excludeTools": r.texts(&u.Tools.Deny),
		"enabledTools": r.texts(&u.Tools.Allow), "includeTools": r.texts(&u.Tools.Allow),
		"tools": r.texts(&u.Tools.Allow),
	}
	maps.Copy(table, r.codexKeys(u))
	for _, m := range n.members {
		why, isIgnored := ignored[m.key]
		switch {
		case table[m.key] != nil:
			continue
		case isIgnored && why != "":
			r.notice(m.at, join(path, m.key), "is ignored: %s", why)
		case isIgnored || strings.HasPrefix(m.key, "_") || strings.HasPrefix(m.key, "$") ||
			strings.HasPrefix(m.key, "//"):
		case nearest(m.key, keys(table)) != "":
			continue // a slip of the pen
		default:
			r.notice(m.at, join(path, m.key), "is not known and is ignored")
		}
		table[m.key] = func(*node, string) {}
	}
	r.fields(n, path, table)
	u.broken = n.get("command") != nil || n.get("url") != nil
	u.Command = append(u.Command, args...)
	u.Disabled = u.Disabled || !enabled
	for _, file := range files {
		r.envFile(u, file, join(path, "envFile"))
	}
	r.clientKind(u, kind, path)
	return u
}

// clientKind applies what a client calls the type of a server.
func (r *reader) clientKind(u *Upstream, kind, path string) {
	at := join(path, "type")
	var isURL bool
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "", "/", "").Replace(kind)) {
	case "":
		return
	case "stdio", "local", "command":
		if u.URL != "" && len(u.Command) == 0 {
			r.problem(at, "it is to be a command, and there is only a url", "remove type, or write http")
		}
		return
	case "http", "streamablehttp", "streamable", "httpstream", "httpstreamable":
		u.Transport, isURL = "streamable", true
	case "sse":
		u.Transport, isURL = "sse", true
	case "ws", "websocket", "remote", "url":
		isURL = true
	default:
		r.problem(at, "there is no such type", "use stdio, http, sse or ws")
		return
	}
	if isURL && len(u.Command) > 0 && u.URL == "" {
		r.problem(at, "it is to have a url, and there is only a command", "remove type, or write stdio")
	}
}

// mostSeconds is the longest timeout that clients take in seconds.
const mostSeconds = 3600

// clientTimeout reads a number: some clients mean seconds and others milliseconds.
func (r *reader) clientTimeout(dst *time.Duration) take {
	return r.scalar(func(n *node, path, text string) {
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || !(number > 0) || number > 1e9 {
			r.problemAt(n.at, path, fmt.Sprintf("%q is not a time in seconds or milliseconds", n.text),
				"write a number")
			return
		}
		unit := time.Millisecond
		if number <= mostSeconds {
			unit = time.Second
		}
		*dst = time.Duration(number * float64(unit))
		r.notice(n.at, path, "is taken for %v: up to %d for seconds, more for milliseconds", *dst,
			mostSeconds)
	})
}

// envFile adds the variables of a file of lines NAME=VALUE. Env counts first.
func (r *reader) envFile(u *Upstream, file, path string) {
	full := file
	if !filepath.IsAbs(full) {
		full = filepath.Join(r.workspace, file)
	}
	data, err := readBounded(full, maxSecret)
	if err != nil {
		if !r.lenient {
			r.problem(path, fmt.Sprintf("cannot read the file: %v", pathless(err)),
				"create it, or remove envFile")
		}
		return
	}
	if !slices.Contains(r.read, full) {
		r.read = append(r.read, full)
	}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !isName(name) {
			r.problem(path, fmt.Sprintf("line %d of the file is not NAME=VALUE", i+1), "correct it")
			continue
		}
		if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		if _, given := u.Env[name]; !given {
			put(&u.Env, name, value)
			put(&u.origins, "env."+name, "file "+filepath.Base(file))
		}
	}
}

// pathless is an error of a file without its path, which may have been replaced.
func pathless(err error) error {
	if inner, ok := err.(*os.PathError); ok { //nolint:errorlint // os returns it unwrapped
		return inner.Err
	}
	return err
}
