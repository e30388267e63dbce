package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Survey is what a server of MCP has said when it was started, or what is at an address.
type Survey struct {
	Upstream string // "": it is of the address Path, such as /mcp/team-a, and has the fields for tools
	Path     string
	// Server is its name and version, Revision that of MCP which it speaks.
	Server, Revision string
	// Took is how long it took to start and to list what it has.
	Took time.Duration
	// Tools, Resources, Templates and Prompts are how many it has, whatever the configuration shows.
	Tools, Resources, Templates, Prompts int
	// Bytes is the size of its list of tools, about four for each token that a model gets.
	Bytes int
	// Of is how many tools are searched in place of being listed; 0: they are listed.
	Of int
	// Missing are the upstreams of an address that are not there.
	Missing []string
	// Err says why the others are zero. Nil: the server is there.
	Err error
	// SignIn: it was not started, because each principal signs in to it.
	SignIn bool

	names map[string][]string    // by kind
	items map[string]jsonrpc.Raw // the tools
}

// Survey starts the servers of MCP, all at once, and asks each for its lists, as a caller without
// credentials and abilities. It returns them in the order of the configuration, and what of the
// configuration has no effect: patterns and names of upstreams and endpoints that match nothing,
// and overrides that do not fit. What is about a server that is not there is left out.
func (g *Gateway) Survey(ctx context.Context) ([]Survey, []Problem) {
	p := g.plan.Load()
	all := make([]Survey, len(p.mcp))
	var wg sync.WaitGroup
	for i, s := range p.mcp {
		wg.Go(func() { all[i] = s.survey(ctx) })
	}
	wg.Wait()
	f := findings{c: p.config, by: map[string]*Survey{}}
	for i := range all {
		if all[i].Err == nil {
			f.by[all[i].Upstream] = &all[i]
		}
	}
	for i, s := range p.mcp {
		if all[i].Err == nil {
			f.upstream(s.cfg)
		}
	}
	for _, e := range p.config.Endpoints {
		f.endpoint(e, "endpoints."+e.Name)
	}
	f.hooks(p.config)
	return all, f.found
}

// ToolLists returns what clients get in answer to tools/list at each address for MCP: as a caller
// without credentials and abilities has it where there is no guard. It starts servers that do not
// run.
func (g *Gateway) ToolLists(ctx context.Context) (all []Survey, err error) {
	p := g.plan.Load()
	add := func(path string, view *route.View, s *Search) error {
		whole, err := view.Whole(ctx, route.Tools)
		if err != nil {
			return err
		}
		tools := whole.Entries()
		l := Survey{Path: path, Tools: len(tools), Bytes: sizeOf(tools)}
		for _, m := range whole.Missing {
			if m.State == route.Absent {
				l.Missing = append(l.Missing, m.Source)
			}
		}
		if s != nil {
			if out, always, searched := s.appendList(nil, tools); searched {
				if l.Tools, l.Of, l.Bytes = always+2, len(tools), len(out); s.Split {
					l.Tools++
				}
			}
		}
		all = append(all, l)
		return nil
	}
	if len(p.mcp) > 0 {
		err = add("/mcp", p.all, p.config.Search)
	}
	for _, s := range p.mcp {
		if err == nil {
			err = add("/mcp/"+s.cfg.Name, s.alone, nil)
		}
	}
	for _, e := range p.config.Endpoints {
		if v := p.virtual[e.Name]; v != nil && err == nil {
			err = add("/mcp/"+e.Name, v.view, e.Search)
		}
	}
	return all, err
}

// survey starts the server and lists what it has.
func (s *server) survey(ctx context.Context) Survey {
	is := Survey{Upstream: s.cfg.Name, names: map[string][]string{}, items: map[string]jsonrpc.Raw{}}
	if s.signIn != nil {
		is.SignIn, is.Err = true, errNoPrincipal
		return is
	}
	began := time.Now()
	info, err := s.mcp.Describe(ctx, upstream.Caller{})
	if err != nil {
		is.Err = err
		return is
	}
	is.Server, is.Revision = strings.TrimSpace(info.Name+" "+info.Version), info.Revision
	for kind, n := range map[string]*int{
		route.Tools: &is.Tools, route.Resources: &is.Resources,
		route.Templates: &is.Templates, route.Prompts: &is.Prompts,
	} {
		list, err := s.whole(ctx, upstream.Caller{}, kind)
		if err != nil {
			is.Err = fmt.Errorf("%s: %w", kind, err)
			return is
		}
		*n = len(list.Items)
		for _, item := range list.Items {
			name, _ := text(item, listKeys[kind])
			is.names[kind] = append(is.names[kind], name)
			if kind == route.Tools {
				is.items[name] = item
				is.Bytes += len(item)
			}
		}
	}
	is.Took = time.Since(began)
	return is
}

// listKeys are the members of items that name them.
var listKeys = map[string]string{
	route.Tools: "name", route.Prompts: "name", route.Resources: "uri",
	route.Templates: "uriTemplate",
}

// findings are what of a configuration has no effect on servers that were surveyed.
type findings struct {
	c     *Config
	by    map[string]*Survey // those that are there
	found []Problem
}

