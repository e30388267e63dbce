package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
)

// signIns names the sign-ins to upstreams of a gateway that a command is about.
type signIns struct {
	config, principal, upstream string
	all                         bool
}

// chooses reports whether it names any.
func (s *signIns) chooses() bool { return s.principal != "" || s.upstream != "" || s.all }

// has reports whether it is about the sign-in of a principal to an upstream.
func (s *signIns) has(principal, upstream string) bool {
	return (s.principal == "" || s.principal == principal) && (s.upstream == "" || s.upstream == upstream)
}

// printSignIns lists the principals that have signed in to upstreams of a gateway.
func (e *env) printSignIns(ctx context.Context, s *signIns) error {
	c, err := gateway.Load(s.config)
	if err != nil {
		return configFailure(err)
	}
	listed := 0
	_, err = c.SignOut(ctx, func(principal, upstream string) bool {
		listed++
		fmt.Fprintf(e.stdout, "%s  %s\n", tame(upstream), tame(principal))
		return false
	})
	if err != nil {
		return signInFailure(err)
	}
	if listed == 0 {
		fmt.Fprintf(e.stderr, "farcall: no principal has signed in to an upstream of %s\n", s.config)
	}
	return nil
}

// endSignIns revokes and removes the tokens of principals of a gateway.
func (e *env) endSignIns(ctx context.Context, s *signIns) error {
	if !s.chooses() {
		return usagef("For example: farcall logout --config "+s.config+" --principal NAME; --all ends all sign-ins.", "--config needs --principal, --upstream or --all")
	}
	c, err := gateway.Load(s.config)
	if err != nil {
		return configFailure(err)
	}
	ended, err := c.SignOut(ctx, func(principal, upstream string) bool {
		if !s.has(principal, upstream) {
			return false
		}
		fmt.Fprintf(e.stdout, "signing %s out of %s\n", tame(principal), tame(upstream))
		return true
	})
	switch {
	case err != nil:
		return signInFailure(err)
	case ended == 0:
		return &exitError{code: exitFailure, err: errors.New("no such sign-in was found"), hint: "'farcall login --list --config " + s.config + "' lists them."}
	}
	return nil
}

// signInFailure is the exit for tokens that cannot be read, or were not revoked.
func signInFailure(err error) error {
	return &exitError{code: exitFailure, err: errors.New(tame(strings.TrimPrefix(err.Error(), "gateway: ")))}
}

// signInCaveats are what of an upstream with sign-in has no effect.
func signInCaveats(u *gateway.Upstream, c *gateway.Config) []string {
	if c.Lock == "" || u.Disabled || u.Auth == nil || u.Auth.Type != "sign_in" {
		return nil
	}
	return []string{"it cannot be pinned, because each principal signs in to it: with " + c.Lock + " nothing of it is shown"}
}

// signInLimits say how principals sign in to upstreams. Nil: they do not.
func signInLimits(c *gateway.Config) []string {
	s := &c.SignIn
	if s.URL == "" {
		return nil
	}
	text := "principals sign in to upstreams at " + s.URL + "/signin; "
	if s.Dir == "" {
		text += "their tokens are in memory: a restart ends them"
	} else {
		text += fmt.Sprintf("their tokens are in %s, sealed with %s: they survive a restart", s.Dir, countOf(len(s.Keys), "key"))
	}
	if s.Browser == "principal" {
		text += "; a browser has to show the credentials of the principal"
	}
	return []string{text}
}
