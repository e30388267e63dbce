package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/mcp/openapi"
)

// maxConfig bounds a file in bytes, and maxYAML one that is YAML: the time that its
// parser takes grows with the square of a map.
const (
	maxConfig = 4 << 20
	maxYAML   = 256 << 10
)

// maxProblems bounds what is reported about one file.
const maxProblems = 100

// Load reads a configuration: YAML, JSON, or the mcpServers of a desktop client.
// ${NAME} is replaced from the environment, and file:PATH with what is in the
// file. What is wrong in it is a *[ConfigError] with everything that is wrong.
func Load(path string) (*Config, error) {
	data, err := readBounded(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot read the configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse is [Load] of a file that has been read. The name says what the file is (.json, or
// YAML) and what relative paths in it are relative to.
func Parse(name string, data []byte) (*Config, error) {
	return parseAs(name, data, (*reader).config)
}

func parseAs(name string, data []byte, read func(*reader, *node) *Config) (*Config, error) {
	r := &reader{
		file: name, dir: filepath.Dir(name), spots: map[string]spot{},
		written: map[string]string{}, read: []string{name},
	}
	root, err := readNode(name, data)
	if err != nil {
		var bad *syntaxError
		if !errors.As(err, &bad) {
			return nil, err
		}
		r.problemAt(bad.at, "", bad.message, bad.hint)
		return nil, r.failure()
	}
	c := read(r, root)
	check := checker{
		problem: r.problem, notice: r.advise, said: r.said, written: r.written,
		values: r.values, roots: r.roots,
	}
	if !r.stopped {
		check.apis = map[*Upstream]*openapi.API{}
		check.config(c)
		r.auditAlone(c)
		r.documents(c.Upstreams, check.apis)
	}
	if err := r.failure(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.notices, byPlace)
	c.notices, c.files, c.near = r.notices, r.read, r.near
	c.digest = root.digest(map[*node][]byte{}, "listen", "cluster") // each node has its own
	return c, nil
}

func readNode(name string, data []byte) (*node, error) {
	if len(data) > maxConfig {
		return nil, &syntaxError{message: fmt.Sprintf("the file is larger than %d MB", maxConfig>>20)}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // the byte order mark that some editors write
	if strings.EqualFold(filepath.Ext(name), ".toml") {
		return readTOML(data)
	}
	start := bytes.TrimSpace(data)
	if ext := strings.ToLower(filepath.Ext(name)); ext == ".json" || ext == ".jsonc" ||
		bytes.HasPrefix(start, []byte("{")) {
		return readJSON(data)
	}
	if len(data) > maxYAML {
		return nil, &syntaxError{
			message: fmt.Sprintf("the file is larger than %d KB", maxYAML>>10),
			hint:    "write it as JSON, which may be larger",
		}
	}
	return readYAML(data)
}

// readBounded reads a regular file.
func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}
	case info.Size() > most:
		return nil, &fs.PathError{
			Op: "read", Path: path, Err: fmt.Errorf("it is larger than %d KB", most>>10),
		}
	}
	return os.ReadFile(path)
}

// reader makes a Config of a node. It goes on after a problem, to find the others.
type reader struct {
	file, dir string
	workspace string // of the editor that the file belongs to; "" when it belongs to none
	desktop   bool   // an mcpServers file
	stopped   bool   // there is no sense in looking further
	lenient   bool   // within an upstream that is not used: what it refers to may be missing

	problems []Problem
	notices  []Problem
	spots    map[string]spot   // where each path is
	written  map[string]string // the values that have been replaced, as they were written
	values   map[string]string // the same, as they are
	roots    []string          // the paths of the upstreams
	read     []string          // files
	origin   string            // where the value that was read last came from
}

func (r *reader) failure() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, byPlace)
	return &ConfigError{File: r.file, Problems: r.problems}
}

