package interop

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
)

// A proxy ends the TLS of those who connect through it with certificates of its CA, as those of
// companies do.
type proxy struct {
	key   *ecdsa.PrivateKey
	ca    *x509.Certificate
	file  string // of the CA
	url   string
	conns chan net.Conn // with TLS

	mu    sync.Mutex
	hosts map[string]int // how often each was connected to
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{
		file: filepath.Join(t.TempDir(), "ca.pem"), conns: make(chan net.Conn),
		hosts: map[string]int{},
	}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	p.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the company"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, p.ca, p.ca, &p.key.PublicKey, p.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	inner := &http.Server{
		ErrorLog: log.New(t.Output(), "", 0),
		Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "https", r.In.Host
		}},
	}
	go func() { _ = inner.Serve(p) }()
	front := httptest.NewServer(http.HandlerFunc(p.connect))
	t.Cleanup(func() {
		front.Close()
		_ = inner.Close()
	})
	p.url = front.URL
	return p
}

// connect serves CONNECT.
func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	p.mu.Lock()
	p.hosts[r.URL.Hostname()]++
	p.mu.Unlock()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	p.conns <- tls.Server(conn,
		&tls.Config{GetCertificate: p.certificate, MinVersion: tls.VersionTLS12})
}

func (p *proxy) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{hello.ServerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, p.ca, &p.key.PublicKey, p.key)
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: p.key}, err
}

// Accept implements net.Listener, as Close and Addr do.
func (p *proxy) Accept() (net.Conn, error) {
	if conn, ok := <-p.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p *proxy) Close() error   { close(p.conns); return nil }
func (p *proxy) Addr() net.Addr { return &net.TCPAddr{} }

// TestNPXBehindProxy is the example of README.md where the network is behind a proxy with its own
// CA: npx has neither the package nor another way to it.
func TestNPXBehindProxy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npx"); err != nil {
		missing(t, "there is no npx")
	}
	if _, err := net.LookupHost("registry.npmjs.org"); err != nil {
		missing(t, "the registry of npm cannot be reached")
	}
	p, home := newProxy(t), t.TempDir()
	cmd := exec.Command(farcallPath, "bridge", "127.0.0.1:0", "--", "npx", "-y",
		"@modelcontextprotocol/server-everything")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "npm_config_cache=" + filepath.Join(home, "npm"),
		// that of the machine may name another CA
		"npm_config_globalconfig=" + filepath.Join(home, "npmrc"),
		"HTTPS_PROXY=" + p.url, "NODE_EXTRA_CA_CERTS=" + p.file,
	}
	f := begins(t, cmd)
	var last error
	for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
		// each call waits 25 s for the package
		c, err := mcp.Dial(t.Context(), "http://"+f.address+"/mcp", nil)
		if err != nil {
			last = err
			continue
		}
		defer c.Close()
		tools, err := c.Tools(t.Context())
		if last = err; err == nil {
			if len(tools) == 0 {
				t.Error("the server has no tools")
			}
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last != nil || p.hosts["registry.npmjs.org"] == 0 {
		t.Fatalf("%v; connected to %v; %s", last, p.hosts, strings.TrimSpace(f.output()))
	}
	t.Logf("connected to %v", p.hosts)
}
