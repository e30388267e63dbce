package validate

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A compiler turns the text of a schema into nodes.
type compiler struct {
	doc       []byte
	limits    Limits
	keywords  map[string]keyword
	nodes     map[int]*node          // by the offset of their text
	resources map[string]*resource   // by URI
	contents  map[int]map[string]int // where what is in a container is, by the container's offset
	pending   []reference            // not resolved yet
	weight    int                    // of all patterns
	dynamic   bool

	foreign  bool     // what cannot be judged is left out, and not an error
	unjudged []string // what was left out
	more     int      // of that, beyond maxUnjudged
}

// maxUnjudged bounds the list of what was left out.
const maxUnjudged = 100

// maxWeights bounds the patterns of a schema together.
const maxWeights = 10 * maxWeight

// A place is where a subschema is.
type place struct {
	at       int // offset of its text
	resource *resource
	depth    int

	// How the compiler came here, for errors.
	from    *place
	keyword string
	name    string // below the keyword
}

// path is a JSON Pointer to the place.
func (p *place) path() string {
	var steps []string // from the end
	for ; p.from != nil; p = p.from {
		if strings.HasPrefix(p.keyword, "#") { // the target of a reference
			return strings.Join(append([]string{p.keyword}, reversed(steps)...), "/")
		}
		if p.name != "" {
			steps = append(steps, escapePointer(p.name))
		}
		steps = append(steps, escapePointer(p.keyword))
	}
	return "/" + strings.Join(reversed(steps), "/")
}

func reversed(steps []string) []string {
	slices.Reverse(steps)
	return steps
}

// A placed error says where in the schema it is.
type placed struct{ error }

func (p *placed) Unwrap() error { return p.error }

// errorf makes a placed error, unless one of its arguments is one.
func (p *place) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if errors.As(err, new(*placed)) {
		return err
	}
	if p.from == nil {
		return &placed{fmt.Errorf("the schema: %w", err)}
	}
	return &placed{fmt.Errorf("the schema at %s: %w", clip(p.path()), err)}
}

// below returns the place of a part of the keyword m.
func (p *place) below(m member, name string, at int) *place {
	return &place{
		at: at, resource: p.resource, depth: p.depth + 1, from: p, keyword: m.name,
		name: name,
	}
}

// A member of an object of the schema: its name and where its value is.
type member struct {
	name    string
	at, end int
}

// A reference waits until all anchors are known.
type reference struct {
	from  *node
	place *place // of the keyword
	to    string
}

func compile(schema []byte, limits Limits, foreign bool) (*Schema, error) {
	if len(schema) > limits.Bytes {
		return nil, fmt.Errorf("the schema has %d bytes, %d are allowed", len(schema), limits.Bytes)
	}
	// A level of subschemas is up to two of JSON; values inside may go deeper.
	if at, f := scan.Text(schema, 4*limits.Depth); f != scan.OK {
		return nil, fmt.Errorf("the schema is no JSON that is accepted here: %s at byte %d", f, at)
	}
	c := &compiler{
		doc: bytes.Clone(schema), limits: limits, keywords: keywords(), foreign: foreign,
		nodes: map[int]*node{}, resources: map[string]*resource{}, contents: map[int]map[string]int{},
	}
	root := &resource{draft: draft2020, at: scan.Space(schema, 0)}
	c.resources[""] = root
	n, err := c.node(&place{at: root.at, resource: root})
	if err != nil {
		return nil, err
	}
	for len(c.pending) > 0 { // a target may bring its own references
		ref := c.pending[0]
		c.pending = c.pending[1:]
		if err := c.resolve(&ref); err != nil {
			if err := c.leave(ref.from, "$ref", ref.place, err); err != nil {
				return nil, err
			}
		}
	}
	if c.loops() {
		return nil, errors.New(
			"the schema: a reference leads back to itself, without going into the value")
	}
	for _, n := range c.nodes {
		c.shorten(n)
	}
	if c.more > 0 {
		c.unjudged = append(c.unjudged, fmt.Sprintf("and %d more", c.more))
	}
	return &Schema{root: n, dynamic: c.dynamic, limits: limits, unjudged: c.unjudged}, nil
}

