package gateway_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A rawLog is a JSON-RPC server that answers "[]" to all, and what it was sent.
type rawLog struct {
	mu    sync.Mutex
	lines []string
	conns int
}

func (r *rawLog) serve(conn net.Conn) {
	r.mu.Lock()
	r.conns++
	r.mu.Unlock()
	lines(func(line string) string {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, line)
		_, id, ok := strings.Cut(line, `"id":`)
		if !ok {
			return ""
		}
		id = id[:strings.IndexAny(id, ",}")]
		return `{"jsonrpc":"2.0","id":` + id + `,"result":[]}`
	})(conn)
}

func (r *rawLog) sent() (conns int, all string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns, strings.Join(r.lines, "\n")
}

// ask sends a line and returns the next one.
func ask(t *testing.T, conn net.Conn, in *bufio.Reader, line string) string {
	t.Helper()
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
	got, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A guard is asked about everything that a connection of JSON-RPC carries, and nothing that it refuses gets
// to the server.
func TestRawGuarded(t *testing.T) {
	secret := strings.Repeat("k", 32)
	server := &rawLog{}
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}},
		Guard: &guard.Config{
			Signatures: []guard.Signer{{ID: "ann", Secret: secret, Roles: []string{"user"}}},
			Allow:      []guard.Rule{{Roles: []string{"user"}, Calls: []string{"rpc r/math/*"}}},
		},
	}
	c.Guard.Stdio.Roles = []string{"user"}
	l := newLabOf(t, nil, c)
	addr := strings.TrimPrefix(listen(t, l.serveConn), "tcp://")
	conn := dialTCP(t, addr)
	in := bufio.NewReader(conn)
	for range 3 {
		if got := ask(t, conn, in, `{"jsonrpc":"2.0","id":1,"method":"math/add","params":{"a":1}}`); !strings.Contains(got, "-32051") {
			t.Errorf("nobody is known: %s", got)
		}
	}
	if got := ask(t, conn, in, `[{"jsonrpc":"2.0","method":"math/add"},{"jsonrpc":"2.0","id":2,"method":"math/add"}]`); !strings.HasPrefix(got, "[{") || !strings.Contains(got, "-32051") {
		t.Errorf("nobody is known: %s", got)
	}
	if conns, all := server.sent(); conns != 0 || all != "" {
		t.Errorf("%d connections, %s", conns, all)
	}

	sign := func(method, params string) string {
		t.Helper()
		signed, err := guard.SignParams(method, []byte(params), "ann", "", []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return `{"jsonrpc":"2.0","id":3,"method":"` + method + `","params":` + string(signed) + `}`
	}
	good := sign("math/add", `{"a":1}`)
	if got := ask(t, conn, in, good); !strings.Contains(got, `"result":[]`) {
		t.Errorf("signed: %s", got)
	}
	for what, try := range map[string]struct{ line, want string }{
		"again":      {good, "-32052"},
		"changed":    {strings.Replace(sign("math/add", `{"a":1}`), `"a":1`, `"a":2`, 1), "-32053"},
		"not signed": {`{"jsonrpc":"2.0","id":4,"method":"math/add","params":{"a":1}}`, "-32051"},
		"denied":     {sign("admin/stop", `{"now":true}`), "-32002"},
	} {
		if got := ask(t, conn, in, try.line); !strings.Contains(got, try.want) {
			t.Errorf("%s: %s, want %s", what, got, try.want)
		}
	}
	if conns, all := server.sent(); conns != 1 || all != good {
		t.Errorf("%d connections, and it was sent\n%s", conns, all)
	}
}

// TestRawVersions: JSON-RPC 1.0 passes over every transport, and the guard sees it as it sees 2.0.
func TestRawVersions(t *testing.T) {
	t.Parallel()
	server := &rawLog{}
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}},
		Guard:     &guard.Config{Anonymous: true, Allow: []guard.Rule{{Roles: []string{"anonymous"}, Calls: []string{"rpc r/math/*"}}}},
	})
	conn := dialTCP(t, strings.TrimPrefix(listen(t, l.serveConn), "tcp://"))
	in := bufio.NewReader(conn)
	ws, err := wsrpc.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/rpc/r", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	for transport, send := range map[string]func(line string) string{
		"TCP": func(line string) string { return ask(t, conn, in, line) },
		"WebSocket": func(line string) string {
			if err := ws.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			got, err := ws.Read()
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		},
		"HTTP": func(line string) string {
			r, err := http.Post(l.url+"/rpc/r", "application/json", strings.NewReader(line))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			got, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		},
	} {
		for method, want := range map[string]string{"math/add": `"result":[]`, "admin/stop": "-32002"} {
			if got := send(`{"id":1,"method":"` + method + `","params":[]}`); !strings.Contains(got, want) || !strings.Contains(got, `"id":1`) {
				t.Errorf("%s over %s: %s, want %s", method, transport, got, want)
			}
		}
	}
}

// Whoever is known by his connection is known in all of its messages: over standard input, and over a
// WebSocket by its handshake.
func TestRawGuardedConnections(t *testing.T) {
	const key = "a-key-of-a-hundred-and-something-bits"
	server := &rawLog{}
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}},
		Guard: &guard.Config{
			Keys:  []guard.Key{{ID: "ann", Hash: hashOf(key), Roles: []string{"user"}}},
			Allow: []guard.Rule{{Roles: []string{"user"}, Calls: []string{"rpc r/math/*"}}},
		},
	}
	c.Guard.Stdio.Roles = []string{"user"}
	c.Guard.Limits.Concurrent = 1
	l := newLabOf(t, nil, c)
	addr := strings.TrimPrefix(listen(t, func(conn net.Conn) {
		l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "stdio", Local: true})
	}), "tcp://")
	conn := dialTCP(t, addr)
	in := bufio.NewReader(conn)
	const add, stop = `{"jsonrpc":"2.0","id":1,"method":"math/add","params":{}}`, `{"jsonrpc":"2.0","id":2,"method":"admin/stop","params":{}}`
	for range 10 { // one at a time is no limit for those who wait
		if got := ask(t, conn, in, add); !strings.Contains(got, `"result":[]`) {
			t.Errorf("stdio: %s", got)
		}
	}
	if got := ask(t, conn, in, stop); !strings.Contains(got, "-32002") {
		t.Errorf("stdio: %s", got)
	}

	at := strings.Replace(l.url, "http", "ws", 1) + "/rpc/r"
	if _, err := wsrpc.Dial(t.Context(), at, nil); err == nil {
		t.Error("a WebSocket without a key was let in")
	}
	ws, err := wsrpc.Dial(t.Context(), at, &wsrpc.Options{Header: http.Header{"X-Api-Key": {key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	for line, want := range map[string]string{add: `"result":[]`, stop: "-32002"} {
		if err := ws.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if got, err := ws.Read(); !strings.Contains(string(got), want) || err != nil {
			t.Errorf("WebSocket: %s, %v, want %s", got, err, want)
		}
	}
	if _, all := server.sent(); strings.Contains(all, "stop") {
		t.Errorf("it was sent\n%s", all)
	}
}

// hashOf is how a configuration has a key.
func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
