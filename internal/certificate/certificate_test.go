package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// source is one that reads files of a test, its log, and the authority that a client has to trust.
func source(t *testing.T, authorities ...[]byte) (s *Source, files Files, log *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	files = Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	issue(t, files.Cert, files.Key, 1)
	log = new(bytes.Buffer)
	s, err := Load(files, authorities, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, files, log
}

// meet has a client that trusts every server, and shows a certificate if it has one, greet a
// source. It returns the serial number of the certificate that the source shows.
func meet(t *testing.T, s *Source, shown *tls.Certificate) (serial int64, err error) {
	t.Helper()
	mine, theirs := net.Pipe()
	defer mine.Close()
	client := &tls.Config{InsecureSkipVerify: true} // the test looks at what comes
	if shown != nil {
		client.Certificates = []tls.Certificate{*shown}
	}
	ended := make(chan error, 1)
	go func() {
		defer theirs.Close()
		ended <- tls.Server(theirs, s.Config()).HandshakeContext(t.Context())
	}()
	c := tls.Client(mine, client)
	err = c.HandshakeContext(t.Context())
	if err == nil {
		serial = c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
		// in TLS 1.3 the client is done before the server has seen its certificate
		_, _ = c.Read(make([]byte, 1))
	}
	return serial, errors.Join(err, <-ended)
}

// TestSourceReloads shows new files to new handshakes after Reload, and what was read before when
// they cannot be used.
func TestSourceReloads(t *testing.T) {
	t.Parallel()
	s, files, log := source(t)
	shows := func(want int64) {
		t.Helper()
		if serial, err := meet(t, s, nil); err != nil || serial != want {
			t.Errorf("the certificate %d, want %d: %v", serial, want, err)
		}
	}
	shows(1)
	issue(t, files.Cert, files.Key, 2)
	shows(1) // they were not read again
	s.Reload()
	shows(2)
	if err := os.WriteFile(files.Key, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	shows(2)
	if text := log.String(); strings.Count(text, "certificate loaded") != 2 ||
		strings.Count(text, "the one before stays") != 1 {
		t.Error(text)
	}
	if _, err := Load(files, nil, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), files.Cert) {
		t.Error(err)
	}
}

// TestSourceAuthorities takes certificates of clients from the configured authorities, and none
// from others; a client without one passes.
func TestSourceAuthorities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, other := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	known := issue(t, ca, filepath.Join(dir, "ca.key"), 10)
	strange := issue(t, other, filepath.Join(dir, "other.key"), 11)
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	s, files, _ := source(t)
	passes := func(what string, cert *tls.Certificate, want bool) {
		t.Helper()
		if _, err := meet(t, s, cert); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	if c := s.current.Load(); c.ClientCAs != nil || c.ClientAuth != tls.NoClientCert {
		t.Error("a source without authorities asks for certificates")
	}
	if !s.Trust([][]byte{text}) || s.Trust([][]byte{text}) {
		t.Error("Trust does not tell whether the authorities are others")
	}
	s.Reload()
	passes("a known one", &known, true)
	passes("none", nil, true)
	passes("one of another authority", &strange, false)

	withFile := files
	withFile.ClientCA = other
	if !s.Use(withFile, nil) || s.Use(withFile, nil) {
		t.Error("Use does not tell whether the files are others")
	}
	if paths := s.Paths(); !slices.Equal(paths, []string{files.Cert, files.Key, other}) {
		t.Error(paths)
	}
	s.Reload()
	passes("one of the file", &strange, true)
	passes("one that was trusted before", &known, false)

	if err := os.WriteFile(other, []byte("-----BEGIN NOTHING-----\n-----END NOTHING-----\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	passes("one of the file as it was", &strange, true)
	if _, err := readAuthorities(other); err == nil || !strings.Contains(err.Error(), other) {
		t.Error(err)
	}
}

// TestSourceIsConcurrent reads, changes and serves at the same time, for the race detector: Trust
// must not take the lock twice.
func TestSourceIsConcurrent(t *testing.T) {
	t.Parallel()
	s, files, _ := source(t)
	s.log = slog.New(slog.DiscardHandler)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 20 {
				s.Trust(nil)
				s.Use(files, nil)
				s.Reload()
				_ = s.Paths()
				if _, err := s.Config().GetConfigForClient(nil); err != nil {
					t.Error(n, err)
				}
			}
		})
	}
	wg.Wait()
	if (*Source)(nil).Config() != nil {
		t.Error("no source has a configuration")
	}
}

// FuzzAuthorities: no text makes the parser of certificates panic, and what it takes is at least
// one certificate.
func FuzzAuthorities(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseAuthorities(text)
		if (err == nil) != (len(list) > 0) || slices.Contains(list, (*x509.Certificate)(nil)) {
			t.Errorf("%d certificates, %v", len(list), err)
		}
	})
}

// TestExpired warns of a certificate that is no longer valid, and shows it all the same: that is
// for clients to judge.
func TestExpired(t *testing.T) {
	t.Parallel()
	s, files, log := source(t)
	issueUntil(t, files.Cert, files.Key, 99, time.Now().Add(-time.Hour))
	s.Reload()
	if !strings.Contains(log.String(),
		"level=WARN msg=\"the certificate has expired\" file="+files.Cert) {
		t.Error(log.String())
	}
	if serial, err := meet(t, s, nil); err != nil || serial != 99 {
		t.Error(serial, err)
	}
}
