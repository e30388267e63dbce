package policy

import (
	"fmt"
	"net/netip"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
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
	return w, cedar.Request{Principal: w.principal.UID, Action: w.action.UID, Resource: w.resource.UID, Context: context}, nil
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