func byPlace(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// problem reports what is wrong at a path, or at what is nearest above it.
func (r *reader) problem(path, message, hint string) {
	r.problemAt(r.near(path), path, message, hint)
}

func (r *reader) near(path string) spot {
	for {
		if at, ok := r.spots[path]; ok || path == "" {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

func (r *reader) problemAt(at spot, path, message, hint string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{at.line, at.column, path, message, hint})
	}
}

func (r *reader) notice(at spot, path, format string, args ...any) {
	if len(r.notices) < maxProblems {
		r.notices = append(r.notices,
			Problem{Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// A take reads a value into the field that it was made for.
type take func(n *node, path string)

// fields reads a map by a table of its keys.
func (r *reader) fields(n *node, path string, table map[string]take) {
	r.each(n, path, func(m member, path string) {
		if f := table[m.key]; f != nil {
			f(m.value, path)
			return
		}
		hint := "remove it"
		near := nearest(m.key, keys(table))
		if m.key == "servers" && table["upstreams"] != nil {
			near = "upstreams" // errors is not far away
		}
		if near != "" {
			hint = "did you mean " + near + "?"
		}
		r.problemAt(m.at, path, fmt.Sprintf("there is no key %q here", m.key), hint)
	})
}

// mapOr reads a map by a table of its keys, or the value of one of them alone.
func (r *reader) mapOr(key string, n *node, path string, table map[string]take) {
	if n.kind != scalarNode {
		r.fields(n, path, table)
		return
	}
	path = join(path, key)
	r.spots[path] = n.at
	table[key](n, path)
}

// each yields the members of a map. Of those that are given twice, which is a
// problem already, it yields the first.
func (r *reader) each(n *node, path string, yield func(m member, path string)) {
	if n.kind == nullNode {
		return
	}
	if n.kind != mapNode {
		r.wrongKind(n, path, "a map of keys and values is wanted")
		return
	}
	first := map[string]bool{}
	for _, m := range n.members {
		below := join(path, m.key)
		if first[m.key] {
			continue
		}
		first[m.key] = true
		r.spots[below] = m.value.at
		yield(m, below)
	}
}

// twice reports the keys that are given twice, wherever they are.
func (r *reader) twice(n *node, path string, seen map[*node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	for i, item := range n.list {
		r.twice(item, path+"["+strconv.Itoa(i)+"]", seen)
	}
	first := map[string]spot{}
	for _, m := range n.members {
		below := join(path, m.key)
		if at, twice := first[m.key]; twice {
			r.problemAt(m.at, below, "the key is given twice",
				fmt.Sprintf("the first is on line %d; remove one", at.line))
			continue
		}
		first[m.key] = m.at
		r.twice(m.value, below, seen)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (r *reader) wrongKind(n *node, path, want string) {
	r.problemAt(n.at, path, want+", and this is "+n.kind.String(), "")
}

func keys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// config reads the whole, whichever form it has.
func (r *reader) config(n *node) *Config {
	c := &Config{}
	r.spots[""] = n.at
	r.twice(n, "", map[*node]bool{})
	switch {
	case n.kind == nullNode:
		r.problemAt(n.at, "", "the file is empty", "name a server under upstreams")
		r.stopped = true
	case n.kind != mapNode:
		r.wrongKind(n, "", "a map with the key upstreams is wanted")
		r.stopped = true
	case isPolicyTest(n) && n.get("upstreams") == nil:
		r.problemAt(n.at, "tests", "this is a file of calls, and a configuration is wanted",
			"run farcall policy test "+filepath.Base(r.file))
		r.stopped = true
	default:
		if f, in := r.formatOf(n); f != nil {
			r.clients(in, f, c)
			break
		}
		r.fields(n, "", r.ownKeys(n, c))
	}
	return c
}

// section reads a map that has some of the keys.
func (r *reader) section(keys map[string]take) take {
	return func(n *node, path string) { r.fields(n, path, keys) }
}

// ownKeys are the keys of farcall's own form.
func (r *reader) ownKeys(n *node, c *Config) map[string]take {
	l := &c.Limits // of all connections together
	table := map[string]take{
		"name":            r.text(&c.Name),
		"title":           r.text(&c.Title),
		"instructions":    r.text(&c.Instructions),
		"listen":          r.oneOrMore(&c.Listen),
		"hosts":           r.oneOrMore(&c.Hosts),
		"trusted_proxies": r.oneOrMore(&c.TrustedProxies),
		"tls": r.section(map[string]take{
			"cert": r.path(&c.TLS.Cert),
			"key":  r.path(&c.TLS.Key), "client_ca": r.path(&c.TLS.ClientCA),
		}),
		"namespace": r.text(&c.Namespace),
		"search":    r.search(&c.Search),
		"lock":      r.path(&c.Lock),
		"trace": r.section(map[string]take{
			"parent": r.text(&c.Trace.Parent), "listeners": r.table(&c.Trace.Listeners),
			"slow": r.duration(&c.Trace.Slow), "payloads": r.flag(&c.Trace.Payloads),
		}),
		"log":             func(n *node, path string) { r.log(c, n, path) },
		"capture":         func(n *node, path string) { r.capture(c, n, path) },
		"max_suspended":   r.count(&c.MaxSuspended),
		"suspend_timeout": r.duration(&c.SuspendTimeout),
		"drain_timeout":   r.duration(&c.DrainTimeout),
		"page_size":       r.count(&c.PageSize),
		"errors":          r.text(&c.Errors),
		"sessions":        func(n *node, path string) { r.sessions(c, n, path) },
		"idempotency": r.section(map[string]take{
			"argument": r.text(&c.Idempotency.Argument),
			"ttl":      r.duration(&c.Idempotency.TTL),
		}),
		"tasks":   func(n *node, path string) { r.tasks(c, n, path) },
		"cluster": func(n *node, path string) { r.cluster(c, n, path) },
		"sign_in": func(n *node, path string) { r.signIn(c, n, path) },
		"limits": r.section(map[string]take{
			"memory":                 r.sizeTo(&l.Memory, maxBudget, "1TiB"),
			"memory_unauthenticated": r.sizeTo(&l.MemoryUnauthenticated, maxBudget, "1TiB"),
			"frame_timeout":          r.duration(&l.FrameTimeout), "idle": r.duration(&l.Idle),
			"connections": r.count(&l.Connections), "accepted": r.count(&l.Accepted),
			"accept_rate": r.count(&l.AcceptRate),
		}),
		"guard":     func(n *node, path string) { c.Guard = r.guard(n, path) },
		"endpoints": r.endpoints(c),
		"hooks":     r.hooks(&c.Hooks),
		"upstreams": func(n *node, path string) {
			r.each(n, path, func(m member, path string) {
				r.spots[path] = m.at
				c.Upstreams = append(c.Upstreams, r.upstream(m, path))
				r.roots = append(r.roots, path)
			})
		},
	}
	for _, m := range n.members {
		if strings.HasPrefix(m.key, "x-") { // a place for anchors
			table[m.key] = func(*node, string) {}
		}
	}
	return table
}
