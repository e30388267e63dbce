package gateway_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// masks refuses "bad", masks "secret" in params, and "private" in results and errors. An error with
// "odd" becomes none.
func masks(in *scanned) string {
	mask := func(name, value, word string) string {
		if !strings.Contains(value, word) {
			return hookPasses
		}
		return `{"decision":"allow","` + name + `":` + strings.ReplaceAll(value, word, "***") + `}`
	}
	switch {
	case in.Phase == "before" && strings.Contains(string(in.Params), "bad"):
		return `{"decision":"deny","reason":"it is bad"}`
	case in.Phase == "before":
		return mask("params", string(in.Params), "secret")
	case strings.Contains(string(in.Error), "odd"):
		return `{"decision":"allow","error":{"message":"x"}}`
	case in.Error != nil:
		return mask("error", string(in.Error), "private")
	}
	return mask("result", string(in.Result), "private")
}

// rpcServer has methods that answer with their params, fail with them, and ask the caller.
func rpcServer(t *testing.T) (url string) {
	t.Helper()
	mux := farcall.NewMux()
	mux.Handle("eth/echo",
		farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
			return r.Params, nil
		}))
	mux.Handle("eth/fail",
		farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
			return nil, &jsonrpc.Error{Code: 17, Message: "private words", Data: r.Params}
		}))
	mux.Handle("eth/ask",
		farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
			var answer jsonrpc.Raw
			err := farcall.CallerFrom(ctx).Call(ctx, "question", r.Params, &answer)
			return answer, farcall.PassOn(err)
		}))
	return listen(t, func(conn net.Conn) {
		<-farcall.NewPeer(stream.New(conn, stream.NDJSON, nil), mux, nil).Done()
	})
}

// Hooks see the params, the results and the errors of a server with the profile raw, over every
// transport, and what they change is what the server, or the client, gets.
func TestHooksOfRPC(t *testing.T) {
	t.Parallel()
	before, after := newScanner(t, "before", masks), newScanner(t, "after", masks)
	before.Tools = []string{"r/eth/*"}
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	g := &guard.Config{
		Anonymous: true,
		Allow:     []guard.Rule{{Roles: []string{"anonymous", "user"}, Calls: []string{"rpc r/*"}}},
	}
	g.Stdio.Roles = []string{"user"}
	g.Cedar = `forbid(principal, action, resource) when { context has arguments && ` +
		`context.arguments has a && context.arguments.a == "root***" };`
	g.Audit.File = audit
	u := &gateway.Upstream{
		Name: "r", URL: rpcServer(t), Profile: "raw",
		Hooks: []gateway.Hook{after.Hook},
	}
	l := newLabOf(t, nil,
		&gateway.Config{Guard: g, Hooks: []gateway.Hook{before.Hook}, Upstreams: []*gateway.Upstream{u}})
	for transport, send := range l.overAll(t) {
		for _, c := range []struct{ method, params, want string }{
			{"eth/echo", `{"a": 1.0}`, `"result":{"a": 1.0}`},
			{"eth/echo", `["secret private"]`, `"result":["*** ***"]`},
			{"eth/fail", `[1.0]`, `"error":{"code":17,"message":"*** words","data":[1.0]}`},
			{"eth/fail", `["odd"]`, "the call cannot be examined"},
			{"eth/echo", `["bad"]`, `"data":{"reason":"it is bad"}`},
			{"eth/echo", `{"a":"rootsecret"}`, "Permission denied"},
			{"eth/none", `[1]`, "-32601"},
		} {
			before.took()
			after.took()
			got := send(`{"jsonrpc":"2.0","id":7,"method":"` + c.method + `","params":` + c.params + `}`)
			if !strings.Contains(got, c.want) {
				t.Errorf("%s: %s %s: %s", transport, c.method, c.params, got)
			}
			in := before.took()
			if len(in) != 1 || in[0].Method != c.method || in[0].Tool != "" ||
				string(in[0].Params) != c.params || in[0].Upstream != "r" {
				t.Errorf("%s: %s: before: %+v", transport, c.params, in)
			}
			asked := !strings.Contains(c.want, "bad") && !strings.Contains(c.want, "denied")
			if out := after.took(); (len(out) == 1) != asked ||
				asked && (out[0].Result == nil) == (out[0].Error == nil) {
				t.Errorf("%s: %s: after: %+v", transport, c.params, out)
			}
		}
	}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(audit)
	if err != nil ||
		!strings.Contains(string(text), `"hooks":[{"hook":"the scanner","outcome":"changed"`) {
		t.Errorf("%v %.2000s", err, text)
	}
}

// A connection with hooks has its own connection to the server, which can ask its client. One that
// began without them takes no calls once there are some.
func TestHooksOfRPCConnections(t *testing.T) {
	t.Parallel()
	k := newScanner(t, "before", masks)
	url := rpcServer(t)
	config := func(hooks ...gateway.Hook) *gateway.Config {
		return &gateway.Config{
			Upstreams: []*gateway.Upstream{{Name: "r", URL: url, Profile: "raw", Hooks: hooks}},
		}
	}
	l := newLabOf(t, nil, config())
	dial := func() (net.Conn, *bufio.Reader) {
		conn := dialTCP(t, strings.TrimPrefix(listen(t, l.serveConn), "tcp://"))
		return conn, bufio.NewReader(conn)
	}
	const bad = `{"jsonrpc":"2.0","id":1,"method":"eth/echo","params":["bad"]}`
	conn, in := dial()
	if got := ask(t, conn, in, bad); !strings.Contains(got, `"result":["bad"]`) {
		t.Errorf("without hooks: %s", got)
	}
	if err := l.Reload(config(k.Hook)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(bad + "\n")); err == nil {
		if got, err := in.ReadString('\n'); err == nil && strings.Contains(got, "result") {
			t.Errorf("a connection from before passed the hook: %s", got)
		}
	}
	conn, in = dial()
	if got := ask(t, conn, in, bad); !strings.Contains(got, "it is bad") {
		t.Errorf("with hooks: %s", got)
	}
	question := ask(t, conn, in, `{"jsonrpc":"2.0","id":2,"method":"eth/ask","params":{"q":1}}`)
	if !strings.Contains(question, `"method":"question"`) || !strings.Contains(question, `{"q":1}`) {
		t.Fatalf("the client was asked %s", question)
	}
	_, id, _ := strings.Cut(question, `"id":`)
	id = id[:strings.IndexAny(id, ",}")]
	if got := ask(t, conn, in, `{"jsonrpc":"2.0","id":`+id+`,"result":"fine"}`); !strings.Contains(got,
		`"result":"fine"`) || !strings.Contains(got, `"id":2`) {
		t.Errorf("the answer: %s", got)
	}
}
