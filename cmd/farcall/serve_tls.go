package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
)

// certificates are what is served over TLS. They can be read again while connections are open: these
// go on with what they have, and new handshakes get the new ones.
type certificates struct {
	log *slog.Logger

	mu            sync.Mutex // of load
	cert, key, ca string     // files
	mtls          [][]byte   // the authorities of the guard, in PEM
	current       atomic.Pointer[tls.Config]
}

// loadCertificates reads the files of the flags, or else of a configuration. Without any it returns
// nil, which has no files.
func (f *serveFlags) loadCertificates(c *gateway.Config, log *slog.Logger) error {
	if f.tlsCert == "" && f.tlsKey == "" && f.clientCA == "" {
		f.tlsCert, f.tlsKey, f.clientCA = c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA
		f.configuredTLS = true
	}
	switch {
	case f.tlsCert == "" && f.tlsKey == "" && f.clientCA != "":
		return usagef("Add --tls-cert and --tls-key: clients show certificates over TLS only.", "--tls-client-ca is given without --tls-cert")
	case f.tlsCert == "" && f.tlsKey == "":
		return nil
	case f.tlsKey == "":
		return usagef("Add --tls-key with the file of its private key.", "--tls-cert is given without --tls-key")
	case f.tlsCert == "":
		return usagef("Add --tls-cert with the file of its certificate.", "--tls-key is given without --tls-cert")
	}
	f.certs = &certificates{cert: f.tlsCert, key: f.tlsKey, ca: f.clientCA, log: slog.New(handlerOf(log)), mtls: authorities(c.Guard)}
	if err := f.certs.load(); err != nil {
		return &exitError{
			code: exitUsage, err: fmt.Errorf("cannot use the certificate: %w", err),
			hint: "The files must be PEM, and the key must belong to the certificate.",
		}
	}
	return nil
}

// watchTLS are the certificates, to be read again when they change.
func (f *serveFlags) watchTLS() []*watch {
	if f.certs == nil {
		return nil
	}
	return []*watch{newWatch(f.certs.files(), func([]string) []string {
		f.certs.reload()
		return f.certs.files()
	})}
}

// moveCertificates takes the files and authorities of a new configuration. It reports whether that
// could be done: TLS itself cannot come or go.
func (f *serveFlags) moveCertificates(c *gateway.Config) bool {
	if f.configuredTLS && (f.certs == nil) != (c.TLS.Cert == "") {
		return false
	}
	if f.configuredTLS {
		f.clientCA = c.TLS.ClientCA
		f.certs.move(c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA)
	}
	f.certs.trust(c.Guard)
	return true
}

// move reads other files from now on.
func (c *certificates) move(cert, key, ca string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	same := c.cert == cert && c.key == key && c.ca == ca
	c.cert, c.key, c.ca = cert, key, ca
	c.mu.Unlock()
	if !same {
		c.reload()
	}
}

// config is what a port needs. Nil: it speaks no TLS.
func (c *certificates) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// files are those that may change.
func (c *certificates) files() (list []string) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range []string{c.cert, c.key, c.ca} {
		if file != "" {
			list = append(list, file)
		}
	}
	return list
}

// reload reads the files again. When they cannot be used everything stays as it is.
func (c *certificates) reload() {
	if c == nil {
		return
	}
	if err := c.load(); err != nil {
		c.log.Error("the new certificate cannot be used; the one before stays", "error", err)
	}
}

// trust takes the authorities of a new guard.
func (c *certificates) trust(g *guard.Config) {
	if c == nil {
		return
	}
	list := authorities(g)
	c.mu.Lock()
	same := slices.EqualFunc(list, c.mtls, bytes.Equal)
	c.mtls = list
	c.mu.Unlock()
	if !same {
		c.reload()
	}
}

// authorities are those that entries of mtls name.
func authorities(g *guard.Config) (list [][]byte) {
	if g == nil {
		return nil
	}
	for _, m := range g.MTLS {
		if m.CA != "" {
			list = append(list, []byte(m.CA))
		}
	}
	return list
}

// load reads the files.
func (c *certificates) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s: %w", c.cert, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		c.log.Warn("the certificate has expired", "file", c.cert, "not_after", pair.Leaf.NotAfter)
	}
	next := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	var clients []*x509.Certificate
	if c.ca != "" {
		if clients, err = readAuthorities(c.ca); err != nil {
			return err
		}
	}
	for _, text := range c.mtls {
		list, _ := parseAuthorities(text) // the guard has checked them
		clients = append(clients, list...)
	}
	if len(clients) > 0 {
		next.ClientCAs = x509.NewCertPool()
		for _, ca := range clients {
			next.ClientCAs.AddCert(ca)
		}
		next.ClientAuth = tls.VerifyClientCertIfGiven // a client without one may have other credentials
	}
	c.current.Store(next)
	c.log.Info("certificate loaded", describeCertificate(c.cert, pair.Leaf)...)
	for _, ca := range clients {
		c.log.Info("authority of client certificates loaded", describeCertificate(c.ca, ca)...)
	}
	return nil
}

// describeCertificate are attributes of a record.
func describeCertificate(file string, cert *x509.Certificate) []any {
	return []any{
		"file", file, "subject", cert.Subject.String(), "names", strings.Join(cert.DNSNames, " "),
		"serial", fmt.Sprintf("%X", cert.SerialNumber), "not_after", cert.NotAfter.UTC().Format(time.RFC3339),
	}
}

func readAuthorities(file string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	list, err := parseAuthorities(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// parseAuthorities reads certificates in PEM, of which there is at least one.
func parseAuthorities(text []byte) (list []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("it has no certificate in PEM")
	}
	return list, nil
}
