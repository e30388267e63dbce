package route

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/refs"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The kinds of lists.
const (
	Tools     = "tools"
	Resources = "resources"
	Templates = "templates" // of resources
	Prompts   = "prompts"
)

// The ways in which the names of a source may get its prefix.
const (
	NamespaceAlways = "always" // URIs as well
	// NamespaceAuto is for names that another source has too, and for URIs, unless there is one
	// source.
	NamespaceAuto  = "auto"
	NamespaceNever = "never" // no name and no URI; what two sources of this kind have is left out
)

// A Source is an upstream with lists that are merged. Its functions may be called
// from several goroutines at once; the caller they are about is in the ctx.
type Source struct {
	Name  string      // unique in a View
	Refs  refs.Server // writes names and URIs; with the same Name. The zero value: by the name alone
	Rules Rules
	// List returns a whole list, all pages of it (see Collect): the canonical
	// items of a kind. The ctx has the values of one of those who wait for it,
	// and ends when the View does, or when it is no longer needed.
	List func(ctx context.Context, kind string) (List, error)
	// Scope names those who may share what List returns: it is the same text for
	// callers that get the same. It is called often, and must not block. Nil: all.
	Scope func(ctx context.Context) string
}

// Rules say what of a source is shown, and how.
type Rules struct {
	Tools, Resources, Prompts Filter // Resources is for templates too, by their URIs
	Namespace                 string // "": always
}

// A List is what a source has of a kind. The View keeps the items and does not
// change them.
type List struct {
	Items  []jsonrpc.Raw
	TTL    time.Duration // how long it may be shown without asking again; negative: until Invalidate
	Public bool          // all callers get the same
	Note   string        // what is wrong with it though it can be used; see Missing
	// the rules of the source are not for it: it stands in the place of the source's own
	AsItIs bool
}

// Options has what may be chosen for a View.
type Options struct {
	PageSize int // items on a page; default 100
	// how long anybody waits for a list of a source; a tenth where it had nothing the last time;
	// default 10 s
	ListTimeout time.Duration
	MaxLists    int // lists that are kept; default 4096
	MaxBytes    int // bytes of them, and of the merged ones; default 256 MB
	// OnWarning receives why a list of a source is not there or not whole. It must
	// not call the View.
	OnWarning func(source, kind string, err error)
}

// A Target is what a name stands for.
type Target struct {
	Source string
	Name   string // as the source has it; a name, a URI or a URI template
	// as the source has it; nil for a resource that is not listed. Not to be changed
	Item jsonrpc.Raw
	// Guessed: nothing lists the resource, and no template has it; its source is the only one it can
	// be of.
	Guessed bool
	Tool    *Tool // what a tool says of itself; nil for anything else
}

// A Tool is what matters of a tool for each call.
type Tool struct {
	Repeatable  bool   // it may be called twice
	TaskSupport string // "": it does not say
	InputSchema jsonrpc.Raw
}

// An Entry is what is shown, and what it stands for.
type Entry struct {
	Target

	Shown string      // the name
	Raw   jsonrpc.Raw // Item with the name and the description that are shown
}

// A Page is a part of a merged list.
type Page struct {
	Items   []jsonrpc.Raw // with the names that are shown; not to be changed
	Next    string        // the cursor of the next page, or ""
	TTL     time.Duration // how long it may be kept: the shortest of what the sources say
	Public  bool          // it is the same for all callers
	Missing []Missing
}

// Missing says what a page may lack.
type Missing struct {
	Source string `json:"source"`
	State  string `json:"state"` // "absent", "stale": an older list is shown; "partial": some items are not
	Reason string `json:"reason"`
}

// The states of what is Missing.
const (
	Absent  = "absent"
	Stale   = "stale"
	Partial = "partial"
)

// ErrCursor is returned for a cursor that is not one of the list.
var ErrCursor = errors.New("invalid cursor: use nextCursor from the previous page, or omit it")

// An AmbiguousError says that several sources have what a name without a qualifier stands for.
type AmbiguousError struct {
	Kind, Name string
	Candidates []Entry // each with the name that leads to it
}

func (e *AmbiguousError) Error() string {
	names := make([]string, 0, len(e.Candidates))
	sources := make([]string, 0, len(e.Candidates))
	for _, c := range e.Candidates {
		names, sources = append(names, c.Shown), append(sources, c.Source)
	}
	return fmt.Sprintf("%.200q is among the %s of %s: use %s", e.Name, e.Kind,
		strings.Join(sources, " and "), strings.Join(names, " or "))
}

