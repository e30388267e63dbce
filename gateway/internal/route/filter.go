package route

import (
	"net/url"
	"path"
	"strings"

	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if glob.Match(p, name) {
			return true
		}
	}
	return false
}
