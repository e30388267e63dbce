package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// endpoints reads the virtual servers.
func (r *reader) endpoints(c *Config) take {
	return func(n *node, path string) {
		r.each(n, path, func(m member, path string) {
			r.spots[path] = m.at
			e := &Endpoint{Name: m.key}
			c.Endpoints = append(c.Endpoints, e)
			if m.value.kind == nullNode {
				r.problemAt(m.at, path, "is empty", "name its tools, as in tools: [files/*]")
				return
			}
			r.fields(m.value, path, map[string]take{
				"title":        r.text(&e.Title),
				"instructions": r.text(&e.Instructions),
				"tools":        r.choice(&e.Tools),
				"deny":         r.choice(&e.Deny),
				"resources":    r.choice(&e.Resources),
				"prompts":      r.choice(&e.Prompts),
				"namespace":    r.text(&e.Namespace),
				"roles":        r.roles(e),
				"overrides":    r.overrides(e),
				"search":       r.search(&e.Search),
			})
		})
	}
}

// roles reads the roles that may use an endpoint, or what is chosen for each.
func (r *reader) roles(e *Endpoint) take {
	list := r.oneOrMore(&e.Roles)
	return func(n *node, path string) {
		if n.kind != mapNode {
			list(n, path)
			return
		}
		e.ByRole = map[string]choice{}
		r.each(n, path, func(m member, path string) {
			if m.value.kind == nullNode {
				e.Roles = append(e.Roles, m.key)
				return
			}
			var c choice
			r.fields(m.value, path, map[string]take{
				"tools": r.choice(&c.Tools), "deny": r.choice(&c.Deny), "resources": r.choice(&c.Resources),
				"prompts": r.choice(&c.Prompts),
			})
			e.ByRole[m.key] = c
		})
	}
}

// choice reads patterns. A list that is empty is not the same as none.
func (r *reader) choice(dst *[]string) take {
	list := r.texts(dst)
	return func(n *node, path string) {
		*dst = []string{}
		list(n, path)
	}
}

// overrides reads the forms of tools.
func (r *reader) overrides(e *Endpoint) take {
	return func(n *node, path string) {
		e.Overrides, e.Forms = map[string]mcp.Transform{}, map[string]toolForm{}
		r.each(n, path, func(m member, path string) {
			var t mcp.Transform
			f := toolForm{From: map[string]string{}}
			r.fields(m.value, path, map[string]take{
				"annotations": r.hints(&f), "trust": r.flag(&f.Trust), "output": r.output(&f),
				"name": r.text(&t.Name), "title": r.text(&t.Title), "description": r.text(&t.Description),
				"args": func(n *node, path string) {
					t.Arguments = map[string]mcp.Argument{}
					r.each(n, path, func(m member, path string) {
						var a mcp.Argument
						var from string
						r.fields(m.value, path, map[string]take{
							"rename": r.text(&a.Name), "description": r.text(&a.Description),
							"default": r.constant(&a.Default), "value": r.constant(&a.Fixed), "hide": r.flag(&a.Hidden),
							"from": r.text(&from),
						})
						t.Arguments[m.key] = a
						if from != "" {
							f.From[m.key] = from
						}
					})
				},
			})
			e.Overrides[m.key], e.Forms[m.key] = t, f
		})
	}
}

// constant reads any value. In a text ${NAME} stands for a variable, as elsewhere.
func (r *reader) constant(dst *any) take {
	return func(n *node, path string) {
		if n.kind != scalarNode || n.bare {
			*dst = jsonrpc.Raw(n.appendJSON(nil))
		} else if text, ok := r.value(n, path); ok {
			*dst = text
		}
	}
}

