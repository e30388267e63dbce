package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/edits"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// unknownNameError is the error for a principal, an issuer or an upstream that a configuration does
// not have.
type unknownNameError struct {
	what, name string
	near       string // the name that was probably meant
	advice     string // what to do when near is not meant
}

func (u *unknownNameError) Error() string {
	return fmt.Sprintf("the configuration has no %s %q", u.what, u.name)
}

func (u *unknownNameError) hint() string {
	if u.near == "" {
		return u.advice
	}
	return strings.TrimSpace(fmt.Sprintf("Did you mean %q? %s", u.near, u.advice))
}

// unknownUsage turns an *unknownNameError into the exit that says so.
func unknownUsage(err error) error {
	if unknown := (*unknownNameError)(nil); errors.As(err, &unknown) {
		return usagef(unknown.hint(), "%w", unknown)
	}
	return err
}

// newUnknownName compares a name with those that there are.
func newUnknownName(what, name string, known []string, advice string) *unknownNameError {
	near := nearestWord(name, known)
	if near == "" && len(known) > 0 {
		advice = strings.TrimSpace(fmt.Sprintf("There is: %s. %s", strings.Join(known, ", "), advice))
	}
	return &unknownNameError{what: what, name: name, near: near, advice: advice}
}

// nearestWord returns the word that was probably meant, or "".
func nearestWord(word string, words []string) string {
	best, least := "", min(len(word)/3+2, 4)
	for _, w := range words {
		if d := edits.Distance(strings.ToLower(word), strings.ToLower(w)); d < least && d < len(w) {
			best, least = w, d
		}
	}
	return best
}

// principalsOf lists the principals that a configuration names.
func principalsOf(c *guard.Config) (ids []string) {
	ids = mapped(c.Keys, func(k guard.Key) string { return k.ID })
	signers := mapped(c.Signatures, func(s guard.Signer) string { return s.ID })
	return append(append(ids, signers...), cmp.Or(c.Stdio.ID, "local"))
}

// admits returns an error when no way in of a configuration leads to a principal that it does not
// name.
func admits(c *guard.Config, issuer, id string) *unknownNameError {
	const advice = "explain --role ROLE asks about a caller that the configuration does not have."
	switch {
	case issuer != "" && slices.ContainsFunc(c.JWT, func(i guard.Issuer) bool {
		return i.Issuer == issuer
	}):
		return nil
	case issuer != "":
		issuers := mapped(c.JWT, func(i guard.Issuer) string { return i.Issuer })
		return newUnknownName("issuer", issuer, issuers, advice)
	case len(c.JWT) == 0 && len(c.MTLS) == 0:
		return newUnknownName("principal", id, principalsOf(c), advice)
	}
	return nil
}

// resembles returns a note when a principal that the configuration does not name is spelt like one
// that it names.
func resembles(c *guard.Config, p *guard.Principal) []string {
	near := nearestWord(p.ID, principalsOf(c))
	if near == "" {
		return nil
	}
	by := "tokens of " + p.Issuer
	if p.Method == "mtls" {
		by = "client certificates"
	}
	return []string{
		fmt.Sprintf(
			"the configuration does not name %q, which is taken for a principal by %s; did you mean %q?",
			p.ID, by, near),
	}
}

// ownAreas are what the names of methods begin with that MCP and the gateway define.
var ownAreas = []string{
	"completion", "elicitation", "gateway", "logging", "notifications", "prompts", "resources",
	"roots", "sampling", "server", "subscriptions", "tasks", "tools",
}

// namesOf lists the names of upstreams.
func namesOf(upstreams []*gateway.Upstream) []string {
	return mapped(upstreams, func(u *gateway.Upstream) string { return u.Name })
}

// unknownUpstream returns an error when a name begins with an upstream that is not in the
// configuration.
func unknownUpstream(c *guard.Call, name string, upstreams []*gateway.Upstream) error {
	names := namesOf(upstreams)
	head, tail, found := strings.Cut(cmp.Or(name, c.Method), "/")
	near := nearestWord(head, names) != ""
	switch {
	case c.Upstream != "" && !slices.Contains(names, c.Upstream):
		return newUnknownName("upstream", c.Upstream, names, "")
	case c.Upstream != "" || len(names) == 0:
		return nil
	case found && tail != "" &&
		(c.Method == spec.MethodToolsCall || c.Method == spec.MethodPromptsGet ||
			near && c.Method == methodRPC):
		return newUnknownName("upstream", head, names,
			fmt.Sprintf("Write %s/%s when the whole of it is a name there.", names[0], name))
	case found && near && name == "" && !slices.Contains(ownAreas, head):
		return newUnknownName("upstream", head, names, "")
	}
	return nil
}
