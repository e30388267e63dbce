package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
)

// conflict begins the message about rules that overlap.
const conflict = "conflict: "

// loadGuard reads --guard. Without the flag the guard of the result is nil.
func (f *serveFlags) loadGuard() (*gateway.Config, error) {
	if f.guard == "" {
		return &gateway.Config{}, nil
	}
	c, err := gateway.LoadGuard(f.guard)
	if err != nil {
		return nil, configFailure(err)
	}
	return c, nil
}

// newGuard returns the guard of a configuration, or nil for none.
func (f *serveFlags) newGuard(c *gateway.Config, log *slog.Logger, stderr io.Writer) (*guard.Guard, error) {
	if c.Guard == nil {
		return nil, nil
	}
	for _, n := range c.Notices() {
		if !strings.HasPrefix(n.Message, conflict) {
			text := n.Message
			if n.Hint != "" {
				text += "; " + n.Hint
			}
			fmt.Fprintf(stderr, "farcall: %s: %s: %s\n", f.guard, n.Path, tame(text))
		}
	}
	f.warnOfCertificates(c.Guard, f.guard, stderr)
	g, err := guard.New(c.Guard, f.guardOptions(log))
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	f.measured().Read(g.Readings)
	return g, nil
}

// operator is the role of those who get details, with --details, where there is a guard.
const operator = "operator"

func (f *serveFlags) guardOptions(log *slog.Logger) *guard.Options {
	o := &guard.Options{
		Budget: f.limits.budget, Logger: log, Observer: f.measured().Observer(),
		Shared: f.shared, Secret: f.secret, Nodes: f.nodes,
	}
	if f.details {
		o.Details = operator
	}
	return o
}

// putUp gives a configuration the guard of --guard.
func (f *serveFlags) putUp(c *gateway.Config) error {
	if f.guard == "" {
		return nil
	}
	of, err := f.loadGuard()
	if err != nil {
		return err
	}
	c.Guard = of.Guard
	f.guardFiles = of.Files()
	return nil
}

// warnOfCertificates reports that the guard wants client certificates and the listener accepts
// none.
func (f *serveFlags) warnOfCertificates(c *guard.Config, file string, stderr io.Writer) {
	switch {
	case c == nil || len(c.MTLS) == 0:
	case f.tlsCert == "":
		fmt.Fprintf(stderr, "farcall: %s: guard.mtls: no client certificate is accepted without TLS; add --tls-cert, --tls-key and --tls-client-ca (or tls:)\n", file)
	case f.clientCA == "" && len(c.Authorities()) < len(c.MTLS):
		fmt.Fprintf(stderr, "farcall: %s: guard.mtls: there is an entry without an authority; add ca to it, or --tls-client-ca (or tls.client_ca)\n", file)
	}
}

// reguard reads --guard again, and returns the files of it. When it is not valid the guard stays as
// it is.
func (f *serveFlags) reguard(reload func(*guard.Config) error, before []string, stderr io.Writer) (files []string) {
	c, err := gateway.LoadGuard(f.guard)
	if err == nil {
		before = c.Files()
		err = f.checkReload(c.Guard)
	}
	if err == nil {
		err = reload(c.Guard)
	}
	if err != nil {
		fmt.Fprintf(stderr, "farcall: %v\nfarcall: the new guard is refused; the one before goes on\n", err)
		return before
	}
	f.server.Trust(policyOf(c.Guard))
	fmt.Fprintf(stderr, "farcall: the guard of %s is in force\n", f.guard)
	return before
}