// leave leaves the keyword at a place out of a node, "" the whole node, because of an error. It
// returns that error when the schema is not foreign.
func (c *compiler) leave(n *node, keyword string, p *place, err error) error {
	if !c.foreign {
		return p.errorf("%w", err)
	}
	if len(c.unjudged) < maxUnjudged { // places may be long
		c.unjudged = append(c.unjudged, strings.TrimPrefix(p.errorf("%w", err).Error(), "the schema at "))
	} else {
		c.more++
	}
	switch keyword {
	case "pattern":
		n.unjudged |= text
		return nil
	case "properties", "patternProperties": // additionalProperties goes by them
		n.objects().open = true
	case "items", "prefixItems": // and one by the other
		n.unjudged |= array
		n.arrays().open = true
	default:
		n.unjudged = anything
	}
	n.open = true
	return nil
}

// node compiles the subschema at a place, unless it is compiled already.
func (c *compiler) node(p *place) (*node, error) {
	if n := c.nodes[p.at]; n != nil {
		return n, nil
	}
	n := &node{types: anything, resource: p.resource}
	if len(c.nodes) >= c.limits.Subschemas {
		return n, c.leave(n, "", p, fmt.Errorf("there are more than %d subschemas", c.limits.Subschemas))
	}
	if p.depth > c.limits.Depth {
		return n, c.leave(n, "", p,
			fmt.Errorf("there are more than %d subschemas inside each other", c.limits.Depth))
	}
	c.nodes[p.at] = n
	switch c.doc[p.at] {
	case 't':
		return n, nil
	case 'f':
		n.never = true
		return n, nil
	case '{':
	default:
		return n, c.leave(n, "", p, errors.New("a schema must be an object, true or false"))
	}
	members, err := c.members(p.at)
	resource := p.resource
	if err == nil {
		resource, err = c.enter(n, members, p)
	}
	if err != nil {
		return n, c.leave(n, "", p, err)
	}
	p.resource, n.resource = resource, resource
	return n, c.apply(n, members, p)
}

// apply applies the keywords of a schema.
func (c *compiler) apply(n *node, members []member, p *place) error {
	draft := p.resource.draft
	if draft < draft2019 {
		if ref := find(members, "$ref"); ref != nil { // what is beside it does not count
			members = []member{*ref}
		}
	}
	s := &subject{c: c, node: n, place: p, members: members}
	for _, m := range members {
		k, known := c.keywords[m.name]
		if !known || draft < k.since || k.until != 0 && draft > k.until {
			continue
		}
		if err := k.apply(s, m); err != nil {
			if err := c.leave(n, m.name, p.below(m, "", m.at), err); err != nil {
				return err
			}
		}
	}
	return nil
}

// members lists the members of an object of the schema.
func (c *compiler) members(at int) ([]member, error) {
	var out []member
	taken := map[string]struct{}{}
	b := c.doc
	for i := at; ; {
		i = scan.Space(b, i+1)
		if b[i] != '"' {
			return out, nil
		}
		keyEnd, _, _ := scan.String(b, i)
		m := member{name: string(scan.Unquote(b[i:keyEnd]))}
		if _, again := taken[m.name]; again {
			return nil, fmt.Errorf("%s is there twice", quoted(m.name))
		}
		taken[m.name] = struct{}{}
		m.at, _ = scan.Colon(b, keyEnd)
		m.end, _ = scan.Value(b, m.at, -1)
		out = append(out, m)
		if i = scan.Space(b, m.end); b[i] != ',' {
			return out, nil
		}
	}
}

// items lists where the elements of an array of the schema are.
func (c *compiler) items(at int) (out []int) {
	b := c.doc
	for i := at; ; {
		if i = scan.Space(b, i+1); b[i] == ']' {
			return out
		}
		out = append(out, i)
		end, _ := scan.Value(b, i, -1)
		if i = scan.Space(b, end); b[i] != ',' {
			return out
		}
	}
}

func find(members []member, name string) *member {
	for i := range members {
		if members[i].name == name {
			return &members[i]
		}
	}
	return nil
}

// word returns the string that a member is, if it is there and one.
func (c *compiler) word(members []member, name string) (string, bool) {
	m := find(members, name)
	if m == nil || c.doc[m.at] != '"' {
		return "", false
	}
	return string(scan.Unquote(c.doc[m.at:m.end])), true
}

