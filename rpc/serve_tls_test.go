package rpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
)

// writeCertificate writes a certificate for 127.0.0.1 and its key, and returns the certificate.
func writeCertificate(
	t *testing.T, dir string, serial int64,
) (certFile, keyFile string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, cert
}

// With a certificate every protocol is in TLS, and nothing else is accepted. A certificate that has
// changed is shown to new connections; one that cannot be used changes nothing.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile, cert := writeCertificate(t, dir, 1)
	s := run(t, &ServeOptions{CertFile: certFile, KeyFile: keyFile}, "127.0.0.1:0")
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	for scheme, works := range map[string]bool{
		"https": true, "wss": true, "tls": true, "http": false,
		"tcp": false,
	} {
		c, err := Dial(t.Context(), scheme+"://"+s.at[0],
			&Options{
				TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, MaxAttempts: 1,
				MinDelay: 1,
			})
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := farcall.Call[float64](t.Context(), c, "math/add",
			addParams{2, 3}); (err == nil) != works || works && sum != 5 {
			t.Errorf("%s: %v, %v", scheme, sum, err)
		}
		c.Close()
	}
	serial := func() int64 {
		conn, err := tls.Dial("tcp", s.at[0], &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	writeCertificate(t, dir, 2)
	s.Reload()
	if got := serial(); got != 2 {
		t.Errorf("serial number %d after a change", got)
	}
	if err := os.WriteFile(keyFile, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	other := t.TempDir()
	certFile, keyFile, _ = writeCertificate(t, other, 3)
	if got := serial(); got != 2 {
		t.Errorf("serial number %d after a change that cannot be used", got)
	}
	if !s.UseCertificate(certFile, keyFile, "") || serial() != 3 || s.UseCertificate("", "", "") {
		t.Errorf("serial number %d of other files", serial())
	}
}
