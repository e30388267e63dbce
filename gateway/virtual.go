package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// virtual is a virtual server of a plan: some of what some of its servers have.
//
// What reaches it goes through the lists of the servers (with pins, and the filters of the
// upstream), then the choice of the endpoint, its overrides, the names of a merged address, and the
// guard. All but the lists go by the name that the upstream has given, so that a tool which is
// shown under another name is judged as what it is.
type virtual struct {
	cfg     *Endpoint
	view    *route.View
	servers []*server
	byRole  map[string]map[string]*route.Rules // of the roles with a choice, by upstream
}

// newVirtual puts a virtual server together of what the plan has.
func newVirtual(c *Endpoint, servers []*server, sources []route.Source, o *route.Options) *virtual {
	v := &virtual{cfg: c, byRole: map[string]map[string]*route.Rules{}}
	for role, of := range c.ByRole {
		v.byRole[role] = map[string]*route.Rules{}
		for _, s := range servers {
			rules := &route.Rules{}
			narrow(of, s.cfg.Name, rules)
			v.byRole[role][s.cfg.Name] = rules
		}
	}
	var chosen []route.Source
	for i, s := range servers {
		if source, some := v.choose(s, sources[i]); some {
			v.servers, chosen = append(v.servers, s), append(chosen, source)
		}
	}
	v.view = route.NewView(chosen, o)
	return v
}

// choose narrows what is shown of a server. It reports whether anything is left.
func (v *virtual) choose(s *server, source route.Source) (_ route.Source, some bool) {
	c, name := v.cfg, s.cfg.Name
	rules := &source.Rules
	narrow(choice{c.Tools, c.Deny, c.Resources, c.Prompts}, name, rules)
	tools, prompts := slices.Concat(c.Tools, c.Deny, sortedKeys(c.Overrides)), slices.Clone(c.Prompts)
	for _, of := range c.ByRole {
		tools, prompts = slices.Concat(tools, of.Tools, of.Deny), append(prompts, of.Prompts...)
	}
	// one upstream may lack it
	ofAll := func(pattern string) bool { return strings.HasPrefix(pattern, "*/") }
	rules.Tools.Expect = chosenOf(slices.DeleteFunc(tools, ofAll), name)
	rules.Prompts.Expect = chosenOf(slices.DeleteFunc(prompts, ofAll), name)
	if c.Namespace != "" {
		rules.Namespace = c.Namespace
	}
	if c.Search != nil { // names that search gave must not change when another server has them, too
		rules.Namespace = route.NamespaceAlways
	}
	v.override(name, &rules.Tools)
	left := func(f *route.Filter) bool { return f.Only == nil || len(f.Only) > 0 }
	return source, left(&rules.Tools) || left(&rules.Resources) || left(&rules.Prompts)
}

// choice is what is chosen for a role of an endpoint, or for all of them.
type choice = struct{ Tools, Deny, Resources, Prompts []string }

// narrow leaves in the rules of an upstream what is chosen of it.
func narrow(c choice, upstream string, rules *route.Rules) {
	rules.Tools.Only = chosenOf(c.Tools, upstream)
	rules.Tools.Deny = slices.Concat(rules.Tools.Deny, chosenOf(c.Deny, upstream))
	rules.Resources.Only, rules.Prompts.Only = chosenOf(c.Resources, upstream),
		chosenOf(c.Prompts, upstream)
	if rules.Tools.Only == nil || len(rules.Tools.Only) > 0 {
		return
	}
	if c.Resources == nil {
		rules.Resources.Only = []string{}
	}
	if c.Prompts == nil {
		rules.Prompts.Only = []string{}
	}
}

// chosenOf returns the patterns that are about an upstream, without its name. Nil stays nil.
func chosenOf(patterns []string, upstream string) []string {
	if patterns == nil {
		return nil
	}
	own := []string{}
	for _, p := range patterns {
		if head, name, _ := strings.Cut(p, "/"); head == upstream || head == "*" {
			own = append(own, name)
		}
	}
	return own
}

