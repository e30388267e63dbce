// Package certificate answers one question: which certificate does an end of TLS show, and which
// does it accept?
package certificate

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
)

// Files name the certificate, its key, and the authorities of client certificates ("" for none), in
// PEM.
type Files struct{ Cert, Key, ClientCA string }

// A Source has what files say. They can be read again while connections are open: those keep what
// they have, and new handshakes get the new certificate.
type Source struct {
	log *slog.Logger

	mu          sync.Mutex
	files       Files
	authorities [][]byte // of client certificates, in addition to those of files, in PEM
	current     atomic.Pointer[tls.Config]
}

// Load reads files. authorities are further ones of client certificates, in PEM.
func Load(files Files, authorities [][]byte, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, authorities: authorities, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// Config returns what a listener needs, nil of a nil Source.
func (s *Source) Config() *tls.Config {
	if s == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil },
	}
}

// Paths returns the files that may change.
func (s *Source) Paths() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range []string{s.files.Cert, s.files.Key, s.files.ClientCA} {
		if file != "" {
			list = append(list, file)
		}
	}
	return list
}

// Use sets other files and authorities, which the next Reload reads. It reports whether they are
// others.
func (s *Source) Use(files Files, authorities [][]byte) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.useLocked(files, authorities)
}

func (s *Source) useLocked(files Files, authorities [][]byte) (changed bool) {
	changed = files != s.files || !slices.EqualFunc(authorities, s.authorities, bytes.Equal)
	s.files, s.authorities = files, authorities
	return changed
}

// Trust is Use with the same files.
func (s *Source) Trust(authorities [][]byte) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.useLocked(s.files, authorities)
}

// Reload reads the files again. When they cannot be used, what was read before stays in use.
func (s *Source) Reload() {
	if err := s.load(); err != nil {
		s.log.Error("the new certificate cannot be used; the one before stays", "error", err)
	}
}

// load reads the files.
func (s *Source) load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return fmt.Errorf("%s: %w", s.files.Cert, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		s.log.Warn("the certificate has expired", "file", s.files.Cert, "not_after", pair.Leaf.NotAfter)
	}
	next := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	var clients []*x509.Certificate
	if s.files.ClientCA != "" {
		if clients, err = readAuthorities(s.files.ClientCA); err != nil {
			return err
		}
	}
	for _, text := range s.authorities {
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
	s.current.Store(next)
	s.log.Info("certificate loaded", describe(s.files.Cert, pair.Leaf)...)
	for _, ca := range clients {
		s.log.Info("authority of client certificates loaded", describe(s.files.ClientCA, ca)...)
	}
	return nil
}

// describe returns the attributes of a record.
func describe(file string, cert *x509.Certificate) []any {
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

// parseAuthorities reads certificates in PEM, at least one.
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
