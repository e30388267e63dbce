package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/observe/levels"
)

// methodAdmin is how changes of the gateway are named to policies: gateway/admin CHANGE,
// gateway/admin UPSTREAM/CHANGE.
const methodAdmin = "gateway/admin"

// An operator is what the API for operators does with the gateway, and who may.
type operator struct{ g *Gateway }

var (
	_ control.Backend = operator{}
	_ control.Access  = operator{}
)

// Hosts implements control.Access.
func (o operator) Hosts() []string { return o.g.plan.Load().hosts.Hosts }

// errOutside refuses requests of other machines to a gateway that knows no callers.
const errOutside = "without a guard the API is for programs on the machine of the gateway: " +
	"configure a guard, with a rule that allows gateway/status " +
	"or \"gateway/admin *\", to use it from elsewhere"

// Read implements control.Access.
func (o operator) Read(r *http.Request) *control.Problem {
	if o.g.shield == nil {
		return o.outside(r)
	}
	done, err := o.g.shield.Begin(r.Context(), &guard.Call{Method: methodStatus})
	if err != nil {
		return withoutPermission(err, methodStatus, methodStatus)
	}
	done(nil, nil)
	return nil
}

// outside refuses what does not come from this machine. Nil: it does.
func (operator) outside(r *http.Request) *control.Problem {
	if guard.ConnOf(r, "http").Local {
		return nil
	}
	return control.NewProblem(http.StatusForbidden, errOutside)
}

// call is how the guard sees a change.
func (operator) call(c *control.Change) *guard.Call {
	return &guard.Call{Method: methodAdmin, Upstream: c.Upstream, Name: c.Name, Params: c.Params}
}

// Begin implements control.Access.
func (o operator) Begin(
	r *http.Request, c *control.Change,
) (done func(error), refused *control.Problem) {
	end := func(jsonrpc.Raw, error) {}
	if o.g.shield == nil {
		if refused = o.outside(r); refused != nil {
			o.log(r, c, refused)
			return nil, refused
		}
	} else {
		var err error
		if end, err = o.g.shield.Begin(r.Context(), o.call(c)); err != nil {
			needs := callText(&guard.Call{Method: methodAdmin, Upstream: c.Upstream, Name: c.Name})
			refused = withoutPermission(err, needs, methodAdmin+" *")
			o.log(r, c, refused)
			return nil, refused
		}
	}
	return func(err error) {
		o.log(r, c, err)
		if err != nil {
			end(nil, outcome(err))
			return
		}
		end(jsonrpc.Raw("{}"), nil)
	}, nil
}

// Refuse implements control.Access.
func (o operator) Refuse(r *http.Request, c *control.Change, p *control.Problem) {
	if o.g.shield != nil {
		_ = o.g.shield.Refuse(r.Context(), o.call(c), p.Detail) // the caller gets the problem
	}
	o.log(r, c, p)
}

// maxLogged bounds what a line of the log has of the parameters of a change.
const maxLogged = 500

// log writes a line about a change.
func (o operator) log(r *http.Request, c *control.Change, err error) {
	attrs := []any{"change", c.Name}
	if c.Upstream != "" {
		attrs = append(attrs, "upstream", c.Upstream)
	}
	if p := guard.From(r.Context()); p != nil {
		attrs = append(attrs, "principal", p.Name())
	}
	attrs = append(attrs, "address", r.RemoteAddr)
	if len(c.Params) > 0 {
		attrs = append(attrs, "params", string(c.Params[:min(len(c.Params), maxLogged)]))
	}
	if err != nil {
		o.g.log.Warn("a change of the gateway was refused or failed", append(attrs, "error", err)...)
		return
	}
	o.g.log.Info("an operator has changed the gateway", attrs...)
}

// outcome is the error of a change for the audit.
func outcome(err error) error {
	code := jsonrpc.InternalError
	if p, ok := errors.AsType[*control.Problem](err); ok && p.Status < http.StatusInternalServerError {
		code = jsonrpc.InvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: err.Error()}
}