// override has the tools of an upstream shown in the forms of the endpoint.
func (v *virtual) override(upstream string, f *route.Filter) {
	rename, describe, some := maps.Clone(f.Rename), maps.Clone(f.Describe), false
	for of, t := range v.cfg.Overrides {
		own, ok := strings.CutPrefix(of, upstream+"/")
		if !ok {
			continue
		}
		some = true
		if t.Name != "" {
			put(&rename, own, t.Name)
		}
		if t.Description != "" {
			put(&describe, own, t.Description)
		}
	}
	if !some {
		return
	}
	f.Rename, f.Describe = rename, describe
	f.Show = func(name string, item jsonrpc.Raw) (jsonrpc.Raw, error) {
		of := upstream + "/" + name
		if _, ok := v.cfg.Overrides[of]; !ok {
			return item, nil
		}
		return v.cfg.show(of, item)
	}
}

// arguments gives the call of a tool the arguments that the tool has, in place of those of the form
// in which it is shown. It returns the input schema of the form. An error refuses the arguments.
func (v *virtual) arguments(w *calling, target *route.Target) (schema jsonrpc.Raw, err error) {
	var own func(*calling, jsonrpc.Raw) (jsonrpc.Raw, error)
	schema = target.Tool.InputSchema
	if v != nil {
		of := target.Source + "/" + target.Name
		if _, ok := v.cfg.Overrides[of]; ok {
			if schema, own, err = v.cfg.form(of, schema); err != nil { // never: it is listed
				return target.Tool.InputSchema, err
			}
		}
	}
	if own == nil && w.via == "" {
		return schema, nil
	}
	given := jsonrpc.Raw(scan.Member(w.Params, "arguments"))
	if len(given) == 0 {
		given = jsonrpc.Raw("{}")
	}
	if w.via != "" {
		if given, err = w.fitted(target, schema, given); err != nil {
			return schema, err
		}
	}
	if own != nil {
		if given, err = own(w, given); err != nil {
			return schema, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %v", err)
		}
	}
	w.Params = withMember(w.Params, "arguments", given)
	return schema, nil
}

// has reports whether a server is behind it.
func (v *virtual) has(upstream string) bool {
	return slices.ContainsFunc(v.servers, func(s *server) bool { return s.cfg.Name == upstream })
}

// admits reports whether the caller in ctx has a role that the endpoint wants.
func (v *virtual) admits(ctx context.Context) bool {
	return v == nil || len(v.cfg.Roles)+len(v.cfg.ByRole) == 0 ||
		v.forRole(ctx, func(rules map[string]*route.Rules) bool { return true })
}

// forRole reports whether the caller in ctx has a role of the endpoint that meets a condition: one
// without a choice does.
func (v *virtual) forRole(ctx context.Context, meets func(map[string]*route.Rules) bool) bool {
	who := guard.From(ctx)
	return who != nil && slices.ContainsFunc(who.Roles, func(role string) bool {
		rules, some := v.byRole[role]
		return some && meets(rules) || slices.Contains(v.cfg.Roles, role)
	})
}

// shown reports whether the caller may use something, and so sees it in lists.
func (e *endpoint) shown(ctx context.Context, kind string, t *route.Target) bool {
	return e.offers(ctx, kind, t) && e.g.shield.shown(ctx, kind, t)
}

// offers reports whether something is in a choice for a role that the caller has. For others it is
// not there.
func (e *endpoint) offers(ctx context.Context, kind string, t *route.Target) bool {
	v := e.virtual()
	return v == nil || len(v.cfg.ByRole) == 0 || e.g.plan.Load().byName[t.Source].isSignIn(t) ||
		v.forRole(ctx, func(rules map[string]*route.Rules) bool {
			return rules[t.Source] != nil && rules[t.Source].Show(kind, t.Name)
		})
}

