package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/owner"
)

// SignOut ends the sign-ins of principals to upstreams that choose selects: their tokens are
// revoked at the authorization servers, where these offer that, and removed from Config.SignIn.Dir.
// A gateway that uses the directory notices with the next call. choose is called with the name of
// each principal and of an upstream, in the order of both; one that returns false always lists
// them. SignOut returns how many have ended. Its error tells of those that have not, and of records
// that cannot be read.
func (c *Config) SignOut(
	ctx context.Context, choose func(principal, upstream string) bool,
) (ended int, err error) {
	switch {
	case c.SignIn.Dir == "" && c.Cluster.Set():
		return 0, errors.New(
			"gateway: the sign-ins are in the store of the cluster, which only its nodes open: " +
				"'farcall admin sign-ins TARGET' and 'farcall admin end-sign-ins TARGET' ask one of them")
	case c.SignIn.Dir == "":
		return 0, errors.New(
			"gateway: sign_in has no dir, so that the tokens are in the memory of the gateway: " +
				"'farcall admin sign-ins TARGET' and 'farcall admin end-sign-ins TARGET' ask it")
	}
	tokens, err := c.openSignIns(nil, nil)
	if err != nil {
		return 0, err
	}
	s := signin.New(&signin.Options{Store: tokens, URL: c.SignIn.URL, Name: c.name()})
	defer s.Close()
	of, err := c.upstreamsOf(s)
	if err != nil {
		return 0, err
	}
	all, err := signOut(ctx, tokens, of, func(e *signin.Entry) bool {
		return choose(e.Principal, e.Upstream)
	})
	return len(all), err
}

// upstreamsOf returns the upstreams that principals sign in to, by name, those that are disabled
// included.
func (c *Config) upstreamsOf(s *signin.Service) (of map[string]*signin.Upstream, err error) {
	of = map[string]*signin.Upstream{}
	for _, u := range c.Upstreams {
		if u.signsIn() {
			if of[u.Name], err = s.NewUpstream(u.Name, u.URL, *u.authOptions()); err != nil {
				return nil, fmt.Errorf("gateway: upstream %s: auth: %w", u.Name, err)
			}
		}
	}
	return of, nil
}

// failures are the errors of several sign-ins.
type failures []error

func (f failures) Error() string { return errors.Join(f...).Error() }

func (f failures) Unwrap() []error { return f }

// signOut is SignOut of a store. It returns those that have ended; the error is failures, or that
// of a store that cannot be read.
func signOut(
	ctx context.Context, tokens *signin.Store, of map[string]*signin.Upstream,
	choose func(*signin.Entry) bool,
) (ended []signin.Entry, err error) {
	all, damaged, err := tokens.List()
	if err != nil {
		return nil, fmt.Errorf("gateway: sign_in: %w", err)
	}
	var failed failures
	if damaged > 0 {
		failed = append(failed,
			fmt.Errorf("gateway: sign_in: %d records cannot be read: their owners have to sign in again",
				damaged))
	}
	for _, e := range all {
		if !choose(&e) {
			continue
		}
		if err := signOutOf(ctx, tokens, of[e.Upstream], &e); err != nil {
			failed = append(failed,
				fmt.Errorf("gateway: the sign-in of %s to %s: %w", e.Principal, e.Upstream, err))
			continue
		}
		ended = append(ended, e)
	}
	if len(failed) > 0 {
		return ended, failed
	}
	return ended, nil
}

// signOutOf ends one. What is no upstream any more cannot be asked to revoke.
func signOutOf(
	ctx context.Context, tokens *signin.Store, u *signin.Upstream, e *signin.Entry,
) error {
	if u == nil {
		return tokens.Remove(e.ID)
	}
	return u.SignOut(ctx, signin.Who{Owner: e.Owner, Name: e.Principal})
}

// revokeUnknown ends the sign-ins of principals that a configuration has had, by a key or a
// signature, and has no more.
func (g *Gateway) revokeUnknown(ctx context.Context) {
	if g.signIns == nil {
		return
	}
	if g.node != nil {
		g.node.Meet(g.plan.Load().config.Cluster.Nodes())
	}
	for g.node != nil && len(g.node.Status().Differ) > 0 { // another node may know them
		select {
		case <-g.serving.Done():
			return
		case <-time.After(differPause):
		}
	}
	p := g.plan.Load()
	known := principalsOf(p.config.Guard)
	all, _, err := g.signIns.Store().List()
	if err != nil {
		g.log.Warn("the sign-ins of principals cannot be listed", "error", err)
		return
	}
	for _, e := range all {
		if known[e.Owner] || !ofConfiguration(e.Owner) {
			continue
		}
		var u *signin.Upstream
		if s := p.byName[e.Upstream]; s != nil {
			u = s.signIn
		}
		log := g.component("signin").With("upstream", e.Upstream, "principal", e.Principal)
		if err := signOutOf(ctx, g.signIns.Store(), u, &e); err != nil {
			log.Warn(
				"a principal that is not configured any more was not signed out whole: 'farcall admin "+
					"end-sign-ins TARGET --principal NAME' tries again", "error", err)
			continue
		}
		log.Info("a principal that is not configured any more was signed out")
	}
}

// ofConfiguration reports whether an owner was authenticated by what stands in the configuration.
func ofConfiguration(text string) bool {
	return slices.ContainsFunc([]string{"key", "signature"}, func(method string) bool {
		return strings.HasPrefix(text,
			strings.TrimRight(owner.Principal(method, "", "", "").Text(), "\x00"))
	})
}

// principalsOf returns the owners that the keys and the signatures of a configuration stand for.
func principalsOf(c *guard.Config) map[string]bool {
	known := map[string]bool{}
	if c == nil {
		return known
	}
	for _, k := range c.Keys {
		known[ownerOf("key", k.Kind, k.ID)] = true
	}
	for _, k := range c.Signatures {
		known[ownerOf("signature", k.Kind, k.ID)] = true
	}
	return known
}

// ownerOf is the owner of a principal of the configuration; kind "" is its default.
func ownerOf(method, kind, id string) string {
	return (&guard.Principal{ID: id, Kind: cmp.Or(kind, "service"), Method: method}).Owner()
}
