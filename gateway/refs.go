package gateway

import (
	"cmp"
	"context"
	"errors"

	"github.com/farcall-dev/farcall/gateway/internal/refs"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The values of Upstream.Arguments and Upstream.Web.
const (
	argumentsRewrite = "rewrite"
	argumentsOpaque  = "opaque"
	webBare          = "bare"
	webQualified     = "qualified"
)

// refs returns what writes and reads the names and URIs of an upstream.
func (u *Upstream) refs() refs.Server {
	label := cmp.Or(u.Label, refs.Label(u.Name))
	return refs.Server{
		Name: u.Name, Label: label, Web: u.Web == webQualified,
		Opaque: u.Arguments == argumentsOpaque,
	}
}

// refs returns what qualifies the references in the messages of a server at this address; nil: they
// stay as they are.
func (e *endpoint) refs(source string) *refs.Server {
	view, _ := e.servers()
	if r, qualified := view.Refs(source); qualified {
		return r
	}
	return nil
}

// address gives the params of a call the form of the server that the call is for: its references,
// and in a member, unless that is "", the name of the target. It comes before the guard, which
// decides about what the server gets.
func (e *endpoint) address(w *calling, t *route.Target, member string) {
	w.refs = e.refs(t.Source)
	w.Params = w.refs.Up(refs.Params, w.Method, w.Params)
	if member != "" && !hasOnly(w.Params, member, t.Name) {
		w.Params = withMember(w.Params, member, jsonrpc.AppendString(nil, t.Name))
	}
}

// hasOnly reports whether a member that may be there twice is nothing but a text.
func hasOnly(object jsonrpc.Raw, name, value string) bool {
	for key, raw := range scan.Members(object) {
		if string(key) == name && (raw[0] != '"' || string(scan.Unquote(raw)) != value) {
			return false
		}
	}
	return true
}

// down gives what a server has answered the form of this address.
func (w *calling) down(r upstream.Result, err error) (upstream.Result, error) {
	if err != nil {
		return r, downError(w.refs, w.Method, err)
	}
	r.Raw = w.refs.Down(refs.Result, w.Method, r.Raw)
	return r, nil
}

// downError is err with the references in its data qualified; err itself where there are none.
func downError(s *refs.Server, method string, err error) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || s == nil || len(wire.Data) == 0 {
		return err
	}
	data := s.Down(refs.ErrorData, method, wire.Data)
	if &data[0] == &wire.Data[0] {
		return err
	}
	shown := *wire
	shown.Data, shown.Cause = data, err
	return &shown
}

// asker is a function that asks the client of a call: see asking.
type asker func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error)

// askingOf is ask for the questions of a server, shown with qualified references.
func askingOf(s *refs.Server, ask asker) asker {
	if s == nil {
		return ask
	}
	return func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
		answer, err := ask(ctx, method, s.Down(refs.Params, method, params))
		if err != nil {
			return nil, err
		}
		return s.Up(refs.Result, method, answer), nil
	}
}

// choose returns the target of a name without a qualifier that several servers have: the only one
// of those that the caller may use, or an error that names them.
func (e *endpoint) choose(
	ctx context.Context, several *route.AmbiguousError,
) (route.Target, bool, error) {
	left := *several
	left.Candidates = nil
	for _, c := range several.Candidates {
		if e.shown(ctx, several.Kind, &c.Target) {
			left.Candidates = append(left.Candidates, c)
		}
	}
	switch len(left.Candidates) {
	case 0:
		return route.Target{}, false, nil
	case 1:
		return left.Candidates[0].Target, true, nil
	}
	data := jsonrpc.Raw(`{"candidates":[`)
	for i, c := range left.Candidates {
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonrpc.AppendString(data, c.Shown)
	}
	return route.Target{}, false, &jsonrpc.Error{
		Code: jsonrpc.InvalidParams, Message: "Invalid params: " + left.Error(),
		Data: append(data, `]}`...), Cause: several,
	}
}
