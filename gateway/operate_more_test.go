package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/wsrpc"
)

type sessionList struct {
	Sessions []struct{ ID, Path, Principal, Client, Revision, Address string }
	All      bool
}

func (l *sessionList) of() (principals string) {
	for _, s := range l.Sessions {
		principals += s.Principal + " "
	}
	return principals
}

// Callers see their own sessions, and those with the permission all; these end any.
func TestOperatorSessions(t *testing.T) {
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{child("a", "ok")},
		Guard:     guarded(allow("ops", "gateway/*"), allow("dev", "gateway/status", "tools/call *")),
	}
	c.Guard.Anonymous = true
	l := newLabOf(t, nil, c)
	dev := l.enter(t, "/mcp", "dev", "legacy")
	l.enter(t, "/mcp/a", "ops", "legacy")
	l.client(t, mcp.ClientOptions{Era: "legacy"}) // anonymous
	tr, err := wsrpc.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/mcp",
		&wsrpc.Options{Header: http.Header{"X-Api-Key": {keyed("dev")}}})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Era: "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	l.enter(t, "/mcp", "dev", "modern") // has no session
	ids := map[string]string{}
	for who, want := range map[string]string{"ops": "dev ops anonymous dev ", "dev": "dev dev "} {
		var got sessionList
		l.read(t, "/sessions", &got, as(who))
		if got.of() != want || got.All != (who == "ops") {
			t.Errorf("%s sees %+v", who, got)
		}
		for _, s := range got.Sessions {
			if s.Revision == "" || s.Client == "" || s.Address == "" ||
				s.Path != map[bool]string{true: "/mcp/a", false: "/mcp"}[s.Principal == "ops"] {
				t.Errorf("%+v", s)
			}
			ids[s.Principal+s.Address] = s.ID
		}
	}
	c.Guard.Allow = append(c.Guard.Allow, allow("", "gateway/status"))
	if got := l.ask(t, http.MethodGet, "/sessions", ""); got.status != http.StatusForbidden {
		t.Errorf("%+v", got)
	}
	for at, id := range ids {
		if !strings.HasPrefix(at, "dev") {
			continue
		}
		if got := l.ask(t, http.MethodPost, "/sessions/"+id+"/end", "",
			as("dev")); got.status != http.StatusForbidden {
			t.Errorf("%+v", got)
		}
		if got := l.ask(t, http.MethodPost, "/sessions/"+id+"/end", "",
			as("ops")); got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
		if got := l.ask(t, http.MethodPost, "/sessions/"+id+"/end", "",
			as("ops")); got.status != http.StatusNotFound {
			t.Errorf("%+v", got)
		}
	}
	var left sessionList
	l.read(t, "/sessions", &left, as("ops"))
	if left.of() != "ops anonymous " {
		t.Errorf("there are %+v", left)
	}
	if got, err := say(t.Context(), dev, "echo", "x"); err != nil || got != "x" {
		// it begins another session
		t.Error(got, err)
	}
	if _, err := say(t.Context(), socket, "echo", "x"); err == nil {
		t.Error("the connection goes on")
	}
}

// A call of a session that is ended is cancelled.
func TestOperatorEndsCalls(t *testing.T) {
	m := newMock("legacy")
	l := newLab(t, nil, m.tcp(t, "m"))
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	ended := make(chan error, 1)
	go func() {
		_, err := say(t.Context(), c, "wait", "x")
		ended <- err
	}()
	received(t, "the call", m.started)
	var all sessionList
	l.read(t, "/sessions", &all)
	if len(all.Sessions) != 1 || !all.All {
		t.Fatalf("%+v", all)
	}
	if got := l.ask(t, http.MethodPost, "/sessions/"+all.Sessions[0].ID+"/end",
		"{}"); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	if err := received(t, "the end of the call at the server", m.ended); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
	if err := received(t, "the end of the call", ended); err == nil {
		t.Error("the call has a result")
	}
}

