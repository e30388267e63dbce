package pin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Lock is the content of a farcall.lock: the tools of upstreams as they were
// accepted. Its methods may be called from several goroutines at once.
type Lock struct {
	mu      sync.RWMutex
	sources map[string]map[string]*tool
}

type tool struct {
	sum  string
	def  []byte                 // canonical
	last atomic.Pointer[[]byte] // a text of the tool that was found to be this one
}

// The kinds of a Change.
const (
	Added   = "added"   // nobody has accepted the tool
	Removed = "removed" // it is not there any more
	Changed = "changed" // it is not what was accepted
	Invalid = "invalid" // it cannot be hashed; Diff says why
)

// A Change is how a tool differs from what was accepted.
type Change struct {
	Source, Tool, Kind string // the tool as its source names it: hostile text
	Diff               string // lines, to be read by a person; without characters that cannot be seen
}

// New returns a Lock that holds nothing.
func New() *Lock { return &Lock{sources: map[string]map[string]*tool{}} }

// Has reports whether the Lock holds anything of a source.
func (l *Lock) Has(source string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.sources[source]
	return ok
}

// Sources returns the names of the sources it holds, in order.
func (l *Lock) Sources() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Sorted(maps.Keys(l.sources))
}

// Allowed reports whether a tool, as its source lists it, is what was accepted.
// What was never accepted is not. The same text is hashed once.
func (l *Lock) Allowed(source string, raw jsonrpc.Raw) bool {
	name := scan.Member(raw, "name")
	if len(name) == 0 || name[0] != '"' {
		return false
	}
	l.mu.RLock()
	t := l.sources[source][string(scan.Unquote(name))]
	l.mu.RUnlock()
	if t == nil {
		return false
	}
	if last := t.last.Load(); last != nil && bytes.Equal(*last, raw) {
		return true
	}
	if got, err := Hash(raw); err != nil || got != t.sum {
		return false
	}
	own := bytes.Clone(raw)
	t.last.Store(&own)
	return true
}

// Check compares the tools that a source lists with what was accepted. The
// changes are in the order of the tools; those of tools that are gone come last,
// in the order of their names.
func (l *Lock) Check(source string, tools []jsonrpc.Raw) []Change {
	l.mu.RLock()
	accepted := l.sources[source]
	l.mu.RUnlock()
	var all []Change
	seen := map[string]bool{}
	for _, raw := range tools {
		name, def, err := read(raw)
		was := accepted[name]
		switch {
		case err != nil:
			all = append(all, Change{source, name, Invalid, line(err.Error()) + "\n"})
		case seen[name]:
			all = append(all, Change{source, name, Invalid, "the tool is there twice\n"})
		case was == nil:
			all = append(all, Change{source, name, Added, diff(nil, def)})
		case !bytes.Equal(was.def, def):
			all = append(all, Change{source, name, Changed, diff(was.def, def)})
		}
		seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(accepted)) {
		if !seen[name] {
			all = append(all, Change{source, name, Removed, diff(accepted[name].def, nil)})
		}
	}
	return all
}

// read returns the name and what is pinned of a tool.
func read(raw jsonrpc.Raw) (name string, def []byte, err error) {
	if def, err = definition(raw); err != nil {
		return "", nil, err
	}
	quoted := scan.Member(def, "name")
	if len(quoted) == 0 || quoted[0] != '"' || len(quoted) == 2 {
		return "", nil, errors.New("the tool has no name")
	}
	return string(scan.Unquote(quoted)), def, nil
}