// withoutPermission is the answer for a refusal of the guard.
func withoutPermission(err error, permission, all string) *control.Problem {
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	switch {
	case wire == nil:
		return control.NewProblem(http.StatusForbidden, err.Error())
	case wire.Code == jsonrpc.RateLimited:
		return control.NewProblem(http.StatusTooManyRequests, wire.Message+": try again later")
	case wire.Code == jsonrpc.Unavailable:
		return control.NewProblem(http.StatusServiceUnavailable,
			"the audit cannot be written, so nothing is done: see the log of the gateway")
	}
	text := fmt.Sprintf("this needs a rule of the guard that allows %q", permission)
	if permission != all {
		text += fmt.Sprintf("; %q allows all changes", all)
	}
	p := control.NewProblem(http.StatusForbidden, text)
	p.Permission = permission
	return p
}

// Overview implements control.Backend.
func (o operator) Overview(ctx context.Context) *control.Overview {
	v := &o.g.status().Overview
	v.Upstreams, v.Caller = map[string]int{}, guard.From(ctx).Name()
	for _, u := range o.Upstreams(ctx).Upstreams {
		v.Upstreams[u.State]++
	}
	return v
}

// The states of an upstream that takes no calls until it is enabled: calls from before go on, or
// none does.
const (
	stateDraining = "draining"
	stateDisabled = "disabled"
)

// reasonConfigured is why an upstream that the configuration disables is.
const reasonConfigured = "the configuration has 'disabled: true' for it"

// Upstreams implements control.Backend.
func (o operator) Upstreams(context.Context) *control.Upstreams {
	p := o.g.plan.Load()
	all := &control.Upstreams{Upstreams: []control.Upstream{}}
	for _, c := range p.config.Upstreams {
		all.Upstreams = append(all.Upstreams, o.upstream(p, c).Upstream)
	}
	return all
}

// Upstream implements control.Backend.
func (o operator) Upstream(_ context.Context, name string) (*control.UpstreamDetails, error) {
	p := o.g.plan.Load()
	c, err := p.configured(name)
	if err != nil {
		return nil, err
	}
	return o.upstream(p, c), nil
}

// configured returns an upstream of the configuration. The error is a problem that names the
// likeliest others.
func (p *plan) configured(name string) (*Upstream, error) {
	names := namesOf(p.config.Upstreams)
	if i := slices.IndexFunc(p.config.Upstreams, func(u *Upstream) bool {
		return u.Name == name
	}); i >= 0 {
		return p.config.Upstreams[i], nil
	}
	problem := control.NewProblem(http.StatusNotFound,
		fmt.Sprintf("there is no upstream %.100q", name))
	if near := nearest(name, names); near != "" {
		names = append([]string{near}, slices.DeleteFunc(names, func(n string) bool {
			return n == near
		})...)
		problem.Detail += fmt.Sprintf("; did you mean %q?", near)
	}
	if problem.Candidates = names[:min(len(names), 20)]; len(names) > 0 {
		problem.Detail += "; the upstreams are " + strings.Join(problem.Candidates, ", ")
	}
	return nil, problem
}

// upstream shows an upstream of the configuration.
func (o operator) upstream(p *plan, c *Upstream) *control.UpstreamDetails {
	s := p.byName[c.Name]
	if s == nil {
		return &control.UpstreamDetails{Upstream: c.bare(stateDisabled, reasonConfigured)}
	}
	warnings := p.all.Warnings(c.Name)
	for _, v := range p.virtual {
		warnings = append(warnings, v.view.Warnings(c.Name)...)
	}
	slices.Sort(warnings)
	st := s.status(p)
	return &control.UpstreamDetails{
		Upstream: st.Upstream, Stderr: st.Stderr,
		Warnings: slices.Compact(warnings),
	}
}

