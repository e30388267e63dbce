package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// An operation is one method of one path.
type operation struct {
	method, path string
	item, node   node // the path item, and what it has for the method
	id           string
	tags         []string

	name    string // of the tool
	renamed string // why that is not the operationId
}

// key is what people call the operation.
func (o *operation) key() string { return o.method + " " + o.path }

// operations returns the operations of the document, in order.
func (b *builder) operations() ([]*operation, error) {
	var all []*operation
	paths := b.top("paths")
	if !paths.is('{') && !b.top("webhooks").there() && !b.top("components").there() {
		return nil, fmt.Errorf("the document has no %q", "paths")
	}
	for path, item := range paths.each {
		item, err := b.d.deref(item)
		if err != nil {
			return nil, fmt.Errorf("the path %s: %w", clip(path), err)
		}
		for _, method := range []string{"get", "query", "post", "put", "patch", "delete", "head"} {
			o, err := b.d.deref(item.get(method)) // not in the specification, but in use
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", strings.ToUpper(method), clip(path), err)
			}
			if o.is('{') {
				all = append(all, &operation{
					method: strings.ToUpper(method), path: path, item: item, node: o,
					id: o.get("operationId").text(), tags: o.get("tags").texts(),
				})
			}
		}
		if len(all) > maxOperations {
			return nil, fmt.Errorf("the document has more than %d operations", maxOperations)
		}
	}
	slices.SortStableFunc(all, func(a, b *operation) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// extension reads a member of x-mcp, or of Speakeasy's x-speakeasy-mcp, as a text.
func (o *operation) extension(name string) string {
	for _, x := range []string{"x-mcp", "x-speakeasy-mcp"} {
		if v := o.node.get(x).get(name); v.is('"') {
			return v.text()
		}
	}
	return ""
}

func (o *operation) skipped() bool {
	return o.node.get("x-mcp").get("skip").yes() || o.node.get("x-speakeasy-mcp").get("disabled").yes()
}

// extensionHint reads an annotation: x-mcp has them in annotations, Speakeasy side by side.
func (o *operation) extensionHint(name string) (value, ok bool) {
	for _, at := range []node{o.node.get("x-mcp").get("annotations"), o.node.get("x-speakeasy-mcp")} {
		if v := at.get(name); v.is('t') || v.is('f') {
			return v.yes(), true
		}
	}
	return false, false
}

// parameters returns those of the path item and of the operation, which win.
func (b *builder) parameters(o *operation) ([]node, error) {
	var all []node
	at := map[[2]string]int{}
	for _, list := range [][]node{o.item.get("parameters").items(), o.node.get("parameters").items()} {
		for _, p := range list {
			p, err := b.d.deref(p)
			if err != nil {
				return nil, err
			}
			key := [2]string{p.get("in").text(), p.get("name").text()}
			if i, ok := at[key]; ok {
				all[i] = p
				continue
			}
			at[key] = len(all)
			all = append(all, p)
		}
	}
	return all, nil
}

// description is what a model reads of an operation.
func (o *operation) description() string {
	text := o.extension("description")
	if text != "" {
		return shorten(clean(text), 2000)
	}
	summary, first := clean(o.node.get("summary").text()), paragraph(o.node.get("description").text())
	switch {
	case summary == "":
		text = first
	case first == "" || strings.HasPrefix(first, strings.TrimRight(summary, ".")):
		if text = summary; len(first) > len(summary) {
			text = first
		}
	default:
		text = strings.TrimRight(summary, ".") + ". " + first
	}
	if text == "" {
		text = o.key()
		if len(o.tags) > 0 {
			text += " (" + strings.Join(o.tags, ", ") + ")"
		}
		text = clean(text)
	}
	return shorten(text, 400)
}

func (o *operation) title() string {
	return shorten(clean(cmp.Or(o.extension("title"), o.node.get("summary").text())), 64)
}

// A pattern selects operations: "tag:repos", "GET /repos/**", "DELETE **", or the name of a
// tool, such as "issues_*".
type selector struct{ text string }

func (s selector) match(o *operation) bool {
	if tag, ok := strings.CutPrefix(s.text, "tag:"); ok {
		return slices.ContainsFunc(o.tags, func(t string) bool { return glob(tag, t) })
	}
	if method, path, ok := strings.Cut(s.text, " "); ok {
		return (method == "*" || strings.EqualFold(method, o.method)) &&
			glob(strings.TrimSpace(path), o.path)
	}
	return glob(s.text, o.name)
}

// checkSelectors reports those of Allow and Deny that match no operation.
func (b *builder) checkSelectors(all []*operation) {
	for _, of := range []struct {
		name string
		list []string
	}{{"Allow", b.o.Allow}, {"Deny", b.o.Deny}} {
		for _, text := range of.list {
			if !slices.ContainsFunc(all, selector{text}.match) {
				b.warn(nil,
					"the pattern of %s %q matches none of the %d operations; write the name of a tool, GET "+
						"/path/**, or tag:name", of.name, text, len(all))
			}
		}
	}
}

// glob matches * with anything but a slash, and ** with anything.
func glob(pattern, s string) bool {
	literal, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, literal)
	if !ok {
		return false
	}
	rest, deep := strings.CutPrefix(rest, "*")
	for !glob(rest, s) {
		if s == "" || s[0] == '/' && !deep {
			return false
		}
		s = s[1:]
	}
	return true
}

