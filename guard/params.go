package guard

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A params is what the params of a call are checked against, whatever they mean.
type params struct {
	maxString, maxDepth int
	keys                bool // that mean something to JavaScript are let through
}

// decided are the members that policies go by. What another reader could take for
// one of them is refused: some do not tell case.
var (
	decided   = []string{"name", "uri", "arguments", "ref", "_meta"}
	reference = []string{"type", "name", "uri"} // in ref
)

// manyMembers is from where on a map finds a member that is given twice.
const manyMembers = 16

// A look is what decides upon the params of a call.
type look struct {
	// names are those that policies look up in the arguments; nil: no policy looks at them.
	names *policy.Names
	// fold is set when policies or a schema look at the params. Then no object may have two members,
	// and the arguments none that differs from names, that a server takes for the same which ignores
	// case, as Go's encoding/json does: what was decided upon is then what it reads.
	fold bool
	// whole: the params are the arguments. Otherwise those are their member of that name.
	whole bool
}

// check returns what is wrong with params, which are valid JSON.
func (p *params) check(b jsonrpc.Raw, l look) error {
	if len(b) == 0 {
		return nil
	}
	w := walk{params: p, look: l, b: b, arguments: l.whole}
	w.value(scan.Space(b, 0), 1)
	if w.bad != "" {
		return fmt.Errorf("%s at byte %d of the params", w.bad, w.at)
	}
	return nil
}

// confused returns which of the names a member differs from in case only, "" for none.
func confused(key []byte, names []string) string {
	for _, name := range names {
		// No letter beyond ASCII is taken for one that a name begins with.
		if len(key) > 0 && key[0]|0x20 == name[0]|0x20 && string(key) != name &&
			strings.EqualFold(string(key), name) {
			return name
		}
	}
	return ""
}

// A walk passes over JSON that is known to be valid, once.
type walk struct {
	*params
	look
	b         []byte
	ref       bool // it is in the member ref
	arguments bool // it is in the arguments
	bad       string
	at        int
}

func (w *walk) fail(at int, format string, args ...any) int {
	if w.bad == "" {
		w.bad, w.at = fmt.Sprintf(format, args...), at
	}
	return len(w.b)
}

// value passes a value and returns its end.
func (w *walk) value(i, depth int) int {
	if depth > w.maxDepth {
		return w.fail(i, "more than %d levels", w.maxDepth)
	}
	if i >= len(w.b) {
		return i
	}
	switch w.b[i] {
	case '"':
		return w.text(i)
	case '{':
		return w.object(i+1, depth)
	case '[':
		return w.list(i+1, depth)
	}
	for i < len(w.b) && !isEnd(w.b[i]) {
		i++
	}
	return i
}

func isEnd(c byte) bool {
	return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n' || c == '\t' || c == '\r'
}

// text passes a string.
func (w *walk) text(i int) int {
	end, _, f := scan.String(w.b, i)
	if f != scan.OK {
		return w.fail(i, "no string")
	}
	if end-i-2 > w.maxString {
		return w.fail(i, "a string of more than %d bytes", w.maxString)
	}
	return end
}

func (w *walk) list(i, depth int) int {
	for i = scan.Space(w.b, i); i < len(w.b) && w.b[i] != ']'; i = scan.Space(w.b, i) {
		i = scan.Space(w.b, w.value(i, depth+1))
		if i < len(w.b) && w.b[i] == ',' {
			i++
		}
	}
	return i + 1
}

// object passes an object, and refuses members that another reader could take for others.
func (w *walk) object(i, depth int) int {
	var all members
	for i = scan.Space(w.b, i); i < len(w.b) && w.b[i] == '"'; i = scan.Space(w.b, i) {
		end, escaped, f := scan.String(w.b, i)
		if f != scan.OK || end-i-2 > w.maxString {
			return w.fail(i, "a name that is no string of at most %d bytes", w.maxString)
		}
		key := w.b[i+1 : end-1]
		if escaped {
			key = scan.Unquote(w.b[i:end])
		}
		if depth == 1 {
			w.arguments = w.whole
		}
		if !w.member(i, depth, key, &all) {
			return len(w.b)
		}
		if depth == 1 {
			w.ref, w.arguments = string(key) == "ref", w.whole || string(key) == "arguments"
		}
		after, _ := scan.Colon(w.b, end)
		i = scan.Space(w.b, w.value(after, depth+1))
		if i < len(w.b) && w.b[i] == ',' {
			i++
		}
	}
	return i + 1
}

// member checks the name of a member, and notes it.
func (w *walk) member(at, depth int, key []byte, all *members) (ok bool) {
	if !w.keys && dangerous(key) {
		w.fail(at, "the name %q, which programs in JavaScript may take for something else,", string(key))
		return false
	}
	if w.fold && bytes.IndexByte(key, 0) >= 0 { // a program in C may take it for the end of the name
		w.fail(at, "the name %.40q, which has a NUL,", string(key))
		return false
	}
	var other string
	switch {
	case depth == 1:
		other = confused(key, decided)
	case depth == 2 && w.ref:
		other = confused(key, reference)
	}
	if other == "" && w.arguments {
		other = w.names.Mistaken(key)
	}
	found := other != ""
	if !found {
		other, found = all.note(key, w.fold)
	}
	switch {
	case !found:
		return true
	case other == string(key):
		w.fail(at, "the member %.40q for the second time", string(key))
	default:
		w.fail(at, "the member %.40q, which could be taken for %.40q,", string(key), other)
	}
	return false
}

