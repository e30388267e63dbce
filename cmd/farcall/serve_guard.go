package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
)

// conflict begins what is said of rules that overlap.
const conflict = "conflict: "

// newGuard reads --guard and puts it up. Without the flag it returns nil.
func (f *serveFlags) newGuard(log *slog.Logger, stderr io.Writer) (*guard.Guard, error) {
	if f.guard == "" {
		return nil, nil
	}
	c, err := gateway.LoadGuard(f.guard)
	if err != nil {
		return nil, configFailure(err)
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
	return g, nil
}

// operator is the role of those who get details, with --details, where there is a guard.
const operator = "operator"

func (f *serveFlags) guardOptions(log *slog.Logger) *guard.Options {
	o := &guard.Options{Logger: log}
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
	only, err := gateway.LoadGuard(f.guard)
	if err != nil {
		return configFailure(err)
	}
	c.Guard = only.Guard
	return nil
}

// warnOfCertificates says that client certificates count, and that nobody asks for any.
func (f *serveFlags) warnOfCertificates(c *guard.Config, file string, stderr io.Writer) {
	if c != nil && len(c.MTLS) > 0 && f.clientCA == "" {
		fmt.Fprintf(stderr, "farcall: %s: guard.mtls: nobody gets in by a certificate; add --tls-cert, --tls-key and --tls-client-ca\n", file)
	}
}

// reguard reads --guard again. When it is not valid the guard stays as it is.
func (f *serveFlags) reguard(g *guard.Guard, stderr io.Writer) {
	c, err := gateway.LoadGuard(f.guard)
	if err == nil {
		err = g.Reload(c.Guard)
	}
	if err != nil {
		fmt.Fprintf(stderr, "farcall: %v\nfarcall: the new guard is refused; the one before goes on\n", err)
		return
	}
	fmt.Fprintf(stderr, "farcall: the guard of %s is in force\n", f.guard)
}

// guarded wraps what is served over HTTP.
func guarded(g *guard.Guard, h http.Handler) http.Handler {
	if g == nil {
		return h
	}
	return g.HTTP(h)
}

// intercepted are options with the guard in front. c is nil for HTTP.
func intercepted(g *guard.Guard, c *guard.Conn, o farcall.Options) farcall.Options {
	if g != nil {
		o.Interceptors = append([]farcall.Interceptor{g.Interceptor(c)}, o.Interceptors...)
	}
	return o
}

// connected is what is known of a connection.
func connected(conn net.Conn) *guard.Conn {
	c := &guard.Conn{Transport: conn.LocalAddr().Network(), Remote: conn.RemoteAddr().String()}
	switch a := conn.RemoteAddr().(type) {
	case *net.UnixAddr:
		c.Local = true
	case *net.TCPAddr:
		c.Local = a.IP.IsLoopback()
	}
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		c.Transport, c.TLS = c.Transport+"+tls", &state
	}
	return c
}

// askForCertificates lets clients show certificates of the authorities in a file.
func askForCertificates(c *tls.Config, file string) error {
	if file == "" {
		return nil
	}
	if c == nil {
		return usagef("Add --tls-cert and --tls-key: clients show certificates over TLS only.", "--tls-client-ca is given without --tls-cert")
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return &exitError{code: exitUsage, err: fmt.Errorf("--tls-client-ca: %w", err)}
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return &exitError{code: exitUsage, err: fmt.Errorf("--tls-client-ca: there is no certificate in %s", file), hint: "It must be PEM."}
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven // who has none may have a token
	return nil
}
