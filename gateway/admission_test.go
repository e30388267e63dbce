package gateway_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
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

// A guard is asked about everything that a connection of JSON-RPC carries, and nothing that it
// refuses gets to the server.
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
		if got := ask(t, conn, in,
			`{"jsonrpc":"2.0","id":1,"method":"math/add","params":{"a":1}}`); !strings.Contains(got,
			"-32051") {
			t.Errorf("the caller is unauthenticated: %s", got)
		}
	}
	if got := ask(t, conn, in,
		`[{"jsonrpc":"2.0","method":"math/add"},{"jsonrpc":"2.0","id":2,`+
			`"method":"math/add"}]`); !strings.HasPrefix(got, "[{") || !strings.Contains(got, "-32051") {
		t.Errorf("the caller is unauthenticated: %s", got)
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

// overAll returns what sends a frame to the JSON-RPC server r and returns the answer, over every
// transport that clients may use.
func (l *lab) overAll(t *testing.T) map[string]func(frame string) string {
	t.Helper()
	line := func(c guard.Conn) func(frame string) string {
		conn := dialTCP(t, strings.TrimPrefix(listen(t, func(conn net.Conn) {
			l.ServeStream(stream.New(conn, stream.NDJSON, nil), &c)
		}), "tcp://"))
		in := bufio.NewReader(conn)
		return func(frame string) string { return strings.TrimSpace(ask(t, conn, in, frame)) }
	}
	ws, err := wsrpc.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/rpc/r", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	return map[string]func(frame string) string{
		"TCP":   line(guard.Conn{Transport: "tcp"}),
		"stdio": line(guard.Conn{Transport: "stdio", Local: true}),
		"WebSocket": func(frame string) string {
			if err := ws.Write([]byte(frame)); err != nil {
				t.Fatal(err)
			}
			got, err := ws.Read()
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		},
		"HTTP": func(frame string) string {
			got, err := l.post(t.Context(), "/rpc/r", frame)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(got.body)
		},
	}
}

// verdict returns what an answer says, but for the order of its members and the words of an error.
func verdict(answer string) string {
	raw := []byte(strings.Trim(answer, "[]"))
	said := "id " + string(scan.Member(raw, "id")) + ", result " + string(scan.Member(raw, "result"))
	return said + ", error " + string(scan.Member(scan.Member(raw, "error"), "code"))
}

// The bytes of a message pass, and are judged, alike over every transport: JSON-RPC 1.0 and 2.0,
// what the guard refuses, and what is no message. Nothing that is refused gets to the server.
func TestRawTransports(t *testing.T) {
	t.Parallel()
	const params = `{ "a": 1.0, "b": 1e400, "\u0063":"\u00e9" }`
	for name, test := range map[string]struct {
		frame, want string
		sent        bool
	}{
		"2.0": {
			`{"jsonrpc":"2.0","id":7,"method":"math/add","params":` + params + `}`,
			`"result":[]`, true,
		},
		"1.0": {
			`{"id":7,"method":"math/add","params":[` + params + `]}`,
			`"result":[]`, true,
		},
		"denied": {
			`{"jsonrpc":"2.0","id":7,"method":"admin/stop","params":` + params + `}`,
			"-32002", false,
		},
		"denied, 1.0": {`{"id":7,"method":"admin/stop","params":[` + params + `]}`, "-32002", false},
		"denied in batch": {
			`[{"jsonrpc":"2.0","id":7,"method":"admin/stop","params":` + params + `}]`,
			"-32002", false,
		},
		"escaped": {
			`{"jsonrpc":"2.0","id":7,"method":"math\/add","params":` + params + `}`,
			`"result":[]`, true,
		},
		"denied, escaped": {
			`{"jsonrpc":"2.0","id":7,"method":"\u0061dmin/stop","params":` + params + `}`, "-32002", false,
		},
		"a member twice": {
			`{"jsonrpc":"2.0","id":7,"method":"math/add","meth\u006fd":"admin/stop"}`,
			"-32600", false,
		},
		"no version": {`{"jsonrpc":"3.0","id":7,"method":"math/add"}`, "-32600", false},
		"no JSON":    {`{"jsonrpc":"2.0","id":7,"method":"math/add"`, "-32700", false},
		"params not UTF-8": {
			"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"math/add\",\"params\":[\"\xff\"]}", "-32700", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &rawLog{}
			c := &gateway.Config{
				Upstreams: []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}},
				Guard: &guard.Config{
					Anonymous: true,
					Allow: []guard.Rule{
						{Roles: []string{"anonymous", "user"}, Calls: []string{"rpc r/math/*"}},
					},
				},
			}
			c.Guard.Stdio.Roles = []string{"user"}
			l := newLabOf(t, nil, c)
			answers := map[string][]string{}
			transports := l.overAll(t)
			for transport, send := range transports {
				got := send(test.frame)
				if !strings.Contains(got, test.want) {
					t.Errorf("over %s: %s, want %s", transport, got, test.want)
				}
				answers[verdict(got)] = append(answers[verdict(got)], transport)
			}
			if len(answers) != 1 {
				t.Errorf("the answers differ: %v", answers)
			}
			want := 0
			if test.sent {
				want = len(transports)
			}
			_, all := server.sent()
			if n := strings.Count(all, params); n != want || !test.sent && all != "" {
				t.Errorf("it was sent\n%s", all)
			}
		})
	}
}

// A principal of a connection is the principal of all of its messages: over standard input, and
// over a WebSocket by its handshake.
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
	const add, stop = `{"jsonrpc":"2.0","id":1,"method":"math/add","params":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"admin/stop","params":{}}`
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
