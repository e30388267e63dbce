package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/port"
)

var (
	listensAt     = regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]*`)
	reachableText = regexp.MustCompile(`other machines|is not a loopback address`)
)

// listening runs a command that listens on 127.0.0.1:0 until the end of the test, and returns the
// address.
func listening(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer write.Close()
		code := run(ctx, args, strings.NewReader(""), io.Discard, write)
		if code != exitOK && ctx.Err() == nil {
			t.Errorf("%v: exit status %d", args, code)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for lines := bufio.NewScanner(read); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), " to ") // of a proxy
		if address := listensAt.FindString(line); address != "" {
			wg.Go(func() { _, _ = io.Copy(io.Discard, read) })
			return address
		}
	}
	t.Fatalf("%v: it does not listen", args)
	return ""
}

// TestListeners is an invariant: each command that listens, and authenticates no callers, refuses
// addresses that other machines can reach, host names that may have been rebound, and pages of
// other hosts, over HTTP and WebSocket.
func TestListeners(t *testing.T) {
	t.Parallel()
	if port.Reachable(defaultAddress) {
		t.Errorf("other machines can reach %s, the address without --listen", defaultAddress)
	}
	host := strings.TrimPrefix(serve(t, "--listen", "127.0.0.1:0", "--log", "off").addrs[0], "http://")
	capture := filepath.Join(t.TempDir(), "a.jsonl")
	upstream := "up=http://" + host + "/mcp"
	const none = "duplicate:after=1000000" // a fault that does not come
	// of a command, with LISTEN for its address
	commands := map[string][]string{
		"serve":     {"serve", "--log", "off", "--listen", "LISTEN"},
		"gateway":   {"serve", "--log", "off", "--upstream", upstream, "--listen", "LISTEN"},
		"bridge":    {"bridge", "LISTEN", "http://" + host},
		"inspect":   {"inspect", "--no-browser", "--listen", "LISTEN"},
		"tap":       {"tap", "--out", capture, "LISTEN", "http://" + host},
		"tap tcp":   {"tap", "--out", capture + "2", "LISTEN", "tcp://" + host},
		"fault":     {"fault", "-q", "--fault", none, "http://LISTEN", "http://" + host},
		"fault ws":  {"fault", "-q", "--fault", none, "ws://LISTEN", "ws://" + host},
		"fault tcp": {"fault", "-q", "--fault", none, "tcp://LISTEN", "tcp://" + host},
	}
	at := func(name, address string) []string {
		args := make([]string, len(commands[name]))
		for i, word := range commands[name] {
			args[i] = strings.Replace(word, "LISTEN", address, 1)
		}
		return args
	}
	for name := range commands {
		for _, address := range []string{
			"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0", "tools.example.com:0",
		} {
			code, _, stderr := execute(t, at(name, address)...)
			if code != exitUsage || !reachableText.MatchString(stderr) {
				t.Errorf("%s on %s: exit status %d, %s", name, address, code, stderr)
			}
		}
		if strings.HasSuffix(name, " tcp") {
			continue // it serves no HTTP
		}
		address := listening(t, at(name, "127.0.0.1:0")...)
		for _, foreign := range []http.Header{
			{"Host": {"evil.example"}},
			{"Host": {"evil.example"}, "Origin": {"http://evil.example"}},
			{"Origin": {"http://evil.example"}},
			{"Origin": {"null"}},
		} {
			for _, path := range []string{"/rpc", "/mcp", "/sse", "/rpc/ws", "/", "/api/v1/status", "/ws"} {
				status := pageAsks(t, address, path, foreign)
				if name == "inspect" && status == http.StatusNotFound {
					continue
				}
				if path == "/" && foreign.Get("Host") == "" && status == http.StatusOK {
					continue // the page itself has no secret, and other pages cannot read it
				}
				if status < http.StatusBadRequest {
					t.Errorf("%s: %s of %v: status %d", name, path, foreign, status)
				}
			}
		}
	}
}

// pageAsks is the status of a request that a web page has its browser send.
func pageAsks(t *testing.T, address, path string, header http.Header) int {
	t.Helper()
	method, body := http.MethodPost, addCall
	switch path {
	case "/mcp":
		body = initialize
	case "/sse", "/", "/rpc/ws", "/ws", "/api/v1/status":
		method, body = http.MethodGet, ""
	}
	url := "http://" + address + path
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}
	if strings.HasSuffix(path, "ws") {
		r.Header = http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
			"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
		}
	}
	if origin := header.Get("Origin"); origin != "" {
		r.Header.Set("Origin", origin)
	}
	r.Host = header.Get("Host")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// executesLines is the address of a server that executes each line that is a message, as many do
// that serve standard input and output, and passes over others.
func executesLines(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if lines.Text() == addCall {
						_, _ = io.WriteString(conn, `{"jsonrpc":"2.0","id":1,"result":5}`+"\n")
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// TestPagesReachNoByteStream: a web page cannot have a server that reads lines execute the body of
// a request of HTTP, behind a proxy for byte streams.
func TestPagesReachNoByteStream(t *testing.T) {
	t.Parallel()
	to := "tcp://" + executesLines(t)
	file := filepath.Join(t.TempDir(), "a.jsonl")
	for name, args := range map[string][]string{
		"tap":   {"tap", "--out", file, "127.0.0.1:0", to},
		"fault": {"fault", "-q", "--fault", "duplicate:after=1000000", "tcp://127.0.0.1:0", to},
	} {
		address := listening(t, args...)
		for first, want := range map[string]string{
			"":                                   "5",
			"  ":                                 "5",
			"POST / HTTP/1.1\r\nHost: x\r\n\r\n": "",
		} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.WriteString(conn, first+"\n"+addCall+"\n")
			got, end := bufio.NewReader(conn).ReadString('\n')
			if err != nil || strings.Contains(got, `"result":5`) != (want != "") {
				t.Errorf("%s, %q first: got %q, %v, %v", name, first, got, end, err)
			}
			_ = conn.Close()
		}
	}
}