// The level of the log is set while the gateway runs.
func TestOperatorLogLevel(t *testing.T) {
	level := levels.New(levels.Standard()...)
	l := newLab(t, &gateway.Options{LogLevels: level}, child("a", "ok"))
	for _, name := range []string{"debug", "info", "warn", "error"} {
		if got := l.ask(t, http.MethodPut, "/log-level",
			`{"level":"`+name+`"}`); got.status != http.StatusOK || level.String() != name {
			t.Errorf("%+v, the level is %v", got, level)
		}
		var now struct{ Level string }
		if l.read(t, "/log-level", &now); now.Level != name {
			t.Errorf("%+v", now)
		}
	}
	for _, step := range []struct{ set, want string }{
		{`{"components":{"guard":"debug","child":"warn"}}`, "error,child=warn,guard=debug"},
		{`{"level":"info","components":{"child":"default"}}`, "info,guard=debug"},
	} {
		got := l.ask(t, http.MethodPut, "/log-level", step.set)
		if got.status != http.StatusOK || level.String() != step.want ||
			!strings.Contains(got.body, `"guard":"debug"`) {
			t.Errorf("%s: %+v, the levels are %v", step.set, got, level)
		}
	}
	for text, candidates := range map[string]int{
		`{"level":"loud"}`: 4, `{"level":"warn,guard=error"}`: 4,
		`{"components":{"gward":"warn"}}`:                 len(levels.Standard()),
		`{"level":"debug","components":{"guard":"loud"}}`: 4, `{}`: 0,
	} {
		wrong := l.ask(t, http.MethodPut, "/log-level", text)
		if p := wrong.problem(t); p.Status != http.StatusUnprocessableEntity ||
			len(p.Candidates) != candidates || level.String() != "info,guard=debug" {
			t.Errorf("%s: %+v, the levels are %v", text, p, level)
		}
	}
	without := newLab(t, nil, child("a", "ok"))
	fixed := without.ask(t, http.MethodPut, "/log-level", `{"level":"warn"}`)
	if p := fixed.problem(t); p.Status != http.StatusNotImplemented {
		t.Errorf("%+v", p)
	}
}

// A reload says what has changed, or what is wrong.
func TestOperatorReload(t *testing.T) {
	var err error
	l := newLab(t, &gateway.Options{Reload: func() ([]string, error) {
		return []string{"upstreams.a"}, err
	}}, child("a", "ok"))
	if got := l.ask(t, http.MethodPost, "/reload", "{}"); got.status != http.StatusOK ||
		!strings.Contains(got.body, `"changes":["upstreams.a"]`) {
		t.Errorf("%+v", got)
	}
	_, err = gateway.Load(writeFile(t, t.TempDir()+"/farcall.yaml", "upstreams:\n  a: {comand: x}\n"))
	refused := l.ask(t, http.MethodPost, "/reload", "{}")
	if p := refused.problem(t); p.Status != http.StatusUnprocessableEntity ||
		!strings.Contains(refused.body, `"line":2`) || !strings.Contains(refused.body, "farcall.yaml") {
		t.Errorf("%+v", refused)
	}
	without := newLab(t, nil, child("a", "ok")).ask(t, http.MethodPost, "/reload", "")
	if p := without.problem(t); p.Status != http.StatusNotImplemented {
		t.Errorf("%+v", p)
	}
}

// Operators see what of the configuration matches nothing, at any address, once a list has come.
func TestOperatorSeesDeadPatterns(t *testing.T) {
	t.Parallel()
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: officeServers(),
			Endpoints: []*gateway.Endpoint{
				{Name: "team", Tools: []string{"files/read", "files/gone", "files/x*"}},
			},
		})
	toolsOf(t, l.clientAt(t, "/mcp/team", mcp.ClientOptions{}))
	for upstream, want := range map[string]int{"files": 2, "tracker": 0} {
		var one struct{ Warnings []string }
		l.read(t, "/upstreams/"+upstream, &one)
		found := strings.Join(one.Warnings, "\n")
		if named := strings.Count(found, "nothing has this name"); named != want ||
			want > 0 && (!strings.Contains(found, "files/gone") && !strings.Contains(found, `"gone"`)) {
			t.Errorf("%s: %q", upstream, one.Warnings)
		}
	}
}
