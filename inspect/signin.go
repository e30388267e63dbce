package inspect

import (
	"context"
	"errors"
	"io"
	"net/url"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// signInTime is how long connecting may take once a page has shown its user where to sign in.
const signInTime = 5 * time.Minute

var errNotSignedIn = errors.New("signing in was refused in the page")

// authorizer gets credentials for a server that demands OAuth: a page asks its user to sign in, and
// the browser comes back to a port of this machine. The tokens are in memory only, as long as the
// server is offered.
func (x *slot) authorizer(s *Server, address string) (mcphttp.Authorizer, error) {
	if s.Authorize != nil || s.Header.Get("Authorization") != "" {
		return s.Authorize, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.auth != nil {
		return x.auth, nil
	}
	browser := mcpauth.Browser(&mcpauth.BrowserOptions{Output: io.Discard, Print: true})
	auth, err := mcpauth.New(address, &mcpauth.Options{
		HTTP: s.HTTP,
		Visit: func(ctx context.Context, redirect string, begin func(string) (string, error)) (
			*url.URL, error,
		) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			return browser(ctx, redirect, func(redirect string) (string, error) {
				at, err := begin(redirect)
				if err == nil {
					x.i.tasks.Go(func() { x.invite(ctx, cancel, at) })
				}
				return at, err
			})
		},
	})
	if err != nil {
		return nil, err
	}
	x.auth = auth
	return auth, nil
}

// invite asks the user of a page to sign in, until that is done or refused.
func (x *slot) invite(ctx context.Context, refuse context.CancelCauseFunc, address string) {
	x.mu.Lock()
	if x.late != nil {
		x.late.Reset(signInTime)
	}
	x.mu.Unlock()
	params, err := marshal(map[string]string{
		"mode": "url", "message": "The server wants you to sign in.", "url": address,
	})
	if err != nil {
		refuse(err)
		return
	}
	answer, err := x.i.ask(ctx,
		questionView{Conn: x.id, Method: spec.MethodElicitationCreate, Params: params})
	if err == nil && scan.StringMember(answer, "action") == "accept" {
		<-ctx.Done() // the browser has still to come back
		return
	}
	x.mu.Lock()
	x.auth = nil // which would remember the refusal when the user connects again
	x.mu.Unlock()
	refuse(errNotSignedIn)
}
