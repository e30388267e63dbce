package policy

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// world is the entities of one call.
type world struct{ principal, action, resource types.Entity }

// Get implements types.EntityGetter.
func (w *world) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case w.principal.UID:
		return w.principal, true
	case w.resource.UID:
		return w.resource, true
	case w.action.UID:
		return w.action, true
	}
	return types.Entity{}, false
}

// request says a query in Cedar's words, as far as policies look at them, which u says.
func (s *Set) request(q *Query, call string, u *uses) (*world, cedar.Request, error) {
	w, err := s.world(q, call, u)
	if err != nil {
		return nil, cedar.Request{}, fmt.Errorf("the claims of the caller are refused: %w", err)
	}
	context, err := u.contextOf(q)
	if err != nil {
		return nil, cedar.Request{}, fmt.Errorf("the arguments are refused: %w", err)
	}
	return w, cedar.Request{
		Principal: w.principal.UID, Action: w.action.UID, Resource: w.resource.UID,
		Context: context,
	}, nil
}

// world has the entities of a call. That of the caller is remembered, but when it has claims.
func (s *Set) world(q *Query, call string, u *uses) (w *world, err error) {
	w = &world{action: s.call}
	if isRead(q.Method) {
		w.action = s.read
	}
	w.action.UID = types.NewEntityUID(typeAction, types.String(q.Method))
	s.resource(w, q, call, u)
	if s.callers == nil {
		w.principal, err = s.principal(q.Subject)
		return w, err
	}
	who, all := Query{Subject: q.Subject}, uses{}
	h := s.callers.hash(&who, &all)
	if e, ok := s.callers.get(h, &who, &all); ok {
		w.principal = e
		return w, nil
	}
	if w.principal, err = s.principal(q.Subject); err == nil {
		s.callers.put(h, &who, &all, w.principal)
	}
	return w, err
}

// principalType is the type of a principal's entity.
func principalType(kind string) types.EntityType {
	switch kind {
	case "user":
		return typeUser
	case "service":
		return typeService
	case "agent":
		return typeAgent
	case "process":
		return typeProcess
	case anonymousName:
		return typeAnonymous
	}
	return typeOther
}

func (s *Set) principal(p *Subject) (e types.Entity, err error) {
	e.UID = types.NewEntityUID(principalType(p.Kind), types.String(p.Name))
	if s.use.in {
		parents := make([]types.EntityUID, 0, len(p.Roles)+1)
		for _, role := range p.Roles {
			parents = append(parents, types.NewEntityUID(typeRole, types.String(role)))
		}
		if p.Issuer != "" {
			parents = append(parents, types.NewEntityUID(typeIssuer, types.String(p.Issuer)))
		}
		e.Parents = types.NewEntityUIDSet(parents...)
	}
	m := make(types.RecordMap, 4)
	for _, a := range [...]struct {
		name  types.String
		value string
	}{{"id", p.ID}, {"name", p.Name}, {"kind", p.Kind}, {"issuer", p.Issuer}, {"method", p.Method}} {
		if s.use.of(a.name) {
			m[a.name] = types.String(a.value)
		}
	}
	if s.use.of("roles") {
		m["roles"] = wordSet(p.Roles)
	}
	if s.use.of("scopes") {
		m["scopes"] = wordSet(p.Scopes)
	}
	if s.use.of("claims") {
		c, err := claims(p.Claims)
		if err != nil {
			return e, err
		}
		m["claims"] = c
	}
	e.Attributes = types.NewRecord(m)
	return e, nil
}

func (s *Set) resource(w *world, q *Query, call string, u *uses) {
	typ := kind(q.Method, q.Name)
	id, uri := q.Method, ""
	if typ != typeMethod {
		if id = q.Name; q.Upstream != "" {
			id = q.Upstream + "/" + q.Name
		}
	}
	if typ == typeResource {
		uri = q.Name
	}
	w.resource.UID = types.NewEntityUID(types.EntityType(typ), types.String(id))
	var parents []types.EntityUID
	if u.in && q.Upstream != "" {
		parents = append(parents, types.NewEntityUID(typeUpstream, types.String(q.Upstream)))
	}
	if u.in {
		for _, pattern := range s.asks {
			if Match(pattern, call) {
				parents = append(parents, types.NewEntityUID(typePattern, types.String(pattern)))
			}
		}
	}
	if parents != nil {
		w.resource.Parents = types.NewEntityUIDSet(parents...)
	}
	var m types.RecordMap
	for _, a := range [...]struct {
		name  types.String
		value string
	}{{"name", q.Name}, {"upstream", q.Upstream}, {"uri", uri}, {"method", q.Method}, {"call", call}} {
		if u.of(a.name) {
			if m == nil {
				m = make(types.RecordMap, 4)
			}
			m[a.name] = types.String(a.value)
		}
	}
	if m != nil {
		w.resource.Attributes = types.NewRecord(m)
	}
}

