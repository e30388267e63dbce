package pin

import (
	"bytes"
	"cmp"
	"encoding/json" //nolint:depguard // for json.Indent alone, which keeps the bytes of values
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

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
var ids = map[string]string{
	Server: "name", Tools: "name", Prompts: "name", Resources: "uri",
	Templates: "uriTemplate",
}

// A Lock is the content of a farcall.lock: the lists of upstreams as they were
// accepted. Its methods may be called from several goroutines at once.
type Lock struct {
	mu       sync.RWMutex
	sources  map[string]lists
	versions map[string]uint64 // of the records that it was read from, by source: see Shared
	accepted []string          // in a record: the digests of all that was accepted, until now
}

type lists map[string]map[string]*item

type item struct {
	sum string
	def []byte // canonical
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
	// lines, to be read by a person; without characters that cannot be seen
	Diff string
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
func New() *Lock { return &Lock{sources: map[string]lists{}, versions: map[string]uint64{}} }

// Of returns a Lock that holds what this one has of a source, and no other.
func (l *Lock) Of(source string) *Lock {
	l.mu.RLock()
	defer l.mu.RUnlock()
	one := New()
	if all, ok := l.sources[source]; ok {
		one.sources[source], one.versions[source] = maps.Clone(all), l.versions[source]
	}
	return one
}

// Digest is equal for locks that accept the same.
func (l *Lock) Digest() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var lines []byte
	for source, all := range l.sources {
		for list, items := range all {
			for name, i := range items {
				lines = fmt.Appendf(lines, "%q %q %q %s\n", source, list, name, i.sum)
			}
		}
	}
	return sum(bytes.Join(slices.SortedFunc(bytes.Lines(lines), bytes.Compare), nil))
}

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
	identity := add(add(add([]byte(`{"name":"identity"`), "server", name), "title", title),
		"version", version)
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

// Check compares the items that a source lists with what was accepted. It returns those that are
// the same, and the changes in the order of the items; those of items that are gone come last, in
// the order of their names. Differences beyond 2 MB of definitions and text are left out.
func (l *Lock) Check(source, list string, items []jsonrpc.Raw) (same []jsonrpc.Raw, all []Change) {
	accepted := l.of(source, list)
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
		default:
			same = append(same, raw)
		}
		seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(accepted)) {
		if !seen[name] {
			all = append(all, Change{source, list, name, Removed, differ(accepted[name].def, nil)})
		}
	}
	return same, all
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
	about       = "What servers say about themselves, as it was accepted. farcall blocks what " +
		"differs from its definition here. Written by `farcall pin`; look at the diff, then `farcall " +
		"pin --accept`."
)

// Load reads a file that Save has written. An error that is fs.ErrNotExist says
// that there is none.
func Load(path string) (*Lock, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no lock file %s: `farcall pin` writes it: %w", path,
			fs.ErrNotExist)
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

// Parse reads what Bytes has written.
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
	if head.Version != lockVersion {
		return nil, fmt.Errorf("it is of version %d; this farcall reads version %d", head.Version,
			lockVersion)
	}
	var f file
	if err := jsonv2.UnmarshalStrict(data, &f); err != nil {
		return nil, explain(err)
	}
	l := New()
	l.accepted = f.Accepted
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

type file struct {
	About     string                        `json:"_"`
	Version   int                           `json:"version"`
	Accepted  []string                      `json:"accepted,omitempty"` // in a record
	Upstreams map[string]map[string]written `json:"upstreams"`
}

// written are the items of a list, by their names.
type written map[string]writtenItem

type writtenItem struct {
	SHA256     string      `json:"sha256"`
	Definition jsonrpc.Raw `json:"definition"`
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
			err = errors.New(
				"its definition is not that of its sha256: the file was changed by hand, or not wholly written")
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
	return fmt.Errorf("it is no lock file: at %.200q: %s", p.Pointer,
		cmp.Or(p.Reason, "it has another type"))
}

// Bytes returns the content of the file: JSON with a line for each value, in the
// order of the names, so that a change is a change of few lines.
func (l *Lock) Bytes() []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f := file{
		About: about, Version: lockVersion, Accepted: l.accepted,
		Upstreams: map[string]map[string]written{},
	}
	for source, all := range l.sources {
		f.Upstreams[source] = map[string]written{}
		for list, items := range all {
			w := written{}
			for name, i := range items {
				w[name] = writtenItem{i.sum, i.def}
			}
			f.Upstreams[source][list] = w
		}
	}
	var out bytes.Buffer
	text, err := jsonv2.Append(nil, &f)
	if err = errors.Join(err, json.Indent(&out, text, "", "  ")); err != nil {
		panic(err) //nolint:forbidigo // definitions are valid JSON
	}
	return append(out.Bytes(), '\n')
}

func flat(array []byte) bool {
	for v := range scan.Elements(array) {
		if v[0] == '{' || v[0] == '[' {
			return false
		}
	}
	return true
}

// Save writes the file, whole or not at all.
func (l *Lock) Save(path string) error {
	if err := replace.Whole(path, l.Bytes(), 0o644); err != nil {
		return fmt.Errorf("the lock file cannot be written: %w", err)
	}
	return nil
}
