package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

// trust makes a certificate for the server and a configuration that accepts it.
func trust(t *testing.T) (cert, key string, config *tls.Config) {
	t.Helper()
	cert, key = writeCertificate(t, t.TempDir())
	pem, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	config = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate")
	}
	return cert, key, config
}

const (
	addCall   = `{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}`
	addAnswer = `{"jsonrpc":"2.0","result":5,"id":1}`
)

// One port speaks everything, in the clear and in TLS.
func TestServeEveryProtocol(t *testing.T) {
	t.Parallel()
	cert, key, config := trust(t)
	s := serve(t, "--listen", "127.0.0.1:0", "--listen", "unix:"+t.TempDir()+"/s", "--tls-cert", cert,
		"--tls-key", key, "--insecure")
	if !strings.HasPrefix(s.addrs[0], "https://127.0.0.1:") {
		t.Errorf("ready line for %s", s.addrs[0])
	}
	host := s.hostport(t)
	for _, c := range []struct {
		transport string
		addr      string
		config    *tls.Config
	}{
		{"tcp", host, nil},
		{"tcp+tls", host, config},
		{"unix", s.addrs[1], nil},
		{"unix+tls", s.addrs[1], config},
	} {
		if got := dial(t, c.addr, c.config).call(t, addCall); got != addAnswer {
			t.Errorf("lines over %s: %s", c.transport, got)
		}
		w := dial(t, c.addr, c.config)
		w.send(t, headerFrame(addCall))
		if got := w.headerAnswer(t); got != addAnswer {
			t.Errorf("headers over %s: %s", c.transport, got)
		}
		s.logged(t, 2, " transport="+strings.ReplaceAll(c.transport, "+", `\+`)+" ")
	}
	for _, c := range []struct {
		transport string
		base      string
		protocol  string
		client    *http.Client
	}{
		{"http", "http://" + host, "HTTP/1.1", httpClient(nil)},
		{"https", "https://" + host, "HTTP/2.0", httpClient(config)},
		{"http", "http://" + host, "HTTP/2.0", plainHTTP2()},
	} {
		if res := request(t, c.client, "POST", c.base+"/rpc", addCall); res.proto != c.protocol ||
			res.body != addAnswer {
			t.Errorf("%s: %s %s", c.transport, res.proto, res.body)
		}
		s.logged(t, 1, " transport="+c.transport+" ")
	}
	for transport, url := range map[string]string{"ws": "ws://" + host, "wss": "wss://" + host} {
		for _, path := range []string{"/rpc/ws", "/rpc"} {
			client := webSocket(t, url+path, nil, config)
			if got, err := farcall.Call[float64](t.Context(), client, "math/add", []int{2, 3}); got != 5 ||
				err != nil {
				t.Errorf("%s%s: %v, %v", transport, path, got, err)
			}
			s.logged(t, 1, " transport="+transport+" conn="+transport+"-")
		}
	}
	s.stop(t)
}

// A first line that is no JSON is answered, and the connection goes on.
func TestServeGarbageFirst(t *testing.T) {
	t.Parallel()
	playground := serve(t, "--log", "off")
	for name, addr := range map[string]string{
		"playground": playground.hostport(t),
		"gateway": serve(t, "--log", "off", "--upstream",
			"a=tcp://"+playground.hostport(t)).hostport(t),
	} {
		for _, garbage := range []string{"hello", "GETX / 1", "\xef\xbb\xbf{}", "220 ready\r"} {
			w := dial(t, addr, nil)
			if got := w.call(t, garbage); !strings.Contains(got, `"code":-32700`) ||
				!strings.Contains(got, `"id":null`) {
				t.Errorf("%s: %q was answered with %s", name, garbage, got)
			}
			if got := w.call(t, addCall); got != addAnswer {
				t.Errorf("%s: after %q: %s", name, garbage, got)
			}
		}
	}
}

// JSON texts without line ends, or with line ends inside, are found out, and each is answered as it
// ends.
func TestServeRawJSON(t *testing.T) {
	t.Parallel()
	second := strings.Replace(addCall, `"id":1`, `"id":2`, 1) // the first one may still be in flight
	pretty := strings.NewReplacer(",", ",\n  ", "{", "{\n  ", "}", "\n}").Replace(addCall)
	playground := serve(t, "--log", "off")
	for name, addr := range map[string]string{
		"playground": playground.hostport(t),
		"gateway": serve(t, "--log", "off", "--upstream",
			"a=tcp://"+playground.hostport(t)+"?framing=raw").hostport(t),
	} {
		for what, texts := range map[string][]string{
			"without line ends": {addCall, addCall, " " + addCall},
			"two at once":       {addCall + second, addCall + " " + second},
			"on several lines":  {pretty, "\n" + pretty + "\n"},
			"lines afterwards":  {addCall + "\n", addCall + "\n"},
		} {
			w := dial(t, addr, nil)
			for _, text := range texts {
				w.send(t, text)
				for range strings.Count(text, "math/add") {
					if got := w.line(t); strings.Replace(got, `"id":2`, `"id":1`, 1) != addAnswer {
						t.Errorf("%s: %s: %q was answered with %s", name, what, text, got)
					}
				}
			}
		}
	}
}

