package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/farcall-dev/farcall/internal/jsonc"
	"github.com/farcall-dev/farcall/internal/scan"
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

// readJSON makes a node of JSON. Comments, and a comma behind the last member or
// element, are passed over: editors write them into their settings.
func readJSON(data []byte) (*node, error) {
	j := jsonReader{b: jsonc.Plain(data), lines: []int{0}}
	for i, c := range data {
		if c == '\n' {
			j.lines = append(j.lines, i+1)
		}
	}
	if i, f := scan.Text(j.b, maxNesting); f != scan.OK {
		return nil, &syntaxError{at: j.at(i), message: fmt.Sprintf("this is not JSON: %v", f)}
	}
	n, _ := j.read(scan.Space(j.b, 0))
	return n, nil
}

// jsonReader reads what scan has found to be valid.
type jsonReader struct {
	b     []byte
	lines []int // where they begin
}

func (j *jsonReader) at(i int) spot {
	line := sort.SearchInts(j.lines, i+1) - 1
	return spot{line + 1, utf8.RuneCount(j.b[j.lines[line]:min(i, len(j.b))]) + 1}
}

// read returns the value at i, and where it ends.
func (j *jsonReader) read(i int) (*node, int) {
	n := &node{at: j.at(i)}
	end, _ := scan.Value(j.b, i, -1)
	switch j.b[i] {
	case '{':
		n.kind = mapNode
		for i = scan.Space(j.b, i+1); j.b[i] != '}'; {
			keyEnd, _, _ := scan.String(j.b, i)
			m := member{key: string(scan.Unquote(j.b[i:keyEnd])), at: j.at(i)}
			i = scan.Space(j.b, scan.Space(j.b, keyEnd)+1) // the colon
			m.value, i = j.read(i)
			n.members = append(n.members, m)
			i = j.next(i)
		}
	case '[':
		n.kind = listNode
		for i = scan.Space(j.b, i+1); j.b[i] != ']'; {
			var item *node
			item, i = j.read(i)
			n.list = append(n.list, item)
			i = j.next(i)
		}
	case '"':
		n.kind, n.text = scalarNode, string(scan.Unquote(j.b[i:end]))
	case 'n':
	default:
		n.kind, n.text, n.bare = scalarNode, string(j.b[i:end]), true
	}
	return n, end
}

// next passes the comma behind a member or element, if there is one.
func (j *jsonReader) next(i int) int {
	if i = scan.Space(j.b, i); j.b[i] == ',' {
		i = scan.Space(j.b, i+1)
	}
	return i
}

// readTOML makes a node of a document. Its tables are in the order in which the file names them
// first.
func readTOML(data []byte) (*node, error) {
	if err := toml.Unmarshal(data, &map[string]any{}); err != nil {
		// what the parser alone does not see: keys that are given twice
		bad := &syntaxError{message: "this is not TOML"}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			bad.at.line, bad.at.column = at.Position()
		}
		return nil, bad
	}
	t := tomlReader{
		root: &node{kind: mapNode, at: spot{1, 1}}, lines: []int{0},
		tables: map[*node]map[string]*node{},
	}
	for i, c := range data {
		if c == '\n' {
			t.lines = append(t.lines, i+1)
		}
	}
	t.p.Reset(data)
	table := t.root
	for t.p.NextExpression() {
		e := t.p.Expression()
		var err error
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, err = t.table(e.Key(), e.Kind == unstable.ArrayTable)
		case unstable.KeyValue:
			err = t.keyValue(table, e, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	if t.p.Error() != nil {
		return nil, &syntaxError{message: "this is not TOML"}
	}
	return t.root, nil
}

type tomlReader struct {
	p      unstable.Parser
	root   *node
	lines  []int                      // where they begin
	tables map[*node]map[string]*node // what is a table, or a list of them, in each
}

// at is where something begins.
func (t *tomlReader) at(r unstable.Range) spot {
	i := int(r.Offset)
	line := sort.SearchInts(t.lines, i+1) - 1
	return spot{line + 1, utf8.RuneCount(t.p.Data()[t.lines[line]:i]) + 1}
}

// add adds a table, or a list of them, to a map.
func (t *tomlReader) add(n, what *node, key *unstable.Node) *node {
	what.at = t.at(key.Raw)
	n.members = append(n.members, member{key: string(key.Data), at: what.at, value: what})
	if t.tables[n] == nil {
		t.tables[n] = map[string]*node{}
	}
	t.tables[n][string(key.Data)] = what
	return what
}

// within returns the map at a key, which it makes, or the last one of a list of tables.
func (t *tomlReader) within(n *node, key *unstable.Node) *node {
	next := t.tables[n][string(key.Data)]
	switch {
	case next == nil:
		return t.add(n, &node{kind: mapNode}, key)
	case next.kind == listNode:
		return next.list[len(next.list)-1]
	}
	return next
}

// table returns the map of a heading: [a.b], or a new one of [[a.b]].
func (t *tomlReader) table(keys unstable.Iterator, list bool) (*node, error) {
	n := t.root
	for depth := 0; keys.Next(); depth++ {
		key := keys.Node()
		if depth > maxNesting {
			return nil, t.tooDeep(key.Raw)
		}
		if list && keys.IsLast() {
			all := t.tables[n][string(key.Data)]
			if all == nil {
				all = t.add(n, &node{kind: listNode}, key)
			}
			all.list = append(all.list, &node{kind: mapNode, at: t.at(key.Raw)})
		}
		n = t.within(n, key)
	}
	return n, nil
}

func (t *tomlReader) tooDeep(r unstable.Range) error {
	return &syntaxError{
		at: t.at(r), message: fmt.Sprintf("values are nested more than %d deep", maxNesting),
	}
}

// keyValue adds a.b = value to a map.
func (t *tomlReader) keyValue(n *node, e *unstable.Node, depth int) error {
	for keys := e.Key(); keys.Next(); depth++ {
		key := keys.Node()
		if depth > maxNesting {
			return t.tooDeep(key.Raw)
		}
		if !keys.IsLast() {
			n = t.within(n, key)
			continue
		}
		value, err := t.value(e.Value(), t.at(key.Raw), depth)
		if err != nil {
			return err
		}
		n.members = append(n.members, member{key: string(key.Data), at: t.at(key.Raw), value: value})
	}
	return nil
}

// value makes a node of a value. Lists and tables have no own place: theirs is that of the key.
func (t *tomlReader) value(v *unstable.Node, at spot, depth int) (*node, error) {
	if depth > maxNesting {
		return nil, &syntaxError{
			at: at, message: fmt.Sprintf("values are nested more than %d deep", maxNesting),
		}
	}
	n := &node{at: at}
	if v.Raw.Length > 0 {
		n.at = t.at(v.Raw)
	}
	switch v.Kind {
	case unstable.Array:
		n.kind = listNode
		for items := v.Children(); items.Next(); {
			if items.Node().Kind == unstable.Comment {
				continue
			}
			item, err := t.value(items.Node(), n.at, depth+1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, item)
		}
	case unstable.InlineTable:
		n.kind = mapNode
		for items := v.Children(); items.Next(); {
			if items.Node().Kind != unstable.KeyValue {
				continue
			}
			if err := t.keyValue(n, items.Node(), depth+1); err != nil {
				return nil, err
			}
		}
	default:
		n.kind, n.text, n.bare = scalarNode, string(v.Data), v.Kind != unstable.String
	}
	return n, nil
}
