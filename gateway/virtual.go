package gateway

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
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
}

// newVirtual puts a virtual server together of what the plan has.
func newVirtual(c *Endpoint, servers []*server, sources []route.Source, o *route.Options) *virtual {
	v := &virtual{cfg: c}
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
	rules.Tools.Only = chosenOf(c.Tools, name)
	rules.Tools.Deny = slices.Concat(rules.Tools.Deny, chosenOf(c.Deny, name))
	ofAll := func(pattern string) bool { return strings.HasPrefix(pattern, "*/") } // one upstream may lack it
	rules.Tools.Expect = chosenOf(slices.DeleteFunc(slices.Concat(c.Tools, c.Deny, sortedKeys(c.Overrides)), ofAll), name)
	rules.Prompts.Expect = chosenOf(slices.DeleteFunc(slices.Clone(c.Prompts), ofAll), name)
	inTools := rules.Tools.Only == nil || len(rules.Tools.Only) > 0
	for _, list := range []struct {
		patterns []string
		filter   *route.Filter
	}{{c.Resources, &rules.Resources}, {c.Prompts, &rules.Prompts}} {
		if list.filter.Only = chosenOf(list.patterns, name); list.patterns == nil && !inTools {
			list.filter.Only = []string{}
		}
	}
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
	if v == nil || len(v.cfg.Roles) == 0 {
		return true
	}
	who := guard.From(ctx)
	return who != nil && slices.ContainsFunc(v.cfg.Roles, func(role string) bool { return slices.Contains(who.Roles, role) })
}

// virtual returns the virtual server that the endpoint is for, or nil.
func (e *endpoint) virtual() *virtual { return e.g.plan.Load().virtual[e.name] }

// errNotThere refuses a caller when the endpoint is not there for it.
func errNotThere() error {
	return jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found: there is no MCP server of this name")
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
