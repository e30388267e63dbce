// Package certificate answers one question: which certificate does an end of TLS show, and which
// does it accept?
package certificate

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
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
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.current.Load(), nil
		},
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
	next := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}
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
		"serial", fmt.Sprintf("%X", cert.SerialNumber), "not_after",
		cert.NotAfter.UTC().Format(time.RFC3339),
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

// ClientFiles are, in PEM, the authorities that a client trusts in place of those of the system,
// and its own certificate with the private key. "": none.
type ClientFiles struct{ CA, Cert, Key string }

// maxFile bounds a file in bytes.
const maxFile = 4 << 20

// Client returns how a client connects by TLS to a server at a host. Its certificate must be valid
// for name; "" is the name that is dialled. The files are read again for each handshake. When they
// cannot be used then, what was read before stays in use, and log, which may be nil, gets a
// warning. It fails when they cannot be used now. Connections that are open keep what they have.
func Client(files ClientFiles, host, name string, log *slog.Logger) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if files.CA != "" {
		roots := &reread[*x509.CertPool]{paths: []string{files.CA}, parse: parsePool, log: log}
		if _, err := roots.get(); err != nil {
			return nil, err
		}
		// A Config has one pool for good, so that verification is ours. It is that of crypto/tls
		// otherwise.
		config.InsecureSkipVerify = true // VerifyConnection verifies
		config.VerifyConnection = func(s tls.ConnectionState) error {
			pool, err := roots.get()
			if err != nil {
				return err
			}
			expected := s.ServerName
			expected = cmp.Or(expected, host) // an address has no SNI
			return verify(s.PeerCertificates, pool, expected)
		}
	}
	if files.Cert != "" {
		pair := &reread[*tls.Certificate]{
			paths: []string{files.Cert, files.Key}, parse: parsePair,
			log: log,
		}
		if _, err := pair.get(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair.get()
		}
	}
	return config, nil
}

// verify is what crypto/tls does with the certificates of a server.
func verify(chain []*x509.Certificate, roots *x509.CertPool, name string) error {
	o := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, cert := range chain[1:] {
		o.Intermediates.AddCert(cert)
	}
	if _, err := chain[0].Verify(o); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// reread is what files say, parsed again when they have changed.
type reread[T any] struct {
	paths []string
	parse func(texts [][]byte) (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	texts  [][]byte // that value was made of; nil: there is no value yet
	value  T
	failed string // what was logged last
}

// get returns what the files say now, or what they said last. Its error is that there is nothing
// yet.
func (r *reread[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.read()
	switch {
	case err == nil:
		r.failed = ""
	case r.texts == nil:
		return r.value, err
	case r.log != nil && r.failed != err.Error():
		r.failed = err.Error()
		r.log.Warn("a file for TLS cannot be used; what was read before stays in use", "error", err)
	}
	return r.value, nil
}

func (r *reread[T]) read() error {
	texts := make([][]byte, len(r.paths))
	for i, path := range r.paths {
		var err error
		if texts[i], err = readFile(path); err != nil {
			return err
		}
	}
	if slices.EqualFunc(texts, r.texts, bytes.Equal) {
		return nil
	}
	value, err := r.parse(texts)
	if err != nil {
		return fmt.Errorf("%s: %w", r.paths[0], err)
	}
	r.texts, r.value = texts, value
	return nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: it has more than %d MB", path, maxFile>>20)
	}
	return text, err
}

func parsePool(texts [][]byte) (*x509.CertPool, error) {
	list, err := parseAuthorities(texts[0])
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, ca := range list {
		pool.AddCert(ca)
	}
	return pool, nil
}

func parsePair(texts [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	return &pair, err
}
