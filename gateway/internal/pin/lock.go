package pin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/replace"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The lists of a source: what is pinned.
const (
	Server    = "server" // its name and version, and its instructions: see ServerItems
	Tools     = "tools"
	Prompts   = "prompts"
	Resources = "resources"
	Templates = "templates"
)

// ids are the members by which the items of a list are distinguished. A file has no other lists.
var ids = map[string]string{Server: "name", Tools: "name", Prompts: "name", Resources: "uri", Templates: "uriTemplate"}

// A Lock is the content of a farcall.lock: the lists of upstreams as they were
// accepted. Its methods may be called from several goroutines at once.
type Lock struct {
	mu      sync.RWMutex
	sources map[string]lists
	old     bool // it was read from version 1
}

type lists map[string]map[string]*item

type item struct {
	sum  string
	def  []byte                 // canonical
	last atomic.Pointer[[]byte] // a text that was found to be this one
}

// The kinds of a Change.
const (
	Added   = "added"   // it was never accepted
	Removed = "removed" // it is not there any more
	Changed = "changed" // it is not what was accepted
	Invalid = "invalid" // it cannot be hashed; Diff says why
)

// A Change is how an item differs from what was accepted.
type Change struct {
	Source, List, Name, Kind string // the name as its source has it: hostile text
	Diff                     string // lines, to be read by a person; without characters that cannot be seen
}

// What names the item for people: tool, prompt, resource, template, or the server itself.
func (c *Change) What() string {
	if c.List == Server {
		return "server"
	}
	return strings.TrimSuffix(c.List, "s")
}

// maxDiffs bounds the differences of a list together, in bytes of what is compared and written: a
// server may change everything at once.
const maxDiffs = 2 << 20

// New returns a Lock that holds nothing.
func New() *Lock { return &Lock{sources: map[string]lists{}} }

// Old reports whether the Lock was read from a file of version 1, which has the tools only, without
// icons and _meta: nothing else is accepted.
func (l *Lock) Old() bool { return l.old }

// The items of the list Server.
const (
	Identity     = "identity"
	Instructions = "instructions"
)

// ServerItems are the items of the list Server: what a server says about itself.
func ServerItems(name, title, version, instructions string) []jsonrpc.Raw {
	add := func(dst []byte, member, value string) []byte {
		if value == "" {
			return dst
		}
		return jsonrpc.AppendString(append(dst, `,"`+member+`":`...), value)
	}
	identity := add(add(add([]byte(`{"name":"identity"`), "server", name), "title", title), "version", version)
	all := []jsonrpc.Raw{append(identity, '}')}
	if instructions != "" {
		all = append(all, append(add([]byte(`{"name":"instructions"`), "text", instructions), '}'))
	}
	return all
}

// Sources returns the names of the sources it holds, in order.
func (l *Lock) Sources() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Sorted(maps.Keys(l.sources))
}

func (l *Lock) of(source, list string) map[string]*item {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.sources[source][list]
}

// Allowed reports whether an item, as its source lists it, is what was accepted.
// What was never accepted is not. The same text is hashed once.
func (l *Lock) Allowed(source, list string, raw jsonrpc.Raw) bool {
	name := scan.Member(raw, ids[list])
	if len(name) == 0 || name[0] != '"' {
		return false
	}
	t := l.of(source, list)[string(scan.Unquote(name))]
	if t == nil {
		return false
	}
	if last := t.last.Load(); last != nil && bytes.Equal(*last, raw) {
		return true
	}
	if got, err := Hash(list, raw); err != nil || got != t.sum {
		return false
	}
	own := bytes.Clone(raw)
	t.last.Store(&own)
	return true
}

// Check compares the items that a source lists with what was accepted. The
// changes are in the order of the items; those of items that are gone come last,
// in the order of their names. Differences beyond 2 MB of definitions and text are left out.
func (l *Lock) Check(source, list string, items []jsonrpc.Raw) []Change {
	accepted := l.of(source, list)
	var all []Change
	seen := map[string]bool{}
	room := maxDiffs
	differ := func(was, now []byte) string {
		if room <= 0 {
			return "(not shown: too much has changed)\n"
		}
		text := diff(was, now)
		room -= len(text) + len(was) + len(now) // what is compared costs as well
		return text
	}
	for _, raw := range items {
		name, def, err := read(list, raw)
		was := accepted[name]
		switch {
		case err != nil:
			all = append(all, Change{source, list, name, Invalid, line(err.Error()) + "\n"})
		case seen[name]:
			all = append(all, Change{source, list, name, Invalid, "it is there twice\n"})
		case was == nil:
			all = append(all, Change{source, list, name, Added, differ(nil, def)})
		case !bytes.Equal(was.def, def):
			all = append(all, Change{source, list, name, Changed, differ(was.def, def)})
		}
		seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(accepted)) {
		if !seen[name] {
			all = append(all, Change{source, list, name, Removed, differ(accepted[name].def, nil)})
		}
	}
	return all
}

