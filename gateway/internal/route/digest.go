package route

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An entry is an item of a source's list that is shown.
type entry struct {
	name  string      // as the source has it
	plain string      // as it is renamed
	raw   jsonrpc.Raw // as the source has it
	shown jsonrpc.Raw // with the name plain, and the description that is shown
	tool  *Tool
}

// A digest is a list of a source as it is kept. It does not change,
// but for what the View notes about it.
type digest struct {
	serial  uint64
	entries []entry
	names   map[string]int // by name
	plains  map[string]int // by plain name; the same map when nothing is renamed

	patterns []pattern // of templates
	opaque   bool      // there are templates that could not be read
	some     bool      // the source has something of the kind, shown or not

	public bool
	bytes  int
	notes  []string
	dead   []string // what is wrong with the configuration of it, for OnWarning alone
	of     List     // what it was made of; got and ttl say since when and how long it may be shown

	// Under the View's lock.
	got  time.Time
	ttl  time.Duration
	kept bool
	in   map[*merged]struct{} // what was made of it
}

// A pattern is a template by which resources may be read that are not listed.
type pattern struct {
	*template

	listed bool // the template is shown
}

const (
	maxNotes     = 5
	maxPatterns  = 1000
	maxDepth     = 512
	entryBytes   = 200 // that an entry needs, about, in addition to its text
	patternBytes = 400
)

// digestOf checks, filters and renames what a source has listed.
func digestOf(k kind, f *filter, l *List) *digest {
	d := &digest{names: map[string]int{}, of: *l, public: l.Public, some: len(l.Items) > 0}
	d.plains = d.names
	if l.AsItIs {
		f = newFilter(&Filter{})
	}
	if len(f.Rename) > 0 && k != templates {
		d.plains = map[string]int{}
	}
	if l.Note != "" {
		d.notes = append(d.notes, tidy(l.Note))
	}
	left := 0
	for i, raw := range l.Items {
		if d.bytes += len(raw); i >= maxItems || d.bytes > maxBytes {
			d.notes = append(d.notes,
				fmt.Sprintf("the list is cut after %d items: it has too many, or they are too large", i))
			break
		}
		if fault := d.take(k, f, raw); fault != "" {
			if left++; left <= maxNotes {
				d.notes = append(d.notes, fmt.Sprintf("item %d is left out: %s", i+1, fault))
			}
		}
	}
	if left > maxNotes {
		d.notes = append(d.notes, fmt.Sprintf("%d more items are left out", left-maxNotes))
	}
	if (k == tools || k == prompts) && !l.AsItIs {
		d.expected(k, f)
	}
	d.bytes += entryBytes*len(d.entries) + patternBytes*len(d.patterns)
	return d
}

// expected notes which patterns that should match something do not. Clients learn the number of
// those that name what is shown: the guard may hide these from them.
func (d *digest) expected(k kind, f *filter) {
	if len(f.Expect) == 0 {
		return
	}
	var names []string
	for _, raw := range d.of.Items {
		if name, fault := nameOf(k, raw); fault == "" {
			names = append(names, name)
		}
	}
	lost := 0
	for _, p := range slices.Compact(slices.Sorted(slices.Values(f.Expect))) {
		if slices.ContainsFunc(names, func(name string) bool { return glob.Match(p, name) }) {
			continue
		}
		d.dead = append(d.dead,
			fmt.Sprintf("%.100q is in the configuration, and nothing has this name", p))
		if !strings.ContainsAny(p, "*?") && f.shows(p) {
			lost++
		}
	}
	if lost > 0 {
		d.notes = append(d.notes, fmt.Sprintf("%d of what the configuration names is not there", lost))
	}
}

// same reports whether the digest of a list would be this one.
func (d *digest) same(l *List) bool {
	return d.public == l.Public && d.of.Note == l.Note && d.of.AsItIs == l.AsItIs &&
		slices.EqualFunc(d.of.Items, l.Items, func(a, b jsonrpc.Raw) bool { return bytes.Equal(a, b) })
}

