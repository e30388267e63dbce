package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
)

type callList struct {
	Calls []struct {
		Outcome, Method, Name, Upstream, Error, Principal   string
		Decision, Client, Session, Address, Trace, Revision string
		Code, Attempts                                      int
		TookMs                                              float64
	}
	All    bool
	SlowMs float64
}

// of returns the kept calls of an outcome, by their names.
func (l *callList) of(outcome string) (names string) {
	for _, c := range l.Calls {
		if c.Outcome == outcome {
			names += c.Name + " "
		}
	}
	return names
}

// TestKeptCalls: without a collector, operators see which calls have failed, were refused or took
// long, who made them and where they failed; a flood of one kind leaves the others.
func TestKeptCalls(t *testing.T) {
	t.Parallel()
	m := newMock("")
	mcp.AddTool(m.Server, mcp.Tool{Name: "fail"}, func(context.Context, textIn) (string, error) {
		return "", errors.New("no")
	})
	conf := &gateway.Config{
		Upstreams: []*gateway.Upstream{m.tcp(t, "m"), {Name: "gone", URL: "tcp://127.0.0.1:1"}},
		Guard: guarded(allow("dev", "tools/call m/*"), allow("ops", "**"),
			guard.Rule{Principals: []string{"eve"}, Calls: []string{"gateway/status"}}),
	}
	conf.Trace.Slow = 1 // each call is slow
	l := newLabOf(t, nil, conf)
	call := func(who, tool string) {
		t.Helper()
		if _, err := l.modern(t.Context(), "tools/call", tool,
			`"name":"`+tool+`","arguments":{"text":"a"}`, as(who),
			"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"); err != nil {
			t.Fatal(err)
		}
	}
	call("dev", "m__fail")
	call("ops", "gone__echo")
	call("dev", "m__echo")
	for range 150 {
		call("eve", "m__echo")
	}
	var got callList
	l.read(t, "/calls", &got, as("ops"))
	if n := strings.Count(got.of("refused"), " "); n != 100 || got.of("tool_error") != "m__fail " ||
		!strings.Contains(got.of("slow"), "m__echo ") || strings.Count(got.of("error"), " ") != 1 {
		t.Errorf("%d refused, tool errors %q, errors %q, slow %q", n, got.of("tool_error"),
			got.of("error"), got.of("slow"))
	}
	for _, c := range got.Calls {
		switch c.Outcome {
		case "tool_error":
			if c.Method != "tools/call" || c.Upstream != "m" || c.Principal != "dev" ||
				c.Decision != "allowed" || c.Client == "" || c.Address == "" || c.Revision != "2026-07-28" ||
				c.Code != 0 || c.TookMs <= 0 {
				t.Errorf("%+v", c)
			}
		case "error":
			if c.Code == 0 || c.Principal != "ops" || !strings.Contains(c.Error, "connection refused") {
				t.Errorf("%+v", c)
			}
		case "refused":
			if c.Code == 0 || c.Principal != "eve" || c.Decision != "denied" {
				t.Errorf("%+v", c)
			}
		}
	}
	var own callList
	l.read(t, "/calls", &own, as("eve"))
	if len(own.Calls) != 100 || own.All || !got.All || own.of("refused") != got.of("refused") {
		t.Errorf("a caller sees %d own calls: %+v", len(own.Calls), own)
	}
	if got := l.ask(t, http.MethodGet, "/calls", "", as("dev")); got.status != http.StatusForbidden {
		// without gateway/status
		t.Errorf("%+v", got)
	}
}
