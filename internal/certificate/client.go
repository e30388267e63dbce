package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
)

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
			if expected == "" {
				expected = host // an address has no SNI
			}
			return verify(s.PeerCertificates, pool, expected)
		}
	}
	if files.Cert != "" {
		pair := &reread[*tls.Certificate]{paths: []string{files.Cert, files.Key}, parse: parsePair, log: log}
		if _, err := pair.get(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
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