// take adds an item, or says what is wrong with it.
func (d *digest) take(k kind, f *filter, raw jsonrpc.Raw) (fault string) {
	name, fault := nameOf(k, raw)
	if fault != "" {
		return fault
	}
	listed := f.shows(name)
	if k == templates && !f.denies(name) {
		d.pattern(name, listed)
	}
	if !listed {
		return ""
	}
	e := entry{name: name, plain: name, raw: raw, shown: raw}
	if f.Show != nil {
		var err error
		if e.shown, err = f.Show(name, raw); err != nil {
			return fmt.Sprintf("%.100q cannot be shown: %v", name, err)
		}
	}
	if to := f.Rename[name]; to != "" && k != templates {
		e.plain = to
		e.shown = setMember(e.shown, layouts[k].key, to)
	}
	if text, ok := f.Describe[name]; ok {
		e.shown = setMember(e.shown, "description", text)
	}
	if _, twice := d.names[name]; twice {
		return fmt.Sprintf("%.100q is there twice; the first counts", name)
	}
	if _, twice := d.plains[e.plain]; twice {
		return fmt.Sprintf("%.100q is to be shown as %.100q, which is there already", name, e.plain)
	}
	if len(e.shown) != len(raw) {
		d.bytes += len(e.shown)
	}
	if k == tools {
		e.tool = toolOf(raw)
	}
	d.names[name], d.plains[e.plain] = len(d.entries), len(d.entries)
	d.entries = append(d.entries, e)
	return ""
}

func toolOf(raw jsonrpc.Raw) *Tool {
	t := &Tool{}
	for key, value := range scan.Members(raw) {
		switch string(key) {
		case "annotations":
			t.Repeatable = string(scan.Member(value, "readOnlyHint")) == "true" ||
				string(scan.Member(value, "idempotentHint")) == "true"
		case "execution":
			if support := scan.Member(value, "taskSupport"); len(support) > 0 && support[0] == '"' {
				t.TaskSupport = string(scan.Unquote(support))
			}
		case "inputSchema":
			t.InputSchema = value
		}
	}
	return t
}

func (d *digest) pattern(text string, listed bool) {
	t, ok := newTemplate(text)
	if !ok || len(d.patterns) >= maxPatterns {
		d.opaque = true
		return
	}
	d.patterns = append(d.patterns, pattern{t, listed})
}

// nameOf returns what an item is known by. What two readers might understand
// differently has no name.
func nameOf(k kind, raw jsonrpc.Raw) (name, fault string) {
	if end, f := scan.Text(raw, maxDepth); f != scan.OK {
		return "", fmt.Sprintf("it is no JSON: %v at offset %d", f, end)
	}
	if i := scan.Space(raw, 0); raw[i] != '{' {
		return "", "it is no object"
	}
	var key []byte
	seen, described := 0, 0
	for member, value := range scan.Members(raw) {
		switch string(member) {
		case layouts[k].key:
			key, seen = value, seen+1
		case "description":
			described++
		}
	}
	switch {
	case seen == 0:
		return "", fmt.Sprintf("it has no member %q", layouts[k].key)
	case seen > 1 || described > 1:
		return "", "it has a member twice"
	case key[0] != '"':
		return "", fmt.Sprintf("its member %q is no text", layouts[k].key)
	}
	name = string(scan.Unquote(key))
	switch {
	case name == "":
		return "", fmt.Sprintf("its member %q is empty", layouts[k].key)
	case len(name) > layouts[k].longest:
		return "", fmt.Sprintf("its member %q has %d bytes; %d are allowed", layouts[k].key, len(name),
			layouts[k].longest)
	case strings.ContainsFunc(name, invisible):
		return "", fmt.Sprintf("%.100q has characters that cannot be seen", name)
	}
	return name, ""
}

// invisible reports whether a character of a name can deceive who reads it.
func invisible(r rune) bool {
	return unicode.IsControl(r) || r == utf8.RuneError ||
		unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
}

// tidy makes an untrusted text fit for a message.
func tidy(text string) string {
	const longest = 300
	text = strings.Map(func(r rune) rune {
		if invisible(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= longest {
		return text
	}
	end := longest
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