// LogLevel implements control.Backend.
func (o operator) LogLevel(context.Context) (*control.LogLevel, error) {
	at := o.g.opts.LogLevels
	if at == nil {
		return nil, control.NewProblem(http.StatusNotImplemented,
			"the level of this log is fixed: the program that embeds the gateway sets Options.LogLevels, "+
				"and farcall needs a log")
	}
	base, own := at.Get()
	return &control.LogLevel{Level: base, Components: own}, nil
}

// SetLogLevel implements control.Backend. All of it is set, or nothing.
func (o operator) SetLogLevel(
	ctx context.Context, to *control.LogLevel,
) (*control.LogLevel, error) {
	if _, err := o.LogLevel(ctx); err != nil {
		return nil, err
	}
	if to.Level == "" && len(to.Components) == 0 {
		return nil, control.NewProblem(http.StatusUnprocessableEntity,
			"neither level nor components is given: there is nothing to set")
	}
	err := o.g.opts.LogLevels.Apply(to.Level, to.Components)
	if err == nil {
		return o.LogLevel(ctx)
	}
	p := control.NewProblem(http.StatusUnprocessableEntity, err.Error())
	if e, ok := errors.AsType[*levels.Error](err); ok {
		p.Candidates = e.Candidates
	}
	return nil, p
}

// Reload implements control.Backend.
func (o operator) Reload(context.Context) (*control.Reloaded, error) {
	if o.g.opts.Reload == nil {
		return nil, control.NewProblem(http.StatusNotImplemented,
			"this gateway has no configuration file: start it with --config to reload one")
	}
	changes, err := o.g.opts.Reload()
	if err == nil {
		return &control.Reloaded{Changes: slices.Concat([]string{}, changes)}, nil
	}
	p := control.NewProblem(http.StatusUnprocessableEntity,
		"the new configuration is refused, and the one before goes on: "+err.Error())
	if bad, ok := errors.AsType[*ConfigError](err); ok {
		p.Detail = "the new configuration is refused, and the one before goes on: correct the findings " +
			"and reload it again"
		for _, f := range bad.Problems {
			p.Findings = append(p.Findings,
				control.Finding{
					File: bad.File, Line: f.Line, Column: f.Column, Path: f.Path,
					Message: f.Message, Hint: f.Hint,
				})
		}
	}
	return nil, p
}

// Dump implements control.Backend.
func (o operator) Dump(context.Context) (*control.Dumped, error) {
	if o.g.opts.Dump == nil {
		return nil, control.NewProblem(http.StatusNotImplemented,
			"this gateway has no flight recorder: remove 'recorder: off' from its configuration")
	}
	path, err := o.g.opts.Dump("operator")
	if err != nil {
		return nil, control.NewProblem(http.StatusInternalServerError,
			"the flight recorder could not be written: "+err.Error())
	}
	return &control.Dumped{File: path}, nil
}

// How long an answer waits for a server that is to end, and for one that is to start.
const (
	endWait   = 5 * time.Second
	startWait = 10 * time.Second
)

// Restart implements control.Backend.
func (o operator) Restart(
	ctx context.Context, name string, how *control.Restart,
) (*control.Upstream, error) {
	what := restart
	if how.Graceful {
		what = restartOrderly
	}
	was := o.g.plan.Load().byName[name]
	up := was != nil && was.mcp != nil && was.mcp.Status().Connections > 0
	return o.order(ctx, name, what, up)
}

// Drain implements control.Backend.
func (o operator) Drain(ctx context.Context, name string) (*control.Upstream, error) {
	return o.order(ctx, name, drain, false)
}

// Disable implements control.Backend.
func (o operator) Disable(ctx context.Context, name string) (*control.Upstream, error) {
	return o.order(ctx, name, disable, false)
}

// Enable implements control.Backend.
func (o operator) Enable(ctx context.Context, name string) (*control.Upstream, error) {
	return o.order(ctx, name, enable, false)
}

