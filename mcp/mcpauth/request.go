package mcpauth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A request is an authorization request as Begin returns it.
type request struct {
	Client   string      `json:"client"` // its id: the server that the tokens are for
	Tokens   jsonrpc.Raw `json:"tokens"` // what is known of them
	Strict   bool        `json:"strict,omitzero"`
	State    string      `json:"state"`
	Verifier string      `json:"verifier"`
	Redirect string      `json:"redirect"`
}

// Begin is the first half of a Login without Visit, where the browser may come back to another
// process. It returns the address to show to the user, and the request, which is secret, for
// Finish. The browser comes back to Options.RedirectURL with state, which must be random. Grant is
// GrantCode.
func (c *Client) Begin(
	ctx context.Context, state string,
) (address string, pending []byte, err error) {
	if c.opts.Grant != GrantCode {
		return "", nil, errors.New("mcpauth: there is no user to ask")
	}
	if err := c.own.lock(ctx); err != nil {
		return "", nil, err
	}
	defer c.own.unlock()
	p, scopes, err := c.look(ctx, c.own)
	if err != nil {
		return "", nil, err
	}
	t := c.before(p, c.wanted(c.own, p, scopes))
	strict, err := c.newKey(p, t)
	if err == nil {
		err = c.checkCode(p.as)
	}
	if err != nil {
		return "", nil, err
	}
	a := &attempt{as: p.as, state: state, verifier: rand.Text() + rand.Text()}
	if address, err = c.begin(ctx, a, t, c.opts.RedirectURL); err != nil {
		return "", nil, err
	}
	r := request{
		Client: c.id, Strict: strict, State: a.state, Verifier: a.verifier,
		Redirect: a.redirect,
	}
	if r.Tokens, err = jsonv2.Append(nil, t); err == nil {
		pending, err = jsonv2.Append(nil, &r)
	}
	if err != nil {
		return "", nil, fmt.Errorf("mcpauth: %w", err)
	}
	return address, pending, nil
}

// Finish is the second half: callback is where the browser was sent to. The Client may be another
// one with the same address and options; one for another server sends and keeps nothing. Call it
// once for each request.
func (c *Client) Finish(ctx context.Context, pending []byte, callback *url.URL) error {
	if err := c.own.lock(ctx); err != nil {
		return err
	}
	defer c.own.unlock()
	var r request
	if err := jsonv2.Unmarshal(pending, &r); err != nil {
		return errors.New("mcpauth: the authorization request is damaged; log in again")
	}
	if r.Client != c.id {
		return errors.New("mcpauth: the authorization request was made for another server; log in again")
	}
	t, err := readTokens(r.Tokens)
	if err != nil {
		return err
	}
	a := &attempt{state: r.State, verifier: r.Verifier, redirect: r.Redirect, begun: true}
	if a.as, err = c.server(ctx, t); err != nil {
		return err
	}
	if a.reg, err = c.clientOf(ctx, t); err != nil {
		return err
	}
	answer, err := c.redeem(ctx, a, t, callback)
	if refusal, ok := errors.AsType[*oauthError](err); ok && refusal.code == "invalid_client" {
		c.forget(ctx, t.Issuer, t.ClientID) // the next one registers again
	}
	if err != nil {
		return err
	}
	if t, err = c.take(answer, *t, r.Strict); err != nil {
		return err
	}
	return c.keep(ctx, c.own, t)
}