func (u *uses) contextOf(q *Query) (types.Record, error) {
	m := types.RecordMap{}
	if u.inContext("arguments") {
		a, err := arguments(q.Arguments, u.inArguments)
		if err != nil {
			return types.Record{}, err
		}
		m["arguments"] = a
	}
	if u.inContext("transport") {
		m["transport"] = types.String(q.Transport)
	}
	if u.inContext("local") {
		m["local"] = types.Boolean(q.Local)
	}
	if u.inContext("time") && !q.Now.IsZero() {
		m["time"] = types.NewDatetime(q.Now)
	}
	if u.inContext("remote") {
		if addr, ok := remote(q.Remote); ok {
			m["remote"] = types.IPAddr(netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	if u.inContext("annotations") {
		m["annotations"] = annotations(q.Annotations)
	}
	if len(m) == 0 {
		return types.Record{}, nil
	}
	return types.NewRecord(m), nil
}

// remote reads an address with or without a port. One of IPv4 in IPv6 is one of IPv4.
func remote(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap().WithZone(""), err == nil
}

// uses is what policies look at: only that is built for a decision.
type uses struct {
	names   map[types.String]bool // attributes, of whatever
	members map[types.String]bool // those of names that may be looked up in arguments
	direct  map[types.String]bool // those of members that are looked up in the arguments themselves
	whole   bool                  // the arguments as a whole
	context bool                  // the context as a whole
	in      bool                  // parents

	transport, annotations bool // of the context: what decisions are remembered by
}

// of reports whether some policy may look at an attribute.
func (u *uses) of(name types.String) bool { return u.names[name] }

// inContext reports whether some policy may look at a member of the context.
func (u *uses) inContext(name types.String) bool { return u.context || u.names[name] }

// values reports whether decisions depend on what cannot be part of a key: claims, arguments, time
// and address.
func (u *uses) values() bool {
	return u.of("claims") || u.inContext("arguments") || u.inContext("time") || u.inContext("remote")
}

// inArguments returns whether some policy may look at a member of the arguments of a call, for
// each.
func (u *uses) inArguments(name []byte) bool {
	return u.whole || u.context || u.direct[types.String(name)]
}

// nothing returns uses that policies are added to.
func nothing() uses {
	return uses{
		names: map[types.String]bool{}, members: map[types.String]bool{},
		direct: map[types.String]bool{},
	}
}

// look finds out what policies use. A name counts wherever it is used: there are many ways to
// get at a record.
func look(list []*compiled) uses {
	u := nothing()
	for _, c := range list {
		maps.Copy(u.names, c.use.names)
		maps.Copy(u.members, c.use.members)
		maps.Copy(u.direct, c.use.direct)
		u.whole, u.context, u.in = u.whole || c.use.whole, u.context || c.use.context, u.in || c.use.in
	}
	u.transport, u.annotations = u.inContext("transport"), u.inContext("annotations")
	return u
}

// usesOf finds out what one policy uses. It takes a while for a long one.
func usesOf(policy *cedar.Policy) uses {
	u := nothing()
	p := (*ast.Policy)(policy.AST())
	for _, scope := range []ast.IsScopeNode{p.Principal, p.Action, p.Resource} {
		switch scope.(type) {
		case ast.ScopeTypeIn, ast.ScopeTypeInSet, ast.ScopeTypeIsIn:
			u.in = true
		}
	}
	for _, cond := range p.Conditions {
		u.node(cond.Body)
	}
	return u
}

func (u *uses) node(n ast.IsNode) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			u.whole = u.whole || isArguments(n) // a look-up in them does not come here
			return u.name(n.Arg, n.Value)
		case ast.NodeTypeHas:
			return u.name(n.Arg, n.Value)
		case ast.NodeTypeRecord: // arguments may be compared with it
			for _, e := range n.Elements {
				u.members[e.Key] = true
			}
		case ast.NodeTypeIn, ast.NodeTypeIsIn:
			u.in = true
		case ast.NodeTypeVariable:
			u.context = u.context || n.Name == "context"
		}
		return true
	})
}

// name notes a name that is looked up in a node, and reports whether the node itself is to be
// looked at.
func (u *uses) name(in ast.IsNode, name types.String) bool {
	u.names[name] = true
	if ofArguments(in) {
		u.members[name] = true
	}
	if isArguments(in) {
		u.names["arguments"], u.direct[name] = true, true
		return false
	}
	return !isContext(in)
}

// isArguments reports whether a node is the arguments.
func isArguments(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "arguments" && isContext(a.Arg)
}

// ofArguments reports whether a node may be the arguments, or in them.
func ofArguments(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return false
	case ast.NodeTypeAccess:
		if isContext(n.Arg) {
			return n.Value == "arguments"
		}
		return ofArguments(n.Arg)
	}
	return true
}

func isContext(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "context"
}
