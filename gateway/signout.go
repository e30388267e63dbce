package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/owner"
)

// SignOut ends the sign-ins of principals to upstreams that choose selects: their tokens are
// revoked at the authorization servers, where these offer that, and removed from Config.SignIn.Dir.
// A gateway that uses the directory notices with the next call. choose is called with the name of
// each principal and of an upstream, in the order of both; one that returns false always lists
// them. SignOut returns how many have ended. Its error tells of those that have not, or were not
// revoked, and of records that cannot be read.
func (c *Config) SignOut(ctx context.Context, choose func(principal, upstream string) bool) (ended int, err error) {
	if c.SignIn.Dir == "" {
		return 0, errors.New("gateway: sign_in has no dir: the tokens are in the memory of the gateway, and end with it")
	}
	store, err := c.openSignIns()
	if err != nil {
		return 0, err
	}
	s := signin.New(&signin.Options{Store: store, URL: c.SignIn.URL, Name: c.name()})
	defer s.Close()
	ups := map[string]*signin.Upstream{}
	for _, u := range c.Upstreams {
		if u.signsIn() {
			if ups[u.Name], err = s.NewUpstream(u.Name, u.URL, *u.authOptions()); err != nil {
				return 0, fmt.Errorf("gateway: upstream %s: auth: %w", u.Name, err)
			}
		}
	}
	return signOut(ctx, store, ups, choose)
}

// signOut is SignOut of a store.
func signOut(ctx context.Context, store *signin.Store, ups map[string]*signin.Upstream, choose func(principal, upstream string) bool) (ended int, err error) {
	all, damaged, err := store.List()
	if err != nil {
		return 0, fmt.Errorf("gateway: sign_in: %w", err)
	}
	var failed []error
	if damaged > 0 {
		failed = append(failed, fmt.Errorf("gateway: sign_in: %d records cannot be read: their owners have to sign in again", damaged))
	}
	for _, e := range all {
		if !choose(e.Principal, e.Upstream) {
			continue
		}
		if err := signOutOf(ctx, store, ups[e.Upstream], &e); err != nil {
			failed = append(failed, fmt.Errorf("gateway: the sign-in of %s to %s: %w", e.Principal, e.Upstream, err))
			continue
		}
		ended++
	}
	return ended, errors.Join(failed...)
}

// signOutOf ends one. What is no upstream any more cannot be asked to revoke.
func signOutOf(ctx context.Context, store *signin.Store, u *signin.Upstream, e *signin.Entry) error {
	if u == nil {
		return store.Remove(e.ID)
	}
	return u.SignOut(ctx, signin.Who{Owner: e.Owner, Name: e.Principal})
}

// revokeUnknown ends the sign-ins of principals that a configuration has had, by a key or a
// signature, and has no more.
func (g *Gateway) revokeUnknown(ctx context.Context) {
	if g.signIns == nil {
		return
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
			log.Warn("a principal that is not configured any more was not signed out whole: 'farcall logout --config FILE --principal NAME' tries again", "error", err)
			continue
		}
		log.Info("a principal that is not configured any more was signed out")
	}
}

// ofConfiguration reports whether an owner was authenticated by what stands in the configuration.
func ofConfiguration(text string) bool {
	for _, method := range []string{"key", "signature"} {
		if strings.HasPrefix(text, strings.TrimRight(owner.Principal(method, "", "", "").Text(), "\x00")) {
			return true
		}
	}
	return false
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
	if kind == "" {
		kind = "service"
	}
	return (&guard.Principal{ID: id, Kind: kind, Method: method}).Owner()
}