// An UnknownError says that a name was not found, but that not every source
// could be asked.
type UnknownError struct {
	Kind, Name string
	Missing    []Missing
}

func (e *UnknownError) Error() string { return e.Text(true) }

// Text is the error with the reasons why sources cannot be asked, or without.
func (e *UnknownError) Text(why bool) string {
	reasons := make([]string, 0, len(e.Missing))
	for _, m := range e.Missing {
		text := m.Source
		if why {
			text += " (" + strings.TrimPrefix(m.Reason, m.Source+" ") + ")"
		}
		reasons = append(reasons, text)
	}
	return fmt.Sprintf(
		"%.200q is not among the %s of the upstreams that can be asked; it may be of one that cannot: %s",
		e.Name, e.Kind, strings.Join(reasons, ", "))
}

const (
	staleFor  = 5 * time.Minute // how long a list is shown that cannot be had again
	missAfter = time.Second     // a name that is not known makes older lists be asked for again
	maxWaits  = 3               // a source may take that many ListTimeouts, though no caller waits
	maxFetch  = 1024            // lists that are asked for at once
)

// A View is the merged view of several sources. Its methods may be called from
// several goroutines at once.
type View struct {
	opts    Options
	size    atomic.Int64 // of pages
	sources []*source

	mu      sync.Mutex
	closed  bool
	serial  uint64             // of the newest list
	kept    list.List          // of *record, the one used last is in front
	merged  map[string]*merged // by the serials of their lists
	recent  list.List          // of *merged, likewise
	bytes   int                // of both
	ending  map[*fetch]func()  // what is under way
	news    chan struct{}      // closed when a fetch has ended, and another one put in its place
	fetches sync.WaitGroup
}

type source struct {
	Source
	uris    bool // its URIs are qualified
	filters [kinds]*filter
	states  [kinds]state
}

// A state is what is known of one kind of a source: the list that all callers
// share, and those of scopes.
type state struct {
	public *record
	own    map[string]*record
}

// NewView returns the view of the sources, in their order. The sources and their
// rules must not change afterwards. Close ends it.
func NewView(sources []Source, o *Options) *View {
	v := &View{merged: map[string]*merged{}, ending: map[*fetch]func(){}, news: make(chan struct{})}
	if o != nil {
		v.opts = *o
	}
	v.SetPageSize(v.opts.PageSize)
	v.opts.MaxLists = or(v.opts.MaxLists, 4096)
	v.opts.MaxBytes = or(v.opts.MaxBytes, 256<<20)
	v.opts.ListTimeout = or(v.opts.ListTimeout, 10*time.Second)
	for _, s := range sources {
		one := &source{Source: s}
		if one.Refs == (refs.Server{}) {
			one.Refs = refs.Server{Name: s.Name, Label: refs.Label(s.Name)}
		}
		one.uris = s.Rules.Namespace != NamespaceNever &&
			(s.Rules.Namespace != NamespaceAuto || len(sources) > 1)
		one.filters[tools] = newFilter(&s.Rules.Tools)
		one.filters[resources] = newFilter(&s.Rules.Resources)
		one.filters[templates] = one.filters[resources]
		one.filters[prompts] = newFilter(&s.Rules.Prompts)
		v.sources = append(v.sources, one)
	}
	return v
}

// SetPageSize sets the number of items on the pages from now on; 0 is the default.
func (v *View) SetPageSize(n int) { v.size.Store(int64(or(n, 100))) }