// virtual returns the virtual server that the endpoint is for, or nil.
func (e *endpoint) virtual() *virtual { return e.g.plan.Load().virtual[e.name] }

// errNotThere refuses a caller when the endpoint is not there for it.
func errNotThere() error {
	return jsonrpc.Errorf(jsonrpc.MethodNotFound,
		"Method not found: there is no MCP server of this name")
}

// explained returns the servers that callers get reasons for: errors name what a pin blocks there.
// A virtual server has none, since a reason could show what was not chosen.
func (e *endpoint) explained() []*server {
	if e.virtual() != nil {
		return nil
	}
	_, servers := e.servers()
	return servers
}

// A toolForm is what an override of an endpoint says of a tool beside its mcp.Transform.
type toolForm struct {
	Annotations jsonrpc.Raw // members in place of those of the tool, an object; nil: none
	// the annotations may promise more than MCP assumes of a tool without any
	Trust  bool
	Output *outputForm // nil: results are shown as they are
	// where arguments come from, by the tool's names for them: see fromID
	From map[string]string
}

// What an argument may come from.
const (
	fromID     = "principal.id"
	fromIssuer = "principal.issuer"
	fromClaim  = "principal.claims." // and the name of a claim
	fromHeader = "header."           // and the name of a header of the HTTP request
)

// form returns the input schema of a tool as the endpoint shows it, and what makes arguments of the
// tool out of those of a call. It fails when the override does not fit the tool.
func (e *Endpoint) form(
	of string, schema jsonrpc.Raw,
) (shown jsonrpc.Raw, own func(w *calling, given jsonrpc.Raw) (jsonrpc.Raw, error), err error) {
	t, from := e.Overrides[of], e.Forms[of].From
	if len(from) > 0 {
		all := map[string]mcp.Argument{}
		maps.Copy(all, t.Arguments)
		for name := range from {
			schema, all[name] = withoutRequired(schema, name), mcp.Argument{Hidden: true}
		}
		t.Arguments = all
	}
	tool, apply, err := t.Apply(mcp.Tool{InputSchema: schema})
	if err != nil {
		return nil, nil, err
	}
	return tool.InputSchema, func(w *calling, given jsonrpc.Raw) (jsonrpc.Raw, error) {
		given, err := apply(given)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(from)) {
			value, err := w.valueOf(from[name])
			if err != nil {
				return nil, fmt.Errorf("the argument %q comes from %s: %w", name, from[name], err)
			}
			given = withMember(given, name, value)
		}
		return given, nil
	}, nil
}

// withoutRequired returns the schema of an object in which a property is optional.
func withoutRequired(schema jsonrpc.Raw, name string) jsonrpc.Raw {
	left := jsonrpc.Raw{'['}
	for one := range scan.Elements(scan.Member(schema, "required")) {
		if len(one) > 0 && one[0] == '"' && string(scan.Unquote(one)) != name {
			if len(left) > 1 {
				left = append(left, ',')
			}
			left = append(left, one...)
		}
	}
	if len(left) == 1 {
		return without(schema, "required")
	}
	return withMember(schema, "required", append(left, ']'))
}

// valueOf returns what comes from the caller.
func (w *calling) valueOf(from string) (jsonrpc.Raw, error) {
	if name, ok := strings.CutPrefix(from, fromHeader); ok {
		r := mcphttp.RequestFrom(w)
		if r == nil || len(r.Header.Values(name)) != 1 {
			return nil, errors.New("the request has no such header, or has it more than once")
		}
		return jsonrpc.AppendString(nil, r.Header.Get(name)), nil
	}
	who := guard.From(w)
	if who.Owner() == "" { // anonymous callers have an id in common
		return nil, errors.New("the caller has not shown who it is")
	}
	switch from {
	case fromID:
		return jsonrpc.AppendString(nil, who.ID), nil
	case fromIssuer:
		return jsonrpc.AppendString(nil, who.Issuer), nil
	}
	value, ok := who.Claims[strings.TrimPrefix(from, fromClaim)]
	if !ok {
		return nil, errors.New("the caller has no such claim")
	}
	return jsonv2.Append(nil, value)
}

