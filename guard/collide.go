package guard

import (
	"fmt"
	"slices"
	"strings"
)

// A named principal is one that an entry of the configuration names.
type named struct {
	path string // of the entry
	p    *Principal
}

// principals returns the principals of the entries that name one.
func (c *Config) principals() (list []named) {
	add := func(path, method, id, kind string, roles, scopes []string) {
		if id != "" {
			list = append(list,
				named{path, &Principal{ID: id, Kind: kind, Method: method, Roles: roles, Scopes: scopes}})
		}
	}
	for i, k := range c.Keys {
		add(fmt.Sprintf("keys[%d]", i), "key", k.ID, or(k.Kind, "service"), k.Roles, k.Scopes)
	}
	for i, k := range c.Signatures {
		add(fmt.Sprintf("signatures[%d]", i), "signature", k.ID, or(k.Kind, "service"), k.Roles, nil)
	}
	for i, m := range c.MTLS {
		add(fmt.Sprintf("mtls[%d]", i), "mtls", m.ID, or(m.Kind, "service"), m.Roles, nil)
	}
	add("stdio", "process", c.Stdio.ID, "process", c.Stdio.Roles, nil)
	return list
}

// checkPrincipals finds principals that collide: two entries are one principal when they have the
// same method, kind and id, and what is kept for it (sessions, tasks, limits) is of both.
func (c *Config) checkPrincipals(f *finder) {
	owners, names := map[string]named{}, map[string]named{}
	for _, n := range c.principals() {
		p := n.p
		if p.ID == anonymousID || p.Kind == anonymousKind {
			f.bad(n.path+".id", `"anonymous" is the principal of callers without credentials`,
				"give it another id and another kind")
			continue
		}
		for _, j := range c.JWT {
			if strings.HasPrefix(p.ID, j.Issuer+"|") {
				f.warn(n.path+".id",
					fmt.Sprintf(
						"it reads as a principal of the issuer %s: rules with principals: [%s] are for both",
						j.Issuer, p.ID), "give it another id")
			}
		}
		if other, ok := owners[p.Owner()]; !ok {
			owners[p.Owner()] = n
		} else if !sameSet(p.Roles, other.p.Roles) || !sameSet(p.Scopes, other.p.Scopes) {
			f.bad(n.path, fmt.Sprintf("it is the same principal as %s (%s %s), with other roles or scopes",
				other.path, p.Kind, p.ID),
				"give both the same, or one of them another id")
		}
		if other, ok := names[p.Name()]; !ok {
			names[p.Name()] = n
		} else if p.Owner() != other.p.Owner() {
			f.warn(n.path+".id",
				fmt.Sprintf(
					"%s has the same id and is another principal (%s by %s, this is %s by %s): people and rules "+
						"with principals: [%s] cannot tell them apart",
					other.path, other.p.Kind, other.p.Method, p.Kind, p.Method, p.ID),
				"give one of them another id")
		}
	}
}

// sameSet reports whether two lists have the same elements.
func sameSet(a, b []string) bool {
	in := func(list []string) func(string) bool {
		return func(s string) bool { return !slices.Contains(list, s) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}