func or[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Close stops what is under way and waits for it. The View is of no use
// afterwards.
func (v *View) Close() {
	v.mu.Lock()
	v.closed = true
	for _, end := range v.ending {
		end()
	}
	v.mu.Unlock()
	v.fetches.Wait()
}

// Invalidate says that a list of a source has changed: the next that needs it
// asks for it again. The list of resources includes that of templates.
func (v *View) Invalidate(source, kind string) {
	k, err := kindOf(kind)
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.sources {
		if s.Name != source {
			continue
		}
		s.states[k].invalidate()
		if k == resources {
			s.states[templates].invalidate()
		}
	}
}

func (s *state) invalidate() {
	if s.public != nil {
		s.public.invalidate()
	}
	for _, r := range s.own {
		r.invalidate()
	}
}

// kind is a kind of list, as an index.
type kind int

const (
	tools kind = iota
	resources
	templates
	prompts
	kinds
)

// layouts has what the kinds differ in.
var layouts = [kinds]struct {
	name, member, key string
	uri               bool // the key is a URI
	longest           int  // of a key
}{
	{Tools, "tools", "name", false, 1024},
	{Resources, "resources", "uri", true, 8192},
	{Templates, "resourceTemplates", "uriTemplate", true, 2048},
	{Prompts, "prompts", "name", false, 1024},
}

func kindOf(name string) (kind, error) {
	for k, l := range layouts {
		if l.name == name {
			return kind(k), nil
		}
	}
	return 0, fmt.Errorf("there are no lists of the kind %.50q", name)
}

// Refs returns what writes and reads the qualified forms of a source, and whether its URIs are
// shown in them.
func (v *View) Refs(source string) (r *refs.Server, qualified bool) {
	for _, s := range v.sources {
		if s.Name == source {
			return &s.Refs, s.uris
		}
	}
	return nil, false
}

// long returns the form of a name that says which source has it.
func (s *source) long(k kind, name string) string {
	if layouts[k].uri {
		return s.Refs.QualifyURI(name)
	}
	return s.Refs.QualifyName(name)
}

// cutLong returns the name at the source of a long form.
func (s *source) cutLong(k kind, shown string) (name string, ok bool) {
	if layouts[k].uri {
		return s.Refs.StripURI(shown)
	}
	return s.Refs.StripName(shown)
}

// A Filter says what of a list is shown, and how. It goes by the names that the
// source has given: names of tools and prompts, URIs, URI templates. What is not
// shown cannot be called either.
type Filter struct {
	Allow    []string          // patterns with * and ?; empty: everything
	Only     []string          // likewise, of what Allow has; nil: everything, empty: nothing
	Deny     []string          // likewise; it goes before Allow
	Rename   map[string]string // the names that are shown, or URIs
	Describe map[string]string // the descriptions that are shown
	// Expect has patterns of tools and prompts that should match something: OnWarning receives those
	// that do not. A page lacks what is shown, named without * and ?, and not there: see Missing.
	Expect []string
	// Show returns the form in which an item is shown, but for the name and the description that are
	// given above; an error leaves the item out. A Target has the item as it was. Nil: items are shown
	// as they are.
	Show func(name string, item jsonrpc.Raw) (jsonrpc.Raw, error)
}

type filter struct{ *Filter }

func newFilter(f *Filter) *filter { return &filter{f} }

func (f *filter) allows(name string) bool {
	return (len(f.Allow) == 0 || matchAny(f.Allow, name)) && (f.Only == nil || matchAny(f.Only, name))
}

func (f *filter) denies(name string) bool { return matchAny(f.Deny, name) }

func (f *filter) shows(name string) bool { return f.allows(name) && !f.denies(name) }

// opens reports whether a resource may be read that is not listed. byTemplate
// says that a template which is shown has it. A URI that could be written in
// another way must be allowed in its plainest form too.
func (f *filter) opens(uri string, byTemplate bool) bool {
	if len(f.Allow) == 0 && len(f.Deny) == 0 && f.Only == nil {
		return true
	}
	plain := plainURI(uri)
	if f.denies(uri) || f.denies(plain) {
		return false
	}
	return byTemplate || f.allows(uri) && f.allows(plain)
}

// plainURI returns a URI without escapes, dots as parts of its path, and capitals
// where they mean nothing.
func plainURI(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Opaque != "" {
		return uri
	}
	text := strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Host)
	if u.Path != "" {
		clean := path.Clean("/" + u.Path)
		if strings.HasSuffix(u.Path, "/") && clean != "/" {
			clean += "/"
		}
		text += clean
	}
	if u.RawQuery != "" {
		text += "?" + u.RawQuery
	}
	return text
}

// Show reports whether something of a kind is shown, by the source's own name for it.
func (r *Rules) Show(kind, name string) bool {
	switch kind {
	case Tools:
		return newFilter(&r.Tools).shows(name)
	case Prompts:
		return newFilter(&r.Prompts).shows(name)
	}
	return newFilter(&r.Resources).opens(name, false)
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob.Match(p, name) })
}