// order has an order carried out, and waits a while for what it ends, and for what it starts.
func (o operator) order(
	ctx context.Context, name string, what order, start bool,
) (*control.Upstream, error) {
	c, err := o.g.plan.Load().configured(name)
	if err != nil {
		return nil, err
	}
	now, done, err := o.g.obey(name, what)
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	switch {
	case errors.Is(err, errConfigured), errors.Is(err, errHeld):
		return nil, control.NewProblem(http.StatusConflict, name+" cannot be changed so: "+err.Error())
	case wire != nil:
		return nil, control.NewProblem(http.StatusServiceUnavailable, wire.Message)
	case err != nil:
		return nil, control.NewProblem(http.StatusConflict,
			"nothing has changed: the configuration cannot be applied again: "+err.Error())
	}
	if what == restart || what == disable {
		await(ctx, done)
	}
	if start && now.cfg.forAll() {
		ctx, cancel := context.WithTimeout(ctx, startWait)
		_ = now.mcp.Check(ctx) // the state says what came of it
		cancel()
	}
	return &o.upstream(o.g.plan.Load(), c).Upstream, nil
}

// await waits until a server has ended, for endWait at most.
func await(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// begun is what is known of how a session began.
type begun struct {
	since              time.Time
	principal, address string
	owner              string // of the principal; "": it is not authenticated
}

// beginnings has how the sessions of an endpoint began, until they end.
type beginnings struct {
	mu sync.Mutex
	of map[string]begun // by session
}

func (b *beginnings) add(ctx context.Context, s *mcp.Session) {
	who := guard.From(ctx)
	how := begun{
		since: time.Now(), principal: who.Name(), owner: who.Owner(),
		address: owner.ConnFrom(ctx).Remote,
	}
	if r := mcphttp.RequestFrom(ctx); r != nil {
		how.address = r.RemoteAddr
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]begun{}
	}
	b.of[s.ID()] = how
}

func (b *beginnings) remove(s *mcp.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, s.ID())
}

func (b *beginnings) get(s *mcp.Session) begun {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[s.ID()]
}

// all returns the addresses that clients have used.
func (o operator) all() []*endpoint {
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	return slices.Collect(maps.Values(o.g.endpoints))
}

func (operator) shown(e *endpoint, s *mcp.Session) control.Session {
	how, c := e.began.get(s), s.Client()
	return control.Session{
		ID: s.ID(), Path: strings.TrimSuffix("/mcp/"+e.name, "/"), Principal: how.principal,
		Client:   strings.TrimSpace(c.Name + " " + c.Version),
		Revision: c.Revision, Address: how.address, Since: how.since,
	}
}

// Sessions implements control.Backend: it has all sessions for a caller with the permission, and
// otherwise those of the same principal.
func (o operator) Sessions(ctx context.Context) *control.Sessions {
	mine := guard.From(ctx).Owner()
	found := &control.Sessions{
		Sessions: []control.Session{},
		All: o.g.shield == nil ||
			o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "sessions"}),
	}
	for _, e := range o.all() {
		for s := range e.server.Sessions() {
			if found.All || mine != "" && e.began.get(s).owner == mine {
				found.Sessions = append(found.Sessions, o.shown(e, s))
			}
		}
	}
	slices.SortFunc(found.Sessions, func(a, b control.Session) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
	})
	return found
}

// EndSession implements control.Backend. Who may end one may end all, and so sees all.
func (o operator) EndSession(ctx context.Context, id string) (*control.Session, error) {
	var found *mcp.Session
	var shown control.Session
	for _, e := range o.all() {
		for s := range e.server.Sessions() {
			if s.ID() == id {
				found, shown = s, o.shown(e, s)
			}
		}
	}
	if found == nil {
		return nil, control.NewProblem(http.StatusNotFound,
			"there is no such session: it may have ended; /api/v1/sessions lists those that there are")
	}
	found.End(ctx)
	return &shown, nil
}
