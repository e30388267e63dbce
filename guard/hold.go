package guard

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"

	"github.com/farcall-dev/farcall/internal/permit"
)

// A hold is a subscription that was let in. It is ended when its caller may no longer have it: it
// is decided about again after each change of the configuration.
type hold struct {
	who     *session // who subscribed; http is nil
	tls     *tls.ConnectionState
	call    Call
	end     func(error) // with the error for the caller
	decided *state      // by which it was let in last
}

// holds returns the permit.Hold of the call c.
func (g *Guard) holds(c *Call) permit.Hold {
	return func(ctx context.Context, method string, params []byte, end func(error)) (release func()) {
		call := *c
		if method != "" {
			call = g.described(ctx, method, params)
		}
		return g.hold(ctx, &call, end)
	}
}

// hold has end called when the caller may no longer make the call c, until release is called.
func (g *Guard) hold(ctx context.Context, c *Call, end func(error)) (release func()) {
	who := sessionFrom(ctx)
	if who == nil {
		return func() {}
	}
	h := &hold{who: who, call: *c, end: end, decided: g.state.Load()}
	h.call.Params, h.call.Arguments = bytes.Clone(c.Params), bytes.Clone(c.Arguments)
	if who.http != nil {
		h.who, h.tls = who.apart(), who.http.r.TLS
	}
	return g.streams.hold(h)
}

// apart returns who, which came over HTTP, without the request, for what is there longer than that.
func (who *session) apart() *session {
	own := *who
	own.local, own.http, own.attempt = isLocal(who.http.r), nil, nil
	return &own
}

// again decides about a subscription again. err is for a caller that may no longer have it.
// Neither: it cannot be found out now.
func (h *hold) again(ctx context.Context, s *state) (ok bool, err error) {
	who := h.who
	var refused *refusal
	if who.at != nil {
		who, refused = who.at.session(ctx, s)
	} else if who.principal != nil {
		var k *known
		k, refused = s.again(ctx, &Conn{Principal: who.principal, TLS: h.tls})
		if refused == nil && k != nil {
			own := *who
			own.principal, own.subject = k.principal, k.subject
			who = &own
		}
	}
	if refused != nil && refused.status != http.StatusUnauthorized {
		return false, nil
	}
	if refused != nil {
		return false, s.refused(h.who, &h.call, denied, nil, refused)
	}
	now := s.g.now()
	d, refused := s.admit(who, &h.call, now)
	if refused == nil || refused.shadow {
		return true, nil
	}
	s.g.decided(ctx, who, denied, &d, now)
	return false, s.refused(who, &h.call, denied, d.Policies, refused)
}

// hold registers a subscription until release is called.
func (g *activeStreams) hold(h *hold) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds == nil {
		g.holds = map[*hold]struct{}{}
	}
	g.holds[h] = struct{}{}
	if g.g.state.Load() != h.decided { // changed meanwhile
		g.wake(0)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.holds, h)
	}
}

// endHolds ends the subscriptions that a changed configuration no longer permits.
func (g *activeStreams) endHolds(ctx context.Context, s *state) {
	g.mu.Lock()
	var all []*hold
	for h := range g.holds {
		if h.decided != s {
			all = append(all, h)
		}
	}
	g.mu.Unlock()
	for _, h := range all {
		ok, err := h.again(ctx, s)
		g.mu.Lock()
		_, there := g.holds[h]
		if ok {
			h.decided = s
		}
		if err != nil {
			delete(g.holds, h)
		}
		g.mu.Unlock()
		if there && err != nil {
			h.end(err)
		}
	}
}