// Accept makes the tools of a source those that it lists. It changes nothing when
// one of them cannot be hashed.
func (l *Lock) Accept(source string, tools []jsonrpc.Raw) error {
	all := make(map[string]*tool, len(tools))
	for i, raw := range tools {
		name, def, err := read(raw)
		if err == nil && all[name] != nil {
			err = fmt.Errorf("the tool %.100q is there twice", name)
		}
		if err != nil {
			return fmt.Errorf("tool %d of %q cannot be pinned: %w", i+1, source, err)
		}
		all[name] = &tool{sum: sum(def), def: def}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources[source] = all
	return nil
}

// Tools returns what is pinned of the tools of a source, as JSON, in the order of their names.
func (l *Lock) Tools(source string) []jsonrpc.Raw {
	l.mu.RLock()
	defer l.mu.RUnlock()
	tools := l.sources[source]
	list := make([]jsonrpc.Raw, 0, len(tools))
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		list = append(list, tools[name].def)
	}
	return list
}

// Remove forgets a source.
func (l *Lock) Remove(source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sources, source)
}

const (
	lockVersion = 1
	maxFile     = 64 << 20
	about       = "The tools that were accepted. farcall blocks a tool that differs from its definition here. Written by `farcall pin`; look at the diff, then `farcall pin --accept`."
)

// Load reads a file that Save has written. An error that is fs.ErrNotExist says
// that there is none.
func Load(path string) (*Lock, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no lock file, `farcall pin` writes it: %w", err)
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
		return nil, fmt.Errorf("%s: %w; to start anew, remove the file and run `farcall pin`", path, err)
	}
	return l, nil
}

// Parse reads what Bytes has written.
func Parse(data []byte) (*Lock, error) {
	if end, f := scan.Text(data, maxDepth+8); f != scan.OK {
		return nil, fmt.Errorf("line %d: %v", 1+bytes.Count(data[:end], []byte{'\n'}), f)
	}
	var file struct {
		About     string `json:"_"`
		Version   int    `json:"version"`
		Upstreams map[string]map[string]struct {
			SHA256     string      `json:"sha256"`
			Definition jsonrpc.Raw `json:"definition"`
		} `json:"upstreams"`
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := jsonv2.Unmarshal(data, &head); err != nil {
		return nil, explain(err)
	}
	if head.Version != lockVersion {
		return nil, fmt.Errorf("it is of version %d; this farcall reads version %d", head.Version, lockVersion)
	}
	if err := jsonv2.UnmarshalStrict(data, &file); err != nil {
		return nil, explain(err)
	}
	l := New()
	for source, tools := range file.Upstreams {
		all := make(map[string]*tool, len(tools))
		for name, t := range tools {
			called, def, err := read(t.Definition)
			switch {
			case err != nil:
			case called != name:
				err = fmt.Errorf("its definition is that of %.100q", called)
			case sum(def) != t.SHA256:
				err = errors.New("its definition is not that of its sha256: the file was changed by hand, or not wholly written")
			}
			if err != nil {
				return nil, fmt.Errorf("the tool %.100q of %.100q: %w", name, source, err)
			}
			all[name] = &tool{sum: t.SHA256, def: def}
		}
		l.sources[source] = all
	}
	return l, nil
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
	out := append(jsonrpc.AppendString([]byte("{\n  \"_\": "), about), ",\n  \"version\": 1,\n  \"upstreams\": {"...)
	for i, source := range slices.Sorted(maps.Keys(l.sources)) {
		out = key(out, i, 2, source)
		out = append(out, '{')
		tools := l.sources[source]
		for i, name := range slices.Sorted(maps.Keys(tools)) {
			out = key(out, i, 3, name)
			out = append(out, '{')
			out = jsonrpc.AppendString(key(out, 0, 4, "sha256"), tools[name].sum)
			out = appendIndented(key(out, 1, 4, "definition"), tools[name].def, 4)
			out = append(newLine(out, 3), '}')
		}
		out = closing(out, len(tools), 2)
	}
	return append(closing(out, len(l.sources), 1), "\n}\n"...)
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
	f, err := os.CreateTemp(filepath.Dir(path), ".farcall-lock-*")
	if err != nil {
		return fmt.Errorf("the lock file cannot be written: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is there only when something has failed
	_, err = f.Write(l.Bytes())
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("the lock file cannot be written: %w", err)
	}
	return nil
}
