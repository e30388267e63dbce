package gateway

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/mcp/openapi"
)

// operationPattern is a pattern of calls that names operations of an HTTP API: tools/call
// UPSTREAM/METHOD PATH. The names of tools have no spaces.
var operationPattern = regexp.MustCompile(`^tools/call ([^/ ]+)/([A-Za-z*]+ [/*].*)$`)

// operations adds the tools of the operations that the patterns of a guard name to those patterns,
// so that rules, limits and scopes are about tools. A pattern stays as well: without it a list that
// matches nothing would be empty, which means all.
func (c *checker) operations(g *guard.Config, upstreams []*Upstream) {
	for path, patterns := range patternsOf(g) {
		for i, p := range slices.Clone(*patterns) {
			for _, call := range c.toolsOf(fmt.Sprintf("%s[%d]", path, i), p, upstreams) {
				if !slices.Contains(*patterns, call) {
					*patterns = append(*patterns, call)
				}
			}
		}
	}
	for _, p := range sortedKeys(g.Resource.Scopes) {
		for _, call := range c.toolsOf(join("guard.resource.scopes", p), p, upstreams) {
			g.Resource.Scopes[call] = append(slices.Clone(g.Resource.Scopes[call]), g.Resource.Scopes[p]...)
		}
	}
}

// noOperations refuses patterns that name operations where no tools are added to them.
func (c *checker) noOperations(g *guard.Config) {
	const message, hint = "operations can be named only in the file that has their openapi; here it " +
		"matches no tool", "name the tools"
	eachPattern(g, func(path, pattern string) {
		if operationPattern.MatchString(pattern) {
			c.problem(path, message, hint)
		}
	})
}

// toolsOf returns the calls of the tools with the operations that a pattern names.
func (c *checker) toolsOf(path, pattern string, upstreams []*Upstream) (calls []string) {
	parts := operationPattern.FindStringSubmatch(pattern)
	if parts == nil {
		return nil
	}
	apis, known := 0, 0
	for _, u := range upstreams {
		if u == nil || u.Disabled || u.OpenAPI == nil || !glob.Match(parts[1], u.Name) {
			continue
		}
		if apis++; u.OpenAPI.remote() {
			c.problem(path,
				"the operations of "+u.Name+" are not known before its document has been fetched",
				"name tools, or keep the document in a file")
			continue
		}
		if doc := c.apis[u]; doc != nil {
			known++
			calls = append(calls, callsOf(u.Name, parts[2], doc)...)
		}
	}
	switch {
	case apis == 0:
		c.notice(path,
			c.asWritten(path,
				fmt.Sprintf(
					"the pattern %s matches no call: it names an operation, and no upstream %s has openapi",
					c.quote(path, pattern), parts[1])), "")
	case known > 0 && len(calls) == 0:
		c.notice(path,
			c.asWritten(path,
				fmt.Sprintf("the pattern %s matches no call: it names none of the operations that are tools",
					c.quote(path, pattern))), "farcall check lists them")
	}
	return calls
}

func callsOf(upstream, pattern string, doc *openapi.API) (calls []string) {
	method, path, _ := strings.Cut(pattern, " ")
	pattern = strings.ToUpper(method) + " " + path
	for _, t := range doc.Tools() {
		if glob.Match(pattern, t.Operation) {
			calls = append(calls, "tools/call "+upstream+"/"+t.Name)
		}
	}
	return calls
}

// apisOf reads the upstreams of a file when only its guard is wanted, as far as rules name
// operations. What is wrong with them is reported by Load.
func (r *reader) apisOf(n *node) ([]*Upstream, map[*Upstream]*openapi.API) {
	all := n.get("upstreams")
	if all == nil || all.kind != mapNode {
		return nil, nil
	}
	other := &reader{
		file: r.file, dir: r.dir, lenient: true, spots: map[string]spot{},
		written: map[string]string{},
	}
	apis := map[*Upstream]*openapi.API{}
	var list []*Upstream
	for _, m := range all.members {
		if m.value.get("openapi") == nil {
			continue
		}
		u := other.upstream(m, join("upstreams", m.key))
		if u.Disabled || u.OpenAPI == nil {
			continue
		}
		list = append(list, u)
		if doc, err := openapi.Open(u.OpenAPI.Document, u.openAPIOptions()); err == nil &&
			!u.OpenAPI.remote() {
			apis[u] = doc
			r.read = append(r.read, doc.Files()...)
		}
	}
	return list, apis
}

// slims are the words for what is shown of schemas.
var slims = map[string]openapi.Slim{
	"on": openapi.SlimOn, "off": openapi.SlimOff,
	"hard": openapi.SlimHard,
}

// openAPI reads an HTTP API: the path or address of its document, or a map.
func (r *reader) openAPI(u *Upstream, n *node, path string) {
	u.OpenAPI = &OpenAPI{}
	x := &u.OpenAPI.Options
	var slim string
	var text int64
	if n.kind == scalarNode {
		r.documentAt(&u.OpenAPI.Document)(n, path)
		return
	}
	r.fields(n, path, map[string]take{
		"document":         r.documentAt(&u.OpenAPI.Document),
		"refresh":          r.duration(&u.OpenAPI.Refresh),
		"servers":          r.oneOrMore(&x.Servers),
		"variables":        r.table(&x.Variables),
		"allow_private":    r.flag(&x.AllowPrivate),
		"read_only":        r.flag(&x.ReadOnly),
		"max_tools":        r.count(&x.MaxTools),
		"max_name":         r.count(&x.MaxName),
		"max_text":         r.size(&text),
		"optional_headers": r.flag(&x.OptionalHeaders),
		"slim":             r.text(&slim),
		"inline_refs":      r.flag(&x.InlineRefs),
		"output_schemas":   r.flag(&x.OutputSchemas),
		"media_types":      r.table(&x.MediaTypes),
		"index_arrays":     r.flag(&x.IndexArrays),
	})
	x.MaxText = int(text)
	if value, known := slims[slim]; known {
		x.Slim = value
	} else if slim != "" {
		r.problem(path+".slim", fmt.Sprintf("there is no kind of schemas %q", slim),
			"use "+either("on", "off", "hard"))
	}
}

// documentAt reads the path or the address of a document.
func (r *reader) documentAt(dst *string) take {
	return r.scalar(func(_ *node, _, text string) {
		if *dst = text; text != "" && !isURL(text) {
			*dst = r.beside(text)
		}
	})
}

// documents makes a change of a document one of the configuration.
func (r *reader) documents(all []*Upstream, apis map[*Upstream]*openapi.API) {
	for _, u := range all {
		if doc := apis[u]; doc != nil {
			u.documents = doc.Digest()
			r.read = append(r.read, doc.Files()...)
		}
	}
}