// read returns the name and what is pinned of an item.
func read(list string, raw jsonrpc.Raw) (name string, def []byte, err error) {
	if def, err = definition(list, raw); err != nil {
		return "", nil, err
	}
	quoted := scan.Member(def, ids[list])
	if len(quoted) == 0 || quoted[0] != '"' || len(quoted) == 2 {
		return "", nil, fmt.Errorf("it has no %s", ids[list])
	}
	return string(scan.Unquote(quoted)), def, nil
}

// Accept makes a list of a source what the source lists. It changes nothing when
// one of the items cannot be hashed.
func (l *Lock) Accept(source, list string, items []jsonrpc.Raw) error {
	all := make(map[string]*item, len(items))
	for i, raw := range items {
		name, def, err := read(list, raw)
		if err == nil && all[name] != nil {
			err = fmt.Errorf("%.100q is there twice", name)
		}
		if err != nil {
			return fmt.Errorf("%s of %q: number %d cannot be pinned: %w", list, source, i+1, err)
		}
		all[name] = &item{sum: sum(def), def: def}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources[source] == nil {
		l.sources[source] = lists{}
	}
	l.sources[source][list] = all
	return nil
}

// Items returns what is pinned of a list of a source, as JSON, in the order of the names.
func (l *Lock) Items(source, list string) []jsonrpc.Raw {
	items := l.of(source, list)
	all := make([]jsonrpc.Raw, 0, len(items))
	for _, name := range slices.Sorted(maps.Keys(items)) {
		all = append(all, items[name].def)
	}
	return all
}

// Remove forgets a source.
func (l *Lock) Remove(source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sources, source)
}

const (
	lockVersion = 2
	maxFile     = 64 << 20
	about       = "What servers say about themselves, as it was accepted. farcall blocks what differs from its definition here. Written by `farcall pin`; look at the diff, then `farcall pin --accept`."
)

// Load reads a file that Save has written. An error that is fs.ErrNotExist says
// that there is none.
func Load(path string) (*Lock, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no lock file %s: `farcall pin` writes it: %w", path, fs.ErrNotExist)
	case err != nil:
		return nil, err
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes; a lock file has %d at most", path, info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; to begin again, remove the file and run `farcall pin`", path, err)
	}
	return l, nil
}

