package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue writes a certificate that is its own authority, valid for tools.test and 127.0.0.1, and its
// key.
func issue(t *testing.T, certFile, keyFile string, serial int64) tls.Certificate {
	t.Helper()
	return issueUntil(t, certFile, keyFile, serial, time.Now().Add(time.Hour))
}

// issueUntil is issue with the time until which the certificate is valid.
func issueUntil(
	t *testing.T, certFile, keyFile string, serial int64, until time.Time,
) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"tools.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for file, text := range map[string][]byte{certFile: cert, keyFile: secret} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(cert, secret)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// shake has a client and a server greet each other, and returns the serial number that the client
// has shown, 0 for none, and the client's error.
func shake(t *testing.T, client *tls.Config, server tls.Certificate) (serial int64, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mine, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Server(theirs,
		&tls.Config{
			Certificates: []tls.Certificate{server}, ClientAuth: tls.RequestClientCert,
			MinVersion: tls.VersionTLS12,
		})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s.HandshakeContext(t.Context()) == nil {
			_, _ = s.Read(make([]byte, 1)) // in TLS 1.3 the client is done first
		}
	}()
	c := tls.Client(mine, client)
	err = c.HandshakeContext(t.Context())
	_ = mine.Close()
	<-ended
	if shown := s.ConnectionState().PeerCertificates; len(shown) > 0 {
		serial = shown[0].SerialNumber.Int64()
	}
	_ = theirs.Close()
	return serial, err
}

// TestClientVerifies accepts the certificates of its authorities that are valid for the server, and
// no others.
func TestClientVerifies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, other := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	server := issue(t, ca, filepath.Join(dir, "key.pem"), 1)
	issue(t, other, filepath.Join(dir, "other.key"), 2)
	for _, c := range []struct {
		ca, host, dialled, name string
		ok                      bool
	}{
		{ca: ca, host: "tools.test", dialled: "tools.test", ok: true},
		{ca: ca, host: "127.0.0.1", dialled: "127.0.0.1", ok: true},
		{ca: ca, host: "10.0.0.1", dialled: "10.0.0.1", name: "tools.test", ok: true},
		{ca: ca, host: "10.0.0.1", dialled: "10.0.0.1"},
		{ca: ca, host: "elsewhere.test", dialled: "elsewhere.test"},
		{ca: ca, host: "tools.test", dialled: "tools.test", name: "elsewhere.test"},
		{ca: other, host: "tools.test", dialled: "tools.test"},
		{host: "tools.test", dialled: "tools.test", name: "tools.test"}, // the authorities of the system
	} {
		config, err := Client(ClientFiles{CA: c.ca}, c.host, c.name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if config = config.Clone(); config.ServerName == "" {
			config.ServerName = c.dialled // as net/http and tls.Dialer do
		}
		_, err = shake(t, config, server)
		if c.ok != (err == nil) || err != nil && !errors.As(err, new(*tls.CertificateVerificationError)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestClientReadsAgain uses files that have changed, and what was before when they cannot be used.
func TestClientReadsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := ClientFiles{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"),
		Key: filepath.Join(dir, "key.pem"),
	}
	first := issue(t, files.CA, filepath.Join(dir, "server.key"), 1)
	issue(t, files.Cert, files.Key, 10)
	var log bytes.Buffer
	config, err := Client(files, "tools.test", "tools.test", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := shake(t, config, first); err != nil || shown != 10 {
		t.Fatal(shown, err)
	}
	second := issue(t, files.CA, filepath.Join(dir, "server.key"), 2)
	issue(t, files.Cert, files.Key, 20)
	if shown, err := shake(t, config, second); err != nil || shown != 20 {
		t.Error(shown, err)
	}
	if _, err := shake(t, config, first); err == nil {
		t.Error("an authority that has gone is trusted")
	}
	if log.Len() > 0 {
		t.Error(log.String())
	}
	if err := errors.Join(os.WriteFile(files.CA, []byte("torn"), 0o600),
		os.Remove(files.Key)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if shown, err := shake(t, config, second); err != nil || shown != 20 {
			t.Error(shown, err)
		}
	}
	if n := strings.Count(log.String(), "what was read before stays in use"); n != 2 {
		t.Errorf("%d warnings of two files: %s", n, &log)
	}
	if _, err := Client(files, "tools.test", "", nil); err == nil ||
		!strings.Contains(err.Error(), "ca.pem") {
		t.Error(err)
	}
}
