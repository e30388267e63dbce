package gateway

import "github.com/farcall-dev/farcall/internal/environ"

// Environ returns the environment of an upstream's command, of what the
// gateway's own is: what programs need to run (HOME, PATH …), what they need to
// reach the network and their packages ("plumbing": proxies, certificates,
// registries, caches; see docs/gateway.md), what InheritEnv names, and Env. Of
// plumbing, what looks like a secret is left out.
func (u *Upstream) Environ(from []string) []string {
	return environ.Child(from, u.InheritEnv, u.Env)
}

// withheld returns the names of plumbing that the command is not given, because it looks like a
// secret.
func (u *Upstream) withheld(from []string) []string {
	return environ.Withheld(from, u.InheritEnv, u.Env)
}
