package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/guard"
)

var errNoSignIns = control.NewProblem(http.StatusNotFound,
	"principals sign in to no upstream of this gateway: the key sign_in, and an upstream with "+
		"'auth: {type: sign_in}', have them do that")

// SignIns implements control.Backend: it has all sign-ins for a caller with the permission, and
// otherwise those of the same principal.
func (o operator) SignIns(ctx context.Context) (*control.SignIns, error) {
	found := &control.SignIns{
		SignIns: []control.SignIn{},
		All: o.g.shield == nil ||
			o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "sign-ins"}),
	}
	if o.g.signIns == nil {
		return found, nil
	}
	all, damaged, err := o.g.signIns.Store().List()
	if err != nil {
		return nil, signInProblem("the sign-ins cannot be listed: ", err)
	}
	if found.All {
		found.Damaged = damaged
	}
	mine := guard.From(ctx).Owner()
	for _, e := range all {
		if found.All || mine != "" && e.Owner == mine {
			found.SignIns = append(found.SignIns,
				control.SignIn{Principal: e.Principal, Upstream: e.Upstream})
		}
	}
	return found, nil
}

// EndSignIns implements control.Backend. Who may end one may end all.
func (o operator) EndSignIns(
	ctx context.Context, which *control.EndSignIns,
) (*control.EndedSignIns, error) {
	switch {
	case o.g.signIns == nil:
		return nil, errNoSignIns
	case which.All == (which.Principal != "" || which.Upstream != ""):
		return nil, control.NewProblem(http.StatusUnprocessableEntity,
			"say which sign-ins are to end: those of a principal, those to an upstream, those of the one "+
				"to the other, or all")
	}
	p := o.g.plan.Load()
	of, err := p.config.upstreamsOf(o.g.signIns)
	if err != nil {
		return nil, err
	}
	for name := range of {
		if s := p.byName[name]; s != nil && s.signIn != nil {
			of[name] = s.signIn // it forgets what it has in memory
		}
	}
	ended, err := signOut(ctx, o.g.signIns.Store(), of, func(e *signin.Entry) bool {
		return (which.Principal == "" || which.Principal == e.Principal) &&
			(which.Upstream == "" || which.Upstream == e.Upstream)
	})
	failed, partly := errors.AsType[failures](err)
	if err != nil && !partly {
		return nil, signInProblem("nothing was signed out: ", err)
	}
	answer := &control.EndedSignIns{Ended: []control.SignIn{}, Problems: []string{}}
	for _, e := range ended {
		answer.Ended = append(answer.Ended, control.SignIn{Principal: e.Principal, Upstream: e.Upstream})
	}
	for _, err := range failed {
		answer.Problems = append(answer.Problems, err.Error())
	}
	return answer, nil
}

func signInProblem(what string, err error) *control.Problem {
	status := http.StatusInternalServerError
	if errors.Is(err, signin.ErrStore) {
		status = http.StatusServiceUnavailable
	}
	return control.NewProblem(status, what+err.Error())
}