// show returns the definition of a tool as the endpoint shows it, without its name and description.
func (e *Endpoint) show(of string, item jsonrpc.Raw) (jsonrpc.Raw, error) {
	schema, _, err := e.form(of, scan.Member(item, "inputSchema"))
	if err != nil {
		return nil, fmt.Errorf("the override of the endpoint %s does not fit: %w", e.Name, err)
	}
	item = withMember(item, "inputSchema", schema)
	if title := e.Overrides[of].Title; title != "" {
		item = withMember(item, "title", jsonrpc.AppendString(nil, title))
	}
	if e.Forms[of].Output != nil { // results do not fit it any more
		item = without(item, "outputSchema")
	}
	if hints := e.Forms[of].Annotations; hints != nil {
		all := jsonrpc.Raw(scan.Member(item, "annotations"))
		if len(all) == 0 || all[0] != '{' {
			all = jsonrpc.Raw("{}")
		}
		for key, value := range scan.Members(hints) {
			all = withMember(all, string(key), value)
		}
		item = withMember(item, "annotations", all)
	}
	return item, nil
}

// looser are the annotations that promise more than MCP assumes of a tool without any: clients may
// call such a tool without asking anyone.
var looser = map[string]string{
	"readOnlyHint": "true", "destructiveHint": "false",
	"idempotentHint": "true", "openWorldHint": "false",
}

// promises checks that looser annotations are meant.
func (c *checker) promises(path string, f *toolForm) {
	for key, value := range scan.Members(f.Annotations) {
		at := path + ".annotations." + string(key)
		switch {
		case looser[string(key)] != string(value):
		case !f.Trust:
			c.problem(at, "clients that rely on it may call the tool without asking",
				"add trust: true to the override if it holds, or remove it")
		case c.notice != nil:
			c.notice(at, fmt.Sprintf("clients take %s for the tool's own, whatever the upstream says",
				string(key)+": "+string(value)), "")
		}
	}
}

// hints reads the annotations of an override.
func (r *reader) hints(f *toolForm) take {
	return func(n *node, path string) {
		f.Annotations = jsonrpc.Raw("{}")
		table := map[string]take{}
		for _, hint := range []string{
			"readOnlyHint", "destructiveHint", "idempotentHint",
			"openWorldHint",
		} {
			table[hint] = func(n *node, path string) {
				var is bool
				r.flag(&is)(n, path)
				f.Annotations = withMember(f.Annotations, hint, fmt.Append(nil, is))
			}
		}
		r.fields(n, path, table)
	}
}

// from checks where an argument comes from.
func (c *checker) from(path, from string, a *mcp.Argument, guarded bool) {
	name, ofHeader := strings.CutPrefix(from, fromHeader)
	claim, ofClaim := strings.CutPrefix(from, fromClaim)
	switch {
	case *a != (mcp.Argument{}):
		c.problem(path, "callers do not see what comes from them, and it has other keys",
			"keep from, or the others")
	case ofHeader && unforwarded[textproto.CanonicalMIMEHeaderKey(name)] != "":
		c.problem(path,
			"the header "+name+" is for the gateway alone: "+
				unforwarded[textproto.CanonicalMIMEHeaderKey(name)], "name another header, or principal.id")
	case !ofHeader && !guarded && (from == fromID || from == fromIssuer || ofClaim):
		c.problem(path, "without a guard no caller is known", "add guard, or remove from")
	case from == fromID, from == fromIssuer, ofClaim && claim != "", ofHeader && name != "":
	default:
		c.problem(path, c.quote(path, from)+" is nothing that a caller has",
			"use principal.id, principal.issuer, principal.claims.NAME or header.NAME")
	}
}
