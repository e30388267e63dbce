package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serialOf connects and returns the serial number of the certificate, which is not checked.
func serialOf(t *testing.T, address string, mine ...tls.Certificate) (int64, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: mine})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, addCall); err != nil {
		return 0, err
	}
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		// TLS 1.3 tells now what it thinks of a client's certificate
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// TestServeRotatedCertificate: a certificate that has changed is shown to new connections, old ones
// go on, and one that cannot be used changes nothing.
func TestServeRotatedCertificate(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"playground": nil,
		"gateway":    {"--upstream", "a=http://127.0.0.1:1/mcp"},
		"config":     {"--config", "CONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cert, key := writeCertificateOf(t, dir, 100)
			file := filepath.Join(dir, "farcall.yaml")
			if err := os.WriteFile(file,
				[]byte("tls: {cert: cert.pem, key: key.pem}\nupstreams: {a: 'http://127.0.0.1:1/mcp'}\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			all := []string{"--tls-cert", cert, "--tls-key", key}
			if name == "config" {
				all, args = nil, []string{"--config", file}
			}
			s := serve(t, append(append(all, args...), "--listen", "127.0.0.1:0")...)
			at := s.hostport(t)
			want := func(serial int64) {
				t.Helper()
				if got, err := serialOf(t, at); err != nil || got != serial {
					t.Fatalf("serial %d, %v, want %d", got, err, serial)
				}
			}
			s.logged(t, 1, "certificate loaded.* serial=64 not_after=20")
			want(100)
			open := dial(t, at, &tls.Config{InsecureSkipVerify: true})
			before := open.call(t, addCall)

			writeCertificateOf(t, dir, 200)
			s.logged(t, 1, "certificate loaded.* serial=C8 ")
			want(200)
			if again := open.call(t, addCall); again != before {
				t.Errorf("the connection that was open: %s, before %s", again, before)
			}

			if err := os.WriteFile(key, []byte("not a key"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.logged(t, 1, "the new certificate cannot be used; the one before stays")
			want(200)

			writeCertificateOf(t, dir, 300)
			s.signal(t, syscall.SIGHUP)
			s.logged(t, 1, "certificate loaded.* serial=12C ")
			want(300)
		})
	}
}

// TestServeRotatedAuthority: clients with an authority that was replaced are refused from then on,
// and those of the new one are not.
func TestServeRotatedAuthority(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"flag":  {"--tls-client-ca", "ca.pem"},
		"guard": {"--guard", "guard.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cert, key := writeCertificate(t, dir)
			client := func(serial int64) (pair tls.Certificate, text []byte) {
				of := filepath.Join(dir, fmt.Sprint(serial))
				err := os.Mkdir(of, 0o700)
				file, private := writeCertificateOf(t, of, serial)
				if err == nil {
					pair, err = tls.LoadX509KeyPair(file, private)
				}
				if err == nil {
					text, err = os.ReadFile(file)
				}
				if err != nil {
					t.Fatal(err)
				}
				return pair, text
			}
			write := func(name string, text []byte) {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			old, oldText := client(0x100)
			next, nextText := client(0x200)
			write("ca.pem", oldText)
			write("guard.yaml", []byte("guard: {mtls: [{san: x, ca: ca.pem}]}\n"))
			s := serve(t, "--tls-cert", cert, "--tls-key", key, args[0], filepath.Join(dir, args[1]))
			at := s.hostport(t)
			want := func(serial int, accepted, refused tls.Certificate) {
				t.Helper()
				s.logged(t, 1, fmt.Sprintf("authority of client certificates loaded.* serial=%X ", serial))
				if _, err := serialOf(t, at, accepted); err != nil {
					t.Error(err)
				}
				if _, err := serialOf(t, at, refused); err == nil ||
					!strings.Contains(err.Error(), "unknown certificate authority") {
					t.Errorf("the other authority: %v", err)
				}
			}
			want(0x100, old, next)
			write("ca.pem", nextText)
			want(0x200, next, old)
		})
	}
}
