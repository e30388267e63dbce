package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Explain implements control.Backend.
func (o operator) Explain(ctx context.Context, q *control.Question) (*control.Explanation, error) {
	if o.g.shield == nil {
		return nil, control.NewProblem(http.StatusNotFound, "there is no guard, so every call is allowed")
	}
	p := o.g.plan.Load()
	who, err := o.asked(ctx, p, q)
	if err != nil {
		return nil, err
	}
	c, err := p.callOf(q)
	if err != nil {
		return nil, err
	}
	x := o.g.shield.Explain(who, &guard.Conn{Transport: "http", Local: q.Local}, c)
	return &control.Explanation{
		Allowed: x.Allowed, Call: callText(c), As: who.Name(), Kind: who.Kind,
		Roles: slices.Concat([]string{}, who.Roles), Policies: slices.Concat([]string{}, x.Policies),
		Reason: x.Reason, Scopes: x.Scopes, Limits: x.Limits, Shadow: x.Shadow,
	}, nil
}

func callText(c *guard.Call) string {
	switch {
	case c.Name == "":
		return c.Method
	case c.Upstream == "":
		return c.Method + " " + c.Name
	}
	return c.Method + " " + c.Upstream + "/" + c.Name
}

// asked returns the principal that a question is about. Only callers with a permission ask about
// others.
func (o operator) asked(
	ctx context.Context, p *plan, q *control.Question,
) (*guard.Principal, error) {
	self := guard.From(ctx)
	if q.As == "" && len(q.Roles) == 0 {
		return self, nil
	}
	if !o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "explain"}) {
		refused := control.NewProblem(http.StatusForbidden,
			`a question about another principal needs a rule of the guard that allows `+
				`"gateway/admin explain"`)
		refused.Permission = methodAdmin + " explain"
		return nil, refused
	}
	who, err := principalNamed(p.config.Guard, cmp.Or(q.As, self.ID), len(q.Roles) > 0)
	if err == nil && len(q.Roles) > 0 {
		who.Roles = q.Roles
	}
	return who, err
}

// principalNamed returns the principal of an id. One that the configuration does not name is a user
// of an issuer; the roles are given.
func principalNamed(c *guard.Config, id string, described bool) (*guard.Principal, error) {
	const anonymous = "anonymous"
	ids := []string{anonymous}
	for _, k := range c.Keys {
		if ids = append(ids, k.ID); k.ID == id {
			return &guard.Principal{
				ID: id, Kind: cmp.Or(k.Kind, "service"), Method: "key", Roles: k.Roles,
				Scopes: k.Scopes, Expires: k.Expires,
			}, nil
		}
	}
	for _, s := range c.Signatures {
		if ids = append(ids, s.ID); s.ID == id {
			return &guard.Principal{
				ID: id, Kind: cmp.Or(s.Kind, "service"), Method: "signature",
				Roles: s.Roles,
			}, nil
		}
	}
	switch {
	case id == anonymous:
		return &guard.Principal{
			ID: anonymous, Kind: anonymous, Method: "none",
			Roles: []string{anonymous},
		}, nil
	case described && len(c.JWT) > 0:
		return &guard.Principal{
			ID: id, Kind: cmp.Or(c.JWT[0].Kind, "user"), Method: "jwt",
			Issuer: c.JWT[0].Issuer,
		}, nil
	case described:
		return &guard.Principal{ID: id, Kind: "user", Method: "mtls"}, nil
	}
	problem := control.NewProblem(http.StatusNotFound,
		fmt.Sprintf(
			"the configuration has no principal %.100q: the parameter role says which roles one has that "+
				"it does not name", id))
	problem.Candidates = ids[:min(len(ids), 20)]
	return nil, problem
}

// shownAs completes a call of a tool by the name that clients see, or by one that is qualified for
// an upstream: its tools may not have been listed.
func (p *plan) shownAs(c *guard.Call, name string) bool {
	for _, e := range p.all.Entries(route.Tools) {
		if e.Shown == name {
			c.Upstream, c.Name = e.Source, e.Name
			return true
		}
	}
	head, rest, _ := strings.Cut(name, "__")
	if p.byName[head] == nil || rest == "" {
		return false
	}
	c.Upstream, c.Name = head, rest
	return true
}

// callOf reads the call of a question.
func (p *plan) callOf(q *control.Question) (*guard.Call, error) {
	c := &guard.Call{}
	var name string
	var spaced bool
	names := namesOf(p.config.Upstreams)
	c.Method, name, spaced = strings.Cut(q.Call, " ")
	if head, _, found := strings.Cut(q.Call, "/"); !spaced && found && slices.Contains(names, head) {
		c.Method, name, spaced = spec.MethodToolsCall, q.Call, true
		if s := p.byName[head]; s != nil && s.mcp == nil {
			c.Method = methodRPC
		}
	}
	switch head, rest, _ := strings.Cut(name, "/"); {
	case !spaced:
	case rest != "" && slices.Contains(names, head):
		c.Upstream, c.Name = head, rest
	case c.Method == methodAdmin:
		c.Name = name
	case c.Method == spec.MethodToolsCall && p.shownAs(c, name):
	case len(names) == 1:
		c.Upstream, c.Name = names[0], name
	default:
		problem := control.NewProblem(http.StatusNotFound,
			fmt.Sprintf("which upstream has %.100q? Write it as %s UPSTREAM/%.100s", name, c.Method, name))
		problem.Candidates = names
		return nil, problem
	}
	if q.Arguments != "" {
		if q.Arguments[0] != '{' || jsonrpc.Valid([]byte(q.Arguments)) != nil {
			return nil, control.NewProblem(http.StatusBadRequest,
				"the parameter arguments is no JSON object")
		}
		c.Arguments = jsonrpc.Raw(q.Arguments)
	}
	p.complete(c)
	return c, nil
}

// complete adds what is known of a tool to its call.
func (p *plan) complete(c *guard.Call) {
	if c.Method != spec.MethodToolsCall {
		return
	}
	c.MCP = true
	for _, e := range p.all.Entries(route.Tools) {
		if e.Source != c.Upstream || e.Name != c.Name {
			continue
		}
		c.Annotations = scan.Member(e.Item, "annotations")
		if e.Tool != nil {
			c.Schema = e.Tool.InputSchema
		}
	}
}
