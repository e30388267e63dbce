package rpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

func newMux() *farcall.Mux {
	mux := farcall.NewMux()
	farcall.Handle(mux, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	return mux
}

// serveStreams serves a listener until the test ends, and returns what cuts its connections.
func serveStreams(t *testing.T, l net.Listener, framing stream.Framing) (cut func()) {
	t.Helper()
	peers := make(chan *farcall.Peer, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			peers <- farcall.NewPeer(stream.New(conn, framing, nil), newMux(), nil)
		}
	}()
	cut = func() { _ = (<-peers).Close() }
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for len(peers) > 0 {
			cut()
		}
	})
	return cut
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestDial calls over every transport, and over the byte streams again after the connection was
// cut.
func TestDial(t *testing.T) {
	upgrade := wsrpc.NewHandler(func(c farcall.Transport, _ *http.Request) {
		farcall.NewPeer(c, newMux(), nil)
	}, nil)
	post := httprpc.NewHandler(newMux(), nil)
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rpc":
			post.ServeHTTP(w, r)
		case "/rpc/ws":
			upgrade.ServeHTTP(w, r)
		}
	})
	plain, secure := httptest.NewServer(site), httptest.NewTLSServer(site)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	o := &rpc.Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	host, secureHost := strings.TrimPrefix(plain.URL, "http://"),
		strings.TrimPrefix(secure.URL, "https://")

	lines, headers := listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	socket := filepath.Join(t.TempDir(), "s")
	unix := listen(t, "unix", socket)
	encrypted := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), secure.TLS)
	cuts := map[string]func(){
		"tcp://" + lines.Addr().String():                       serveStreams(t, lines, stream.NDJSON),
		"tcp://" + headers.Addr().String() + "?framing=header": serveStreams(t, headers, stream.Header),
		"tls://" + encrypted.Addr().String():                   serveStreams(t, encrypted, stream.NDJSON),
		"unix:" + socket:                                       serveStreams(t, unix, stream.NDJSON),
		"http://" + host:                                       nil,
		host:                                                   nil,
		"https://" + secureHost:                                nil,
		"ws://" + host:                                         nil,
		"wss://" + secureHost:                                  nil,
	}
	for address, cut := range cuts {
		c, err := rpc.Dial(t.Context(), address, o)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if n, err := farcall.Call[int](t.Context(), c, "double", []int{21}); n != 42 || err != nil {
			t.Errorf("%s: %d, %v", address, n, err)
		}
		if cut != nil {
			p, err := c.Peer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cut()
			<-p.Done()
			if n, err := farcall.Call[int](t.Context(), c, "double", []int{4}); n != 8 || err != nil {
				t.Errorf("%s, after the connection was cut: %d, %v", address, n, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestDialErrors(t *testing.T) {
	for address, want := range map[string]string{
		"ftp://h":                     `no transport "ftp"`,
		"":                            "neither a URL nor host:port",
		"unix:" + t.TempDir() + "/no": "cannot connect to unix:",
	} {
		c, err := rpc.Dial(t.Context(), address, nil)
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
	// What is to be sent is not lost silently.
	header := &rpc.Options{Header: http.Header{"Authorization": {"Bearer x"}}}
	for _, address := range []string{"tcp://127.0.0.1:1", "tls://127.0.0.1:1", "unix:/no"} {
		if _, err := rpc.Dial(t.Context(), address, header); err == nil ||
			!strings.Contains(err.Error(), "has no headers") {
			t.Errorf("%s with headers: %v", address, err)
		}
	}
	if _, err := rpc.Command(t.Context(), nil, "/no/such/program"); err == nil {
		t.Error("a program that is not there was started")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rpc.Dial(canceled, "tcp://127.0.0.1:1", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
