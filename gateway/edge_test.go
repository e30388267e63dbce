package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// TestEdgeCounts: the gateway counts what its clients got, from a server, the guard or itself. A
// call that its client gives up has not failed, and handshakes are no calls.
func TestEdgeCounts(t *testing.T) {
	t.Parallel()
	m := newMock("")
	mcp.AddTool(m.Server, mcp.Tool{Name: "fail"}, func(context.Context, textIn) (string, error) {
		return "", errors.New("no")
	})
	conf := &gateway.Config{
		Upstreams: []*gateway.Upstream{m.tcp(t, "m"), {Name: "gone", URL: "tcp://127.0.0.1:1"}},
		Namespace: "always",
		Guard:     guarded(allow("dev", "tools/call m/*"), allow("ops", "**")),
	}
	l := newLabOf(t, nil, conf)
	calls, failed := 0, 0
	counts := func(what string, n, errs int) {
		t.Helper()
		calls, failed = calls+n, failed+errs
		until(t, what+" is counted", func() bool {
			s := l.statusAs(t, "ops")
			return s.Calls == calls && s.Errors == failed
		})
	}
	call := func(ctx context.Context, who, tool string) error {
		_, err := l.modern(ctx, "tools/call", tool, `"name":"`+tool+`","arguments":{"text":"a"}`, as(who))
		return err
	}
	l.enter(t, "/mcp", "dev", "legacy")
	counts("the handshake", 0, 0)
	for _, c := range []struct {
		what, who, tool string
		errs            int
	}{
		{"a call", "dev", "m__echo", 0},
		{"a failed tool", "dev", "m__fail", 1},
		{"a refusal of the guard", "eve", "m__echo", 1},
		{"an answer of the gateway", "dev", "m__nothing", 1},
		{"a server that cannot be reached", "ops", "gone__echo", 1},
	} {
		if err := call(t.Context(), c.who, c.tool); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		counts(c.what, 1, c.errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- call(ctx, "dev", "m__wait") }()
	received(t, "the call", m.started)
	cancel()
	if err := received(t, "its end", over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	counts("a call that was given up", 1, 0)
	if s := l.statusAs(t, "ops"); s.Upstreams[0].Errors != 0 {
		t.Errorf("the server has answered all, and %d are errors", s.Upstreams[0].Errors)
	}
}