// enter returns the resource that a schema belongs to, which it may begin, and
// registers its anchors.
func (c *compiler) enter(n *node, members []member, p *place) (*resource, error) {
	res := p.resource
	d := res.draft
	if uri, ok := c.word(members, "$schema"); ok {
		var known bool
		if d, known = drafts[strings.TrimSuffix(uri, "#")]; !known {
			return nil, unsupported{
				fmt.Errorf("the dialect %s is not supported; these are: %s", quoted(uri), draftNames),
			}
		}
		if p.from == nil {
			res.draft = d
		}
	}
	id, ok := c.word(members, d.id())
	if ok && (d >= draft2019 || find(members, "$ref") == nil) {
		var err error
		if res, err = c.identify(id, d, p); err != nil {
			return nil, err
		}
	}
	return res, c.anchor(n, res, members, id)
}

// identify returns the resource that an id begins, or the one that is already
// there when the id is but an anchor.
func (c *compiler) identify(id string, d draft, p *place) (*resource, error) {
	res := p.resource
	base, fragment, _ := strings.Cut(id, "#")
	if fragment != "" && d >= draft2019 {
		return nil, fmt.Errorf("%s must have no fragment", quoted(id))
	}
	if base == "" {
		return res, nil
	}
	uri, err := join(res.uri, base)
	if err != nil {
		return nil, err
	}
	if other := c.resources[uri]; other != nil {
		return nil, fmt.Errorf("%s is the id of another subschema as well", quoted(uri))
	}
	if p.from != nil {
		res = &resource{at: p.at, draft: d}
	}
	res.uri = uri
	c.resources[uri] = res
	return res, nil
}

// anchor registers the anchors of a schema.
func (c *compiler) anchor(n *node, res *resource, members []member, id string) error {
	add := func(to *map[string]*node, name string) error {
		if other := (*to)[name]; other != nil && other != n {
			return fmt.Errorf("the anchor %s is there twice", quoted(name))
		}
		if *to == nil {
			*to = map[string]*node{}
		}
		(*to)[name] = n
		return nil
	}
	if res.draft < draft2019 {
		if _, name, ok := strings.Cut(id, "#"); ok && name != "" && find(members, "$ref") == nil {
			return add(&res.anchors, name)
		}
		return nil
	}
	var err error
	if name, ok := c.word(members, "$anchor"); ok {
		err = add(&res.anchors, name)
	}
	if m := find(members, "$recursiveAnchor"); m != nil && res.draft == draft2019 &&
		c.doc[m.at] == 't' {
		err = errors.Join(err, add(&res.dynamic, recursive))
	}
	if name, ok := c.word(members, "$dynamicAnchor"); ok && res.draft >= draft2020 {
		err = errors.Join(err, add(&res.anchors, name), add(&res.dynamic, name))
	}
	return err
}

// recursive is the name of 2019-09's only dynamic anchor.
const recursive = "#"

// join resolves a reference against a URI. It leaves the fragment away.
func join(base, ref string) (string, error) {
	r, err := url.Parse(ref)
	if err != nil {
		return "", fmt.Errorf("%s is no URI reference", quoted(ref))
	}
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	return b.ResolveReference(r).String(), nil
}

// AppendCanonical appends the one form that the valid value raw shares with
// everything that equals it in the sense of JSON Schema: members sorted, no
// space, strings and numbers written in one way. Numbers are exact: two are never
// taken for one, as they would be as float64.
func AppendCanonical(dst, raw []byte) []byte {
	switch kindOf[raw[0]] {
	case number:
		d := parseDecimal(raw)
		return d.append(dst)
	case text:
		if bytes.IndexByte(raw, '\\') < 0 {
			return append(dst, raw...)
		}
		return scan.AppendQuoted(dst, scan.Unquote(raw))
	case array:
		dst = append(dst, '[')
		for value := range scan.Elements(raw) {
			dst = append(AppendCanonical(dst, value), ',')
		}
		return append(dst, ']')
	case object:
		type member struct{ name, value []byte }
		var members []member
		for name, value := range scan.Members(raw) {
			members = append(members, member{name, value})
		}
		slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for _, m := range members {
			dst = append(scan.AppendQuoted(dst, m.name), ':')
			dst = append(AppendCanonical(dst, m.value), ',')
		}
		return append(dst, '}')
	default:
		return append(dst, raw...)
	}
}

