package port

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestReachable(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:7331": false, "127.0.0.53:80": false, "[::1]:0": false, "[::ffff:127.0.0.1]:1": false,
		"localhost:7331": false, "LOCALHOST.:7331": false, "unix:/run/x": false, "unix:@x": false,
		":7331": true, "0.0.0.0:7331": true, "[::]:7331": true, "192.168.1.5:80": true,
		"172.17.0.2:80": true, "[fd00::5]:80": true,
		"[fe80::1%eth0]:80": true, "[::ffff:10.0.0.1]:80": true, "tools.example.com:80": true,
		"localhost.example.com:80": true,
		"127.0.0.1.example.com:80": true, "127.1:80": true, "0:80": true, "nonsense": true, "": true,
	} {
		if got := Reachable(addr); got != want {
			t.Errorf("%q: %v, want %v", addr, got, want)
		}
	}
}

// TestFamily: package net listens on IPv6 as well where it is asked for 0.0.0.0.
func TestFamily(t *testing.T) {
	for addr, want := range map[string]string{
		"0.0.0.0:80": "tcp4", "127.0.0.1:0": "tcp4", "192.0.2.1:80": "tcp4",
		":80": "tcp", "[::]:80": "tcp", "[::1]:80": "tcp", "localhost:80": "tcp",
		"[::ffff:127.0.0.1]:80": "tcp", "nonsense": "tcp",
	} {
		if got := family(addr); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}

// TestPlaintextIsOff: where there is a certificate, what comes without TLS is answered in its own
// words and nothing of it is executed, but over a unix socket.
func TestPlaintextIsOff(t *testing.T) {
	w := start(t, true, Options{})
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n": "HTTP/1.1 400 ",
		"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}":                    "HTTP/1.1 400 ",
		"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\n\r\nhello\n":         "HTTP/1.1 400 ",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                  "HTTP/1.1 400 ",
		"{\"a\":1}\n": `{"jsonrpc":"2.0",` +
			`"id":null,"error":`,
		"[{}]\n": `{"jsonrpc":"2.0",` +
			`"id":null,"error":`,
		"Content-Length: 2\r\n\r\n{}": `{"jsonrpc":"2.0",` +
			`"id":null,"error":`,
	} {
		for _, size := range []int{1, 1000} {
			got := talk(t, w.dial(t, false), in, size)
			if !strings.HasPrefix(got, want) || !strings.Contains(got, "TLS only") ||
				strings.Contains(got, "lines:") || strings.Contains(got, "tls=") {
				t.Errorf("%q: got %q", in, got)
			}
		}
	}
	if got := talk(t, w.dial(t, true), "{}\n", 1000); got != "lines:{}\n" {
		t.Errorf("over TLS: %q", got)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.pool}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(got), "tls=true") {
		t.Errorf("HTTPS: %q, %v", got, err)
	}
	path := t.TempDir() + "/s"
	l, err := Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, served := t.Context(), make(chan error, 1)
	go func() { served <- w.Serve(ctx, l) }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := talk(t, conn, "{}\n", 1000); got != "lines:{}\n" {
		t.Errorf("over a unix socket: %q", got)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestCheck: an address that cannot be read is explained, and what is written instead can be.
func TestCheck(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7331": "", ":0": "", "[::1]:1": "", "tools.example.com:80": "", "unix:/run/x": "",
		"unix:@x": "", "unix:///run/x": "", "npipe:x": "",
		"7331":        `the address "7331" has no host: 127.0.0.1:7331`,
		"http://h:1/": `the address "http://h:1/" has a scheme, and one port speaks every protocol: h:1`,
		"unix:":       `the address "unix:" has no path: unix:/tmp/farcall.sock`,
		"npipe:":      `the address "npipe:" has no name: npipe:farcall`,
		"h":           `the address "h" cannot be read: missing port in address: host:port`,
		"127.0.0.1:99999": `the address "127.0.0.1:99999" has a bad port; ports go from 0 to ` +
			`65535: host:port`,
		"127.0.0.1:domain": `the address "127.0.0.1:domain" has a bad port; ports go from 0 to ` +
			`65535: host:port`,
	} {
		got := ""
		if bad, ok := errors.AsType[*AddressError](Schemes().Check(addr)); ok {
			got = bad.Error() + ": " + bad.Instead
			if instead, _, _ := strings.Cut(bad.Instead, ","); instead != "host:port" &&
				Schemes().Check(instead) != nil {
				t.Errorf("%s: %s cannot be read either", addr, instead)
			}
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}

// A connection came over the listener that has its port, on its address or on every interface.
func TestArrivedAt(t *testing.T) {
	t.Parallel()
	tcp := func(address string) net.Addr {
		return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
	}
	unix := func(name string) net.Addr { return &net.UnixAddr{Net: "unix", Name: name} }
	for _, v := range []struct {
		listener, at net.Addr
		want         bool
	}{
		{tcp("127.0.0.1:80"), tcp("127.0.0.1:80"), true},
		{tcp("127.0.0.1:80"), tcp("[::ffff:127.0.0.1]:80"), true},
		{tcp("0.0.0.0:80"), tcp("10.0.0.1:80"), true},
		{tcp("[::]:80"), tcp("10.0.0.1:80"), true},
		{tcp("[::]:80"), tcp("10.0.0.1:81"), false},
		{tcp("127.0.0.2:80"), tcp("127.0.0.1:80"), false},
		{unix("/a"), unix("/a"), true},
		{unix("/a"), unix("/b"), false},
		{unix("/a"), tcp("127.0.0.1:80"), false},
		{tcp("127.0.0.1:80"), nil, false},
	} {
		if got := ArrivedAt(v.listener, v.at); got != v.want {
			t.Errorf("%v came over %v: %v", v.at, v.listener, got)
		}
	}
}