// dangerous reports whether a name pollutes prototypes where objects are merged carelessly.
func dangerous(key []byte) bool {
	switch string(key) {
	case "__proto__", "constructor", "prototype":
		return true
	}
	return false
}

func newParams(c *Config) *params {
	return &params{
		maxString: cmp.Or(c.Params.MaxString, 10<<20), maxDepth: cmp.Or(c.Params.MaxDepth, 64),
		keys: c.Params.AllowKeys,
	}
}

// members are the names of an object so far.
type members struct {
	few  [manyMembers][]byte
	many map[string]string // by the folded name, when names are folded
	n    int
}

// note notes a name, and returns the one that was there before and is the same.
func (m *members) note(key []byte, fold bool) (other string, found bool) {
	if m.n < manyMembers {
		for _, k := range m.few[:m.n] {
			if bytes.Equal(k, key) || fold && bytes.EqualFold(k, key) {
				return string(k), true
			}
		}
		m.few[m.n] = key
		m.n++
		return "", false
	}
	return m.noteMany(key, fold)
}

// noteMany is note where there are more names than most objects have.
func (m *members) noteMany(key []byte, fold bool) (other string, found bool) {
	if m.many == nil {
		m.many = make(map[string]string, 4*manyMembers)
		for _, k := range m.few {
			m.many[asKey(k, fold)] = string(k)
		}
	}
	folded := asKey(key, fold)
	if other, found = m.many[folded]; !found {
		m.many[folded] = string(key)
	}
	return other, found
}

// asKey is what names that are the same have in common.
func asKey(name []byte, fold bool) string {
	if !fold {
		return string(name)
	}
	var small [64]byte
	return string(policy.AppendFolded(small[:0], name))
}

// The values of Config.Params.Schemas.
const (
	schemasOff    = "off"
	schemasStrict = "strict"
)

// looks reports whether the arguments of a call are checked against a schema.
func (s *state) looks(c *Call) bool { return len(c.Schema) > 0 && s.c.Params.Schemas != schemasOff }

// fits checks arguments against their schema. What cannot be judged of the schema is left to the
// server, unless the configuration is strict about that.
func (s *state) fits(c *Call) *refusal {
	if !s.looks(c) {
		return nil
	}
	schema := s.g.schemas.get(c.Schema)
	if s.g.schemas.first(schema, c.name()) {
		effect := "it is left to the server"
		if s.c.Params.Schemas == schemasStrict {
			effect = "calls that it is about are refused, since schemas are strict"
		}
		s.g.opts.Logger.Warn("a part of a schema cannot be judged: "+effect, "call", c.name(), "parts",
			schema.Unjudged())
	}
	whole, err := schema.Judge(c.Arguments)
	switch {
	case errors.Is(err, validate.ErrTooComplex):
		return invalid(err, "the params cannot be checked against the schema")
	case err != nil:
		return invalid(err, "the params do not fit the schema")
	case !whole && s.c.Params.Schemas == schemasStrict:
		return refuse(jsonrpc.SchemaNotSupported,
			"the schema has parts that cannot be judged, and schemas are strict: "+
				strings.Join(schema.Unjudged(), "; "))
	}
	return nil
}

// unjudged lists what of the schema of a call cannot be judged.
func (s *state) unjudged(c *Call) []string {
	if !s.looks(c) {
		return nil
	}
	return s.g.schemas.get(c.Schema).Unjudged()
}

// schemas keeps schemas that were compiled.
type schemas struct {
	mu   sync.RWMutex
	kept map[string]*schema
}

// A schema is a compiled schema. told are the calls for which the log has its unjudged parts.
type schema struct {
	*validate.Schema
	told []string
}

const (
	maxSchemas = 10_000
	maxTold    = 100 // calls that have the same schema
)

func (s *schemas) get(raw jsonrpc.Raw) *schema {
	s.mu.RLock()
	known := s.kept[string(raw)]
	s.mu.RUnlock()
	if known != nil {
		return known
	}
	known = &schema{Schema: validate.CompileForeign(raw, validate.Limits{OptionalNulls: true})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.kept[string(raw)]; other != nil {
		return other
	}
	if s.kept == nil || len(s.kept) >= maxSchemas {
		s.kept = map[string]*schema{}
	}
	s.kept[string(raw)] = known
	return known
}

// first reports, once for each call, that parts of its schema cannot be judged.
func (s *schemas) first(known *schema, call string) bool {
	if len(known.Unjudged()) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(known.told) >= maxTold || slices.Contains(known.told, call) {
		return false
	}
	known.told = append(known.told, call)
	return true
}