// endpoints checks the virtual servers.
func (c *checker) endpoints(conf *Config) {
	upstreams := namesOf(conf.Upstreams)
	names := map[string]string{}
	for _, name := range upstreams {
		names[strings.ToLower(name)] = "an upstream"
	}
	for i, e := range conf.Endpoints {
		path := "endpoints[" + strconv.Itoa(i) + "]"
		if e == nil {
			c.problem(path, "it is nil", "remove it")
			continue
		}
		path = "endpoints." + e.Name
		switch other := names[strings.ToLower(e.Name)]; {
		case !upstreamName.MatchString(e.Name) || len(e.Name) > maxName:
			c.problem(path, fmt.Sprintf("%q cannot be a name", e.Name),
				"use up to 64 letters, digits, - and _, as in team-a")
		case other != "":
			c.problem(path, fmt.Sprintf("%q is the name of %s, too, and both are at /mcp/%s", e.Name, other,
				e.Name), "use another")
		}
		names[strings.ToLower(e.Name)] = "another endpoint"
		c.choice(path+".namespace", "namespace", e.Namespace, "auto", "always", "never")
		c.search(path, e.Search, e.Namespace, upstreams)
		c.chosenBy(path, choice{e.Tools, e.Deny, e.Resources, e.Prompts}, upstreams)
		for _, role := range sortedKeys(e.ByRole) {
			c.chosenBy(path+".roles."+role, e.ByRole[role], upstreams)
		}
		if len(e.Roles)+len(e.ByRole) > 0 && conf.Guard == nil {
			c.problem(path+".roles", "without a guard no principal has a role", "add guard, or remove roles")
		}
		c.overrides(path+".overrides", e, upstreams, conf.Guard != nil)
	}
}

// chosenBy checks the patterns of a choice.
func (c *checker) chosenBy(path string, by choice, upstreams []string) {
	for key, patterns := range map[string][]string{
		"tools": by.Tools, "deny": by.Deny,
		"resources": by.Resources, "prompts": by.Prompts,
	} {
		for i, p := range patterns {
			c.chosen(fmt.Sprintf("%s.%s[%d]", path, key, i), p, upstreams)
		}
	}
}

// chosen checks a pattern of UPSTREAM/NAME.
func (c *checker) chosen(path, pattern string, upstreams []string) {
	head, name, ok := strings.Cut(pattern, "/")
	switch {
	case !ok || name == "":
		c.problem(path, c.quote(path, pattern)+" is no pattern of UPSTREAM/NAME",
			"write UPSTREAM/NAME, or UPSTREAM/* for all of it")
	case head == "*" || slices.Contains(upstreams, head):
	default:
		hint := "the upstreams are " + strings.Join(upstreams, ", ")
		if near := nearest(head, upstreams); near != "" {
			hint = "did you mean " + near + "/" + name + "?"
		}
		c.problem(path, fmt.Sprintf("there is no upstream %q", head), hint)
	}
}

// overrides checks the forms of tools.
func (c *checker) overrides(path string, e *Endpoint, upstreams []string, guarded bool) {
	shown := map[string]string{}
	for _, of := range sortedKeys(e.Overrides) {
		at, t := path+"."+of, e.Overrides[of]
		c.chosen(at, of, upstreams)
		if strings.ContainsAny(of, "*?") {
			c.problem(at, "a pattern cannot be overridden", "name one tool")
		}
		form := e.Forms[of]
		c.promises(at, &form)
		c.output(at+".output", form.Output)
		if t.Wrap != nil {
			c.problem(at, "Wrap is for servers of this process", "remove it")
		}
		if t.Name != "" && (!isToolName(t.Name) || strings.Contains(t.Name, "__")) {
			c.problem(at+".name", c.quote(at+".name", t.Name)+" cannot be a name",
				"use up to 128 letters, digits, _, -, . and /, without __")
		}
		if other := shown[t.Name]; t.Name != "" && other != "" {
			c.problem(at+".name", other+" has the same name", "use another")
		}
		shown[t.Name] = of
		for _, name := range sortedKeys(t.Arguments) {
			a, at := t.Arguments[name], at+".args."+name
			if from := e.Forms[of].From[name]; from != "" {
				c.from(at+".from", from, &a, guarded)
			}
			switch hidden := a.Hidden || a.Fixed != nil; {
			case a.Fixed != nil && a.Default != nil:
				c.problem(at, "it has both a value and a default",
					"keep one: callers cannot give an argument that has a value")
			case hidden && cmp.Or(a.Name, a.Description) != "":
				c.problem(at, "callers do not see it, and it has a name or a description for them",
					"remove rename and description, or value and hide")
			}
		}
	}
}