func (f *findings) add(path, message, hint string) {
	f.found = append(f.found, f.c.ProblemAt(path, message, hint))
}

// upstream looks at what the configuration says of the items of an upstream.
func (f *findings) upstream(u *Upstream) {
	names := f.by[u.Name].names
	path := join("upstreams", u.Name)
	for _, of := range []struct {
		key   string
		f     *Filter
		names []string
	}{
		{"tools", &u.Tools, names[route.Tools]},
		{"resources", &u.Resources, slices.Concat(names[route.Resources], names[route.Templates])},
		{"prompts", &u.Prompts, names[route.Prompts]},
	} {
		at := join(path, of.key)
		for key, patterns := range map[string][]string{"allow": of.f.Allow, "deny": of.f.Deny} {
			if u.OpenAPI != nil && of.key == "tools" {
				continue // they choose operations before there are tools
			}
			for i, p := range patterns {
				f.pattern(fmt.Sprintf("%s.%s[%d]", at, key, i), u.Name, p, of.key, of.names)
			}
		}
		for key, table := range map[string]map[string]string{
			"rename":   of.f.Rename,
			"describe": of.f.Describe,
		} {
			for _, name := range sortedKeys(table) {
				f.exact(at+"."+key+"."+name, u.Name, name, of.key, of.names)
			}
		}
	}
}

// endpoint looks at what a virtual server chooses and overrides.
func (f *findings) endpoint(e *Endpoint, path string) {
	for _, of := range []struct {
		key, list string
		patterns  []string
		kinds     []string
	}{
		{"tools", "tools", e.Tools, []string{route.Tools}},
		{"deny", "tools", e.Deny, []string{route.Tools}},
		{"resources", "resources", e.Resources, []string{route.Resources, route.Templates}},
		{"prompts", "prompts", e.Prompts, []string{route.Prompts}},
	} {
		for i, p := range of.patterns {
			head, pattern, _ := strings.Cut(p, "/")
			var names []string
			known := true
			for _, u := range f.c.Upstreams {
				if u.Disabled || head != "*" && u.Name != head {
					continue
				}
				is := f.by[u.Name]
				if is == nil {
					known = false
					break
				}
				for _, kind := range of.kinds {
					names = append(names, is.names[kind]...)
				}
			}
			if known {
				f.pattern(fmt.Sprintf("%s.%s[%d]", path, of.key, i), head, pattern, of.list, names)
			}
		}
	}
	for _, role := range sortedKeys(e.ByRole) {
		of := e.ByRole[role]
		f.endpoint(&Endpoint{
			Tools: of.Tools, Deny: of.Deny, Resources: of.Resources,
			Prompts: of.Prompts,
		}, path+".roles."+role)
	}
	for _, of := range sortedKeys(e.Overrides) {
		head, name, _ := strings.Cut(of, "/")
		is := f.by[head]
		if is == nil {
			continue
		}
		at := path + ".overrides." + of
		if f.exact(at, head, name, "tools", is.names[route.Tools]) {
			if _, _, err := e.form(of, scan.Member(is.items[name], "inputSchema")); err != nil {
				f.add(at, "it does not fit the tool, which is left out: "+err.Error(),
					"compare it with the tool's input schema")
			}
		}
	}
}

// hooks looks at the tools that hooks are about.
func (f *findings) hooks(c *Config) {
	for i, h := range c.Hooks {
		f.endpoint(&Endpoint{Tools: h.Tools}, fmt.Sprintf("hooks[%d]", i))
	}
	for _, u := range c.Upstreams {
		is := f.by[u.Name]
		if is == nil {
			continue
		}
		for i, h := range u.Hooks {
			for n, p := range h.Tools {
				f.pattern(fmt.Sprintf("upstreams.%s.hooks[%d].tools[%d]", u.Name, i, n), u.Name, p, "tools",
					is.names[route.Tools])
			}
		}
	}
}

// pattern reports a pattern that matches nothing.
func (f *findings) pattern(path, of, pattern, what string, names []string) {
	if slices.ContainsFunc(names, func(name string) bool { return glob.Match(pattern, name) }) {
		return
	}
	if !strings.ContainsAny(pattern, "*?") {
		f.exact(path, of, pattern, what, names)
		return
	}
	f.add(path, fmt.Sprintf("%q matches none of the %d %s of %s", pattern, len(names), what,
		f.named(of)), "remove it, unless there will be one")
}

// exact reports whether a name is there, and that it is not.
func (f *findings) exact(path, of, name, what string, names []string) bool {
	if slices.Contains(names, name) {
		return true
	}
	hint := "remove it, unless there will be one"
	if near := nearest(name, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	f.add(path, fmt.Sprintf("%s has no %q among its %d %s", f.named(of), name, len(names), what), hint)
	return false
}

// named is an upstream, or all, in a sentence.
func (f *findings) named(upstream string) string {
	if upstream == "*" {
		return "any of " + strings.Join(slices.Sorted(maps.Keys(f.by)), ", ")
	}
	return upstream
}