// Parse reads what Bytes has written, and what version 1 has: the tools of each source, by six of
// their members. Such a file accepts no more than it says: a tool with other members differs from
// it, and nothing else is pinned.
func Parse(data []byte) (*Lock, error) {
	if end, f := scan.Text(data, maxDepth+8); f != scan.OK {
		return nil, fmt.Errorf("line %d: %v", 1+bytes.Count(data[:end], []byte{'\n'}), f)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := jsonv2.Unmarshal(data, &head); err != nil {
		return nil, explain(err)
	}
	switch head.Version {
	case lockVersion:
		return parse(data)
	case 1:
		return parseOld(data)
	}
	return nil, fmt.Errorf("it is of version %d; this farcall reads version %d and 1", head.Version, lockVersion)
}

// A file is the form of a version, with its upstreams as U.
type file[U any] struct {
	About     string       `json:"_"`
	Version   int          `json:"version"`
	Upstreams map[string]U `json:"upstreams"`
}

// written are the items of a list, by their names.
type written map[string]struct {
	SHA256     string      `json:"sha256"`
	Definition jsonrpc.Raw `json:"definition"`
}

func parse(data []byte) (*Lock, error) {
	var f file[map[string]written]
	if err := jsonv2.UnmarshalStrict(data, &f); err != nil {
		return nil, explain(err)
	}
	l := New()
	for source, all := range f.Upstreams {
		l.sources[source] = lists{}
		for list, items := range all {
			if ids[list] == "" {
				return nil, fmt.Errorf("%.100q of %.100q is no list that can be pinned", list, source)
			}
			var err error
			if l.sources[source][list], err = items.read(source, list); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

func parseOld(data []byte) (*Lock, error) {
	var f file[written]
	if err := jsonv2.UnmarshalStrict(data, &f); err != nil {
		return nil, explain(err)
	}
	l := New()
	l.old = true
	for source, tools := range f.Upstreams {
		items, err := tools.read(source, Tools)
		if err != nil {
			return nil, err
		}
		l.sources[source] = lists{Tools: items}
	}
	return l, nil
}

func (w written) read(source, list string) (map[string]*item, error) {
	all := make(map[string]*item, len(w))
	for name, t := range w {
		called, def, err := read(list, t.Definition)
		switch {
		case err != nil:
		case called != name:
			err = fmt.Errorf("its definition is that of %.100q", called)
		case sum(def) != t.SHA256:
			err = errors.New("its definition is not that of its sha256: the file was changed by hand, or not wholly written")
		}
		if err != nil {
			return nil, fmt.Errorf("%.100q of the %s of %.100q: %w", name, list, source, err)
		}
		all[name] = &item{sum: t.SHA256, def: def}
	}
	return all, nil
}

func explain(err error) error {
	p := jsonv2.Explain(err)
	if p.Pointer == "" {
		return fmt.Errorf("it is no lock file: %w", err)
	}
	if p.Reason == "" {
		p.Reason = "it has another type"
	}
	return fmt.Errorf("it is no lock file: at %.200q: %s", p.Pointer, p.Reason)
}

// Bytes returns the content of the file: JSON with a line for each value, in the
// order of the names, so that a change is a change of few lines.
func (l *Lock) Bytes() []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := append(jsonrpc.AppendString([]byte("{\n  \"_\": "), about), ",\n  \"version\": 2,\n  \"upstreams\": {"...)
	for i, source := range slices.Sorted(maps.Keys(l.sources)) {
		out = append(key(out, i, 2, source), '{')
		all := l.sources[source]
		for i, list := range slices.Sorted(maps.Keys(all)) {
			out = appendList(append(key(out, i, 3, list), '{'), all[list])
		}
		out = closing(out, len(all), 2)
	}
	return append(closing(out, len(l.sources), 1), "\n}\n"...)
}

func appendList(out []byte, items map[string]*item) []byte {
	for i, name := range slices.Sorted(maps.Keys(items)) {
		out = append(key(out, i, 4, name), '{')
		out = jsonrpc.AppendString(key(out, 0, 5, "sha256"), items[name].sum)
		out = appendIndented(key(out, 1, 5, "definition"), items[name].def, 5)
		out = append(newLine(out, 4), '}')
	}
	return closing(out, len(items), 3)
}

func newLine(dst []byte, level int) []byte {
	return append(append(dst, '\n'), strings.Repeat("  ", level)...)
}

// key begins a member of an object that is written over several lines.
func key(dst []byte, number, level int, name string) []byte {
	if number > 0 {
		dst = append(dst, ',')
	}
	return append(jsonrpc.AppendString(newLine(dst, level), name), ": "...)
}

func closing(dst []byte, n, level int) []byte {
	if n > 0 {
		dst = newLine(dst, level)
	}
	return append(dst, '}')
}

// appendIndented appends a canonical value over several lines. An array without
// objects or arrays in it takes one.
func appendIndented(dst, value []byte, level int) []byte {
	switch {
	case value[0] == '{':
		n := 0
		dst = append(dst, '{')
		scan.Object(value, func(name, v []byte) bool {
			dst = appendIndented(key(dst, n, level+1, string(name)), v, level+1)
			n++
			return true
		})
		return closing(dst, n, level)
	case value[0] == '[' && !flat(value):
		dst = append(dst, '[')
		n := 0
		scan.Array(value, func(v []byte) bool {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = appendIndented(newLine(dst, level+1), v, level+1)
			n++
			return true
		})
		return append(newLine(dst, level), ']')
	case value[0] == '[':
		dst = append(dst, '[')
		n := 0
		scan.Array(value, func(v []byte) bool {
			if n > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(dst, v...)
			n++
			return true
		})
		return append(dst, ']')
	}
	return append(dst, value...)
}

func flat(array []byte) bool {
	ok := true
	scan.Array(array, func(v []byte) bool {
		ok = v[0] != '{' && v[0] != '['
		return ok
	})
	return ok
}

// Save writes the file, whole or not at all.
func (l *Lock) Save(path string) error {
	if err := replace.Whole(path, l.Bytes(), 0o644); err != nil {
		return fmt.Errorf("the lock file cannot be written: %w", err)
	}
	return nil
}