// resolve finds the target of a reference.
func (c *compiler) resolve(ref *reference) error {
	res := ref.place.resource
	base, fragment, _ := strings.Cut(ref.to, "#")
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return fmt.Errorf("%s is no URI reference", quoted(ref.to))
	}
	if base != "" {
		uri, err := join(res.uri, base)
		if err != nil {
			return err
		}
		if res = c.resources[uri]; res == nil {
			return unsupported{
				fmt.Errorf(
					"%s leads out of the schema; nothing is fetched: put the target under $defs and refer "+
						"to it there", quoted(ref.to)),
			}
		}
	}
	target, err := c.target(res, fragment, ref.place)
	if err != nil {
		return fmt.Errorf("%s: %w", quoted(ref.to), err)
	}
	co := ref.from.combines()
	name := fragment
	if ref.place.keyword == "$recursiveRef" {
		name = recursive
	}
	if ref.place.keyword != "$ref" && target.resource.dynamic[name] == target {
		co.dynamic = append(co.dynamic, dynamicRef{name, target})
		c.dynamic = true
		return nil
	}
	co.refs = append(co.refs, target)
	return nil
}

// target finds what a fragment names in a resource.
func (c *compiler) target(res *resource, fragment string, from *place) (*node, error) {
	if fragment != "" && fragment[0] != '/' {
		if n := res.anchors[fragment]; n != nil {
			return n, nil
		}
		return nil, errors.New("there is no such anchor")
	}
	at := res.at
	if fragment != "" {
		for step := range strings.SplitSeq(fragment[1:], "/") {
			step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
			var ok bool
			if at, ok = c.step(at, step); !ok {
				return nil, fmt.Errorf("there is no %s", quoted(step))
			}
			if n := c.nodes[at]; n != nil {
				res = n.resource
			}
		}
	}
	// A target that no keyword leads to is compiled now.
	return c.node(
		&place{at: at, resource: res, depth: from.depth, from: from, keyword: "#" + fragment})
}

// step goes from a value of the schema to one that it contains.
func (c *compiler) step(at int, name string) (int, bool) {
	inside, known := c.contents[at]
	if !known {
		inside = map[string]int{}
		switch c.doc[at] {
		case '{':
			members, _ := c.members(at)
			for _, m := range members {
				inside[m.name] = m.at
			}
		case '[':
			for i, item := range c.items(at) {
				inside[strconv.Itoa(i)] = item
			}
		}
		c.contents[at] = inside
	}
	at, ok := inside[name]
	return at, ok
}

// A loop is found by walking from each node to those that it applies to the
// same value.
const (
	walking = 1 + iota
	walked
)

// loops reports whether the schema refers to itself without going into the
// value.
func (c *compiler) loops() bool {
	state := map[*node]int{}
	var loop func(n *node) bool
	loop = func(n *node) bool {
		if n == nil || state[n] == walked {
			return false
		}
		if state[n] == walking {
			return true
		}
		if state[n] = walking; slices.ContainsFunc(n.inPlace(), loop) {
			return true
		}
		state[n] = walked
		return false
	}
	for _, n := range c.nodes {
		if loop(n) {
			return true
		}
	}
	return false
}

// inPlace lists the nodes that a node applies to the same value.
func (n *node) inPlace() (out []*node) {
	if n.object != nil {
		for i := range n.object.needs {
			out = append(out, n.object.needs[i].node)
		}
	}
	if c := n.combined; c != nil {
		for _, nodes := range [][]*node{c.refs, c.all, c.any, c.one, {c.not, c.cond, c.then, c.els}} {
			out = append(out, nodes...)
		}
	}
	return out
}

// shorten lets a node that is but a reference be its target.
func (c *compiler) shorten(n *node) {
	target := n
	for co := target.combined; co != nil && target.plain() && len(co.refs) == 1 &&
		(!c.dynamic || co.refs[0].resource == n.resource); co = target.combined {
		target = co.refs[0]
	}
	if target != n {
		n.alias = target
	}
}

// plain reports whether a node is but references.
func (n *node) plain() bool {
	c := n.combined
	return !n.never && n.unjudged == 0 && !n.open && n.types == anything && n.number == nil &&
		n.text == nil && n.object == nil && n.array == nil && n.enum == nil &&
		c.dynamic == nil && c.all == nil && c.any == nil && c.one == nil && c.not == nil &&
		c.cond == nil &&
		c.otherProperties == nil && c.otherItems == nil
}