// choose reports whether an operation becomes a tool, and otherwise why not.
func (b *builder) choose(o *operation) (why string, ok bool) {
	allowed, named := len(b.o.Allow) == 0, false
	for _, s := range b.o.Allow {
		if (selector{s}).match(o) {
			// Without a pattern it names one operation.
			allowed, named = true, named || !strings.Contains(s, "*") && !strings.HasPrefix(s, "tag:")
		}
	}
	switch {
	case !allowed:
		return "", false
	case slices.ContainsFunc(b.o.Deny, func(s string) bool { return selector{s}.match(o) }):
		return "", false
	case b.o.ReadOnly && !safe(o.method):
		return "", false
	case o.skipped():
		return "the document says so (x-mcp)", false
	case o.node.get("deprecated").yes() && !named:
		return "it is deprecated; name it in Allow to have it", false
	case o.method == "HEAD" && o.item.get("get").there():
		return "GET does what HEAD does", false
	case b.streamsOnly(o):
		return "it answers with an event stream only", false
	}
	return "", true
}

// streamsOnly reports whether the only successful answer is an event stream.
func (b *builder) streamsOnly(o *operation) bool {
	streams, others := false, false
	for r := range b.successes(o) {
		media := 0
		for name := range r.get("content").each {
			media++
			if mediaName(name) == "text/event-stream" {
				streams = true
			} else {
				others = true
			}
		}
		others = others || media == 0
	}
	return streams && !others
}

func safe(method string) bool { return method == "GET" || method == "QUERY" || method == "HEAD" }

// idempotent methods may be sent again (RFC 9110, section 9.2.2).
func idempotent(method string) bool { return safe(method) || method == "PUT" || method == "DELETE" }

// readServers finds out where the API is.
func (b *builder) readServers() error {
	origin := b.origin
	declared := b.declaredServer(b.root())
	b.declared = declared
	for _, s := range b.o.Servers {
		u, err := parseBase(s)
		if err != nil {
			return fmt.Errorf("Options.Servers: %s: %w", clip(s), err)
		}
		b.servers[originOf(u)] = true
	}
	if b.o.BaseURL != "" {
		u, err := parseBase(b.o.BaseURL)
		if err != nil {
			return fmt.Errorf("Options.BaseURL: %w", err)
		}
		b.base = u
		return nil
	}
	if (len(b.o.Header) > 0 || b.o.Authorizer != nil) && origin.Host == "" {
		return errors.New(
			"Options.Header and Authorizer need Options.BaseURL: the document would choose who gets the " +
				"credentials")
	}
	u, err := origin.Parse(declared)
	if err != nil || declared == "" || u.Host == "" {
		return errors.New("the document does not say where its API is: set Options.BaseURL")
	}
	if u, err = parseBase(u.String()); err != nil {
		return fmt.Errorf("the document's server %s: %w; set Options.BaseURL", clip(declared), err)
	}
	if origin.Host != "" && originOf(u) != originOf(origin) {
		return fmt.Errorf(
			"the document comes from %s, and its server is %s: if you mean that, set Options.BaseURL to %q",
			originOf(origin), originOf(u), u.String())
	}
	b.base = u
	return b.checkBase()
}

// parseBase reads an address below which paths are.
func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, errors.New("it must be https:// or http:// and a host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it must have no user, query and fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// declaredServer returns the first server that a document, path item or operation names, with the
// values of its variables.
func (b *builder) declaredServer(n node) string {
	if b.swagger {
		host := n.get("host").text()
		if host == "" {
			return n.get("basePath").text()
		}
		scheme := "https"
		if all := n.get("schemes").texts(); len(all) > 0 &&
			!strings.Contains(strings.Join(all, " "), "https") {
			scheme = all[0]
		}
		return scheme + "://" + host + n.get("basePath").text()
	}
	servers := n.get("servers").items()
	if len(servers) == 0 {
		return ""
	}
	address := servers[0].get("url").text()
	for name, v := range servers[0].get("variables").each {
		value, ok := b.o.Variables[name]
		if !ok {
			value = v.get("default").text()
		}
		address = strings.ReplaceAll(address, "{"+name+"}", value)
	}
	return address
}

// baseOf returns where an operation is: at the base, unless it names its own server, which must be
// of an origin that is allowed.
func (b *builder) baseOf(o *operation) (*url.URL, error) {
	own := ""
	if !b.swagger {
		own = cmp.Or(b.declaredServer(o.node), b.declaredServer(o.item))
	}
	if own == "" || own == b.declared {
		return b.base, nil
	}
	u, err := b.base.Parse(own)
	if err == nil {
		u, err = parseBase(u.String())
	}
	if err != nil {
		return nil, refusal("its server " + clip(own) + " is no address")
	}
	if d, err := b.base.Parse(b.declared); err == nil && b.declared != "" &&
		originOf(u) == originOf(d) {
		at := *b.base // the document's own server is where the base is
		if strings.TrimRight(d.Path, "/") != u.Path {
			at.Path, at.RawPath = u.Path, u.RawPath
		}
		return &at, nil
	}
	if at := originOf(u); at != originOf(b.base) && !b.servers[at] {
		return nil, refusal(fmt.Sprintf("its server is %s: allow that with Options.Servers", at))
	}
	return u, nil
}

// originOf returns scheme, host and port.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := u.Port()
	if port == "" || port == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		return u.Scheme + "://" + host
	}
	return u.Scheme + "://" + host + ":" + port
}
