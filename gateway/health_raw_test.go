package gateway_test

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/stream"
)

// At the addresses for JSON-RPC the gateway answers for its health in place of the server, behind
// the guard, over HTTP and over a connection that is carried. The server sees none of it.
func TestHealthMethods(t *testing.T) {
	t.Parallel()
	server := &rawLog{}
	down := &gateway.Upstream{Name: "down", URL: "tcp://127.0.0.1:1", Profile: "raw"}
	up := &gateway.Upstream{Name: "up", URL: listen(t, server.serve), Profile: "raw"}
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{up, down},
		Guard:     guarded(guard.Rule{Roles: []string{"dev"}, Calls: []string{"*"}}),
	})
	const check = `{"jsonrpc":"2.0","id":1,"method":"grpc.health.v1.Health/Check","params":`
	post := func(path, params, who string) string {
		t.Helper()
		r, err := l.post(t.Context(), path, check+params+`}`, as(who))
		if err != nil {
			t.Fatal(err)
		}
		return r.body
	}
	_ = post("/rpc/down", `{}`, "dev") // nothing is known of it before a call
	if _, err := l.post(t.Context(), "/rpc/down", `{"jsonrpc":"2.0","id":1,"method":"x"}`,
		as("dev")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, params, who, want string }{
		{"/rpc/up", `{}`, "dev", `"SERVING"`},
		{"/rpc/up", `{"service":"up"}`, "dev", `"SERVING"`},
		{"/rpc/up", `{"service":"down"}`, "dev", `"SERVICE_UNKNOWN"`},
		{"/rpc/down", `{"service":"down"}`, "dev", `"NOT_SERVING"`},
		{"/rpc/down", `{}`, "dev", `"SERVING"`}, // it is not required
		{"/rpc/up", `{"service":7}`, "dev", `-32602`},
		{"/rpc/up", `{}`, "eve", `"error"`},
	} {
		if got := post(test.path, test.params, test.who); !strings.Contains(got, test.want) {
			t.Errorf("%s %s as %s: %s", test.path, test.params, test.who, got)
		}
	}
	if took := func() string {
		_, all := server.sent()
		return all
	}(); strings.Contains(took, "grpc") {
		t.Errorf("the server got\n%s", took)
	}
}

// A connection that is carried to the only server has the method, in batches, too.
func TestHealthPiped(t *testing.T) {
	t.Parallel()
	server := &rawLog{}
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: []*gateway.Upstream{{Name: "r", URL: listen(t, server.serve), Profile: "raw"}},
		})
	addr := strings.TrimPrefix(listen(t, func(conn net.Conn) {
		l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "tcp"})
	}), "tcp://")
	conn := dialTCP(t, addr)
	in := bufio.NewReader(conn)
	const method = `"method":"grpc.health.v1.Health/`
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,` + method +
			`Check"}`: `{"jsonrpc":"2.0","result":{"status":"SERVING"},"id":1}`,
		`{"jsonrpc":"2.0","id":"a",` + method +
			`Check","params":{"service":"r"}}`: `{"jsonrpc":"2.0","result":{"status":"SERVING"},"id":"a"}`,
		`{"jsonrpc":"2.0","id":2,` + method +
			`Watch"}`: `-32601`,
		`[{"jsonrpc":"2.0","id":3,` + method + `Check"},{"jsonrpc":"2.0","method":"` +
			`note"}]`: `[{"jsonrpc":"2.0","result":{"status":"SERVING"},"id":3}]`,
		`{"jsonrpc":"2.0","id":4,` +
			`"method":"math/add"}`: `"id":4`,
	} {
		if got := ask(t, conn, in, line); !strings.Contains(got, want) {
			t.Errorf("%s\nis answered %s", line, got)
		}
	}
	if took := func() string {
		_, all := server.sent()
		return all
	}(); strings.Contains(took, "grpc") || !strings.Contains(took, "math/add") {
		t.Errorf("the server got\n%s", took)
	}
}

// Over HTTP the gateway streams the status of an upstream: what it is now, each change, and the end
// when the gateway shuts down. The upstream gets nothing of it.
func TestHealthWatch(t *testing.T) {
	t.Parallel()
	server := &rawLog{}
	up := &gateway.Upstream{Name: "up", URL: listen(t, server.serve), Profile: "raw"}
	l := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{up}})
	c, err := rpc.Dial(t.Context(), l.url+"/rpc/up", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		var failed error
		for got, err := range farcall.Stream[map[string]string](t.Context(), c, health.Watch,
			map[string]string{"service": "up"}) {
			if failed = err; err == nil {
				seen <- got["status"]
			}
		}
		ended <- failed
	}()
	if got := received(t, "the status", seen); got != "SERVING" {
		t.Error(got)
	}
	if got := l.ask(t, http.MethodPost, "/upstreams/up/disable", "{}"); got.status != http.StatusOK {
		t.Error(got)
	}
	if got := received(t, "the change", seen); got != "NOT_SERVING" {
		t.Error(got)
	}
	if got := l.ask(t, http.MethodPost, "/upstreams/up/enable", "{}"); got.status != http.StatusOK {
		t.Error(got)
	}
	if got := received(t, "the next change", seen); got != "SERVING" {
		t.Error(got)
	}
	go func() { _ = l.Shutdown(t.Context()) }()
	if got := received(t, "the last status", seen); got != "NOT_SERVING" {
		t.Error(got)
	}
	if err := received(t, "the end", ended); err != nil {
		t.Error(err)
	}
	if _, all := server.sent(); strings.Contains(all, "grpc") {
		t.Errorf("the server got\n%s", all)
	}
}