// plainHTTP2 speaks HTTP/2 without TLS, from the first byte.
func plainHTTP2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{
		Timeout: waitLimit, Transport: &http.Transport{Protocols: protocols, DisableKeepAlives: true},
	}
}

// webSocket connects a peer that serves h.
func webSocket(t *testing.T, url string, h farcall.Handler, config *tls.Config) *farcall.Peer {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	conn, err := wsrpc.Dial(t.Context(), url,
		&wsrpc.Options{Client: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	peer := farcall.NewPeer(conn, h, nil)
	t.Cleanup(func() {
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return peer
}

// Over a connection that goes both ways the server pushes and calls back.
func TestServeBothWays(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log", "off")
	ticks := make(chan string, 10)
	ours := farcall.NewMux()
	ours.Handle("onTick",
		farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
			ticks <- string(req.Params)
			return nil, nil
		}))
	farcall.Handle(ours, "greet", func(_ context.Context, p struct{ Name string }) (string, error) {
		return "Hello, " + p.Name, nil
	})
	client := webSocket(t, strings.Replace(s.addrs[0], "http", "ws", 1)+"/rpc/ws", ours, nil)
	var started jsonrpc.Raw
	if err := client.Call(t.Context(), "clock/subscribe",
		map[string]int{"interval_ms": 10, "count": 2}, &started); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"subscription":1,"tick":1,"time":"`,
		`{"subscription":1,"tick":2,"time":"`,
	} {
		if got := <-ticks; !strings.HasPrefix(got, want) {
			t.Errorf("tick %s, want %s", got, want)
		}
	}
	got, err := farcall.Call[string](t.Context(), client, "callback",
		map[string]any{"method": "greet", "params": []string{"Ada"}})
	if got != "Hello, Ada" || err != nil {
		t.Errorf("callback over WebSocket: %q, %v", got, err)
	}

	w := dial(t, s.addrs[0], nil)
	if got := w.call(t,
		`{"jsonrpc":"2.0","id":1,"method":"callback","params":{"method":"m","params":[1.0]}}`); got !=
		`{"jsonrpc":"2.0","method":"m","params":[1.0],"id":1}` {
		t.Fatalf("called back with %s", got)
	}
	if got := w.call(t, `{"jsonrpc":"2.0","id":1,"result":{"x":1e400}}`); got !=
		`{"jsonrpc":"2.0","result":{"x":1e400},"id":1}` {
		t.Errorf("callback over TCP: %s", got)
	}
	for method, params := range map[string]string{"clock/subscribe": `[]`, "callback": `["m"]`} {
		body := request(t, httpClient(nil), "POST", s.addrs[0]+"/rpc",
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)).body
		if !strings.Contains(body,
			`"code":-32043,"message":"This transport cannot call the caller back; use WebSocket`) {
			t.Errorf("%s over HTTP: %s", method, body)
		}
	}
	s.stop(t)
}

// What was asked before the end of standard input is answered.
func TestServeStdioFinishes(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lines":  `{"jsonrpc":"2.0","id":1,"method":"sleep","params":[50]}`,
		"header": headerFrame(`{"jsonrpc":"2.0","id":1,"method":"sleep","params":[50]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--stdio", "--log", "off")
			if _, err := io.WriteString(s.stdin, text); err != nil {
				t.Fatal(err)
			}
			if err := s.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			out, err := io.ReadAll(s.stdout)
			if err != nil ||
				!strings.Contains(string(out), `{"jsonrpc":"2.0","result":{"ms":50,"of":50},"id":1}`) ||
				strings.HasPrefix(string(out), "Content-Length: ") != (name == "header") {
				t.Errorf("standard output: %q, %v", out, err)
			}
			if code := s.wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A signal ends the process also while it waits for standard input.
func TestServeStdioSignal(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"before any input": "", "after some": addCall + "\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--stdio", "--listen", "127.0.0.1:0", "--log", "off")
			if first != "" {
				if _, err := io.WriteString(s.stdin, first); err != nil {
					t.Fatal(err)
				}
				if got, err := s.stdout.ReadString('\n'); got != addAnswer+"\n" {
					t.Fatal(got, err)
				}
			}
			s.stop(t)
		})
	}
}
