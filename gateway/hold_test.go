package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// An upstreamState is what the API says of an upstream.
type upstreamState struct {
	Name, State, Reason string
	InFlight, Processes int
}

// order has the API change an upstream.
func (l *lab) order(t *testing.T, name, change, body string) (u upstreamState) {
	t.Helper()
	got := l.ask(t, http.MethodPost, "/upstreams/"+name+"/"+change, body)
	if err := json.Unmarshal([]byte(got.body), &u); err != nil || got.status != http.StatusOK {
		t.Fatalf("%s %s: %+v, %v", change, name, got, err)
	}
	return u
}

func (l *lab) stateOf(t *testing.T, name string) upstreamState {
	t.Helper()
	var got struct{ Upstream upstreamState }
	l.read(t, "/upstreams/"+name, &got)
	return got.Upstream
}

// unavailable tells whether a code says so, in a legacy revision or a modern one.
func unavailable(c jsonrpc.Code) bool {
	row := jsonrpc.Unavailable.Condition()
	return c == row.Legacy || c == row.Modern
}

// disabled fails unless an error says that an upstream takes no calls.
func disabled(t *testing.T, what string, err error) {
	t.Helper()
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || !unavailable(wire.Code) ||
		!strings.Contains(wire.Message, "is disabled by an operator of the gateway") {
		t.Errorf("%s: %v", what, err)
		return
	}
	if a := aboutOf(t, wire); a.Sent != "no" || a.Retryable || a.Upstream == "" {
		t.Errorf("%s: %s", what, wire.Data)
	}
}

// A pair is a gateway of a, a mock with a tool that wait goes on until it is cancelled, and of b, a
// child, with a client of each era.
type pair struct {
	*lab
	m              *mock
	legacy, modern *mcp.Client
	changed        chan string // lists that the first client was notified of
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{m: newMock("legacy"), changed: make(chan string, 100)}
	p.lab = newLabOf(t, nil,
		&gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{p.m.tcp(t, "a"), child("b", "ok")},
		})
	t.Cleanup(func() { close(p.m.release) }) // its calls go on when their connection has ended
	p.legacy = p.client(t, mcp.ClientOptions{Era: "legacy", OnListChanged: func(kind string) {
		p.changed <- kind
	}})
	p.modern = p.client(t, mcp.ClientOptions{Era: "modern"})
	for _, c := range []*mcp.Client{p.legacy, p.modern} {
		if names, missing := toolsOf(t, c); len(names) != 7 || missing != nil {
			t.Fatal(names, missing)
		}
	}
	return p
}

// begin makes a call of a, and returns where its error comes, once it has begun there.
func (p *pair) begin(t *testing.T, c *mcp.Client) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := say(t.Context(), c, "a__wait", "x")
		ended <- err
	}()
	received(t, "the call", p.m.started)
	return ended
}

// cutOff fails unless a call has ended with an error that says that its effect is not known.
func cutOff(t *testing.T, ended <-chan error) {
	t.Helper()
	err := received(t, "the end of a call", ended)
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || !unavailable(wire.Code) {
		t.Errorf("a call that was cut off ended with %v", err)
		return
	}
	if a := aboutOf(t, wire); a.Sent != "unknown" || a.Retryable || a.Upstream != "a" {
		t.Errorf("%v %s", wire, wire.Data)
	}
}

// toldOf waits until a client was notified that the tools have changed.
func toldOf(t *testing.T, changed chan string) {
	t.Helper()
	for received(t, "list_changed", changed) != "tools" {
	}
}

// To disable an upstream ends its calls, takes its tools out of the lists, and refuses calls until
// it is enabled.
func TestDisable(t *testing.T) {
	p := newPair(t)
	ended := []<-chan error{p.begin(t, p.legacy), p.begin(t, p.modern)}
	if u := p.order(t, "a", "disable", ""); u.State != "disabled" || u.InFlight != 0 ||
		!strings.Contains(u.Reason, "operator") {
		t.Errorf("%+v", u)
	}
	for _, c := range ended {
		cutOff(t, c)
	}
	toldOf(t, p.changed)
	for what, c := range map[string]*mcp.Client{"legacy": p.legacy, "modern": p.modern} {
		names, missing := toolsOf(t, c)
		if len(names) != 4 || slices.Contains(names, "a__echo") || len(missing) != 1 ||
			!strings.Contains(missing[0], "a") {
			t.Errorf("%s: %v, %v", what, names, missing)
		}
		_, err := say(t.Context(), c, "a__echo", "x")
		disabled(t, what, err)
		wants(t, c, "b__echo", "x", "x")
	}
	for r := range p.Readings {
		if r.Name == "farcall_upstream_state" && r.Upstream == "a" &&
			(r.Value == 1) != (r.State == "disabled") {
			t.Errorf("%+v", r)
		}
	}
	for _, change := range []string{"disable", "drain"} {
		if u := p.order(t, "a", change, "{}"); u.State != "disabled" {
			t.Errorf("%s again: %+v", change, u)
		}
	}
	again := p.ask(t, http.MethodPost, "/upstreams/a/restart", "")
	if x := again.problem(t); x.Status != http.StatusConflict ||
		!strings.Contains(x.Detail, "enable it") {
		t.Errorf("%+v", x)
	}
	if u := p.order(t, "a", "enable", ""); u.State == "disabled" {
		t.Errorf("%+v", u)
	}
	toldOf(t, p.changed)
	for _, c := range []*mcp.Client{p.legacy, p.modern} {
		if names, missing := toolsOf(t, c); len(names) != 7 || missing != nil {
			t.Error(names, missing)
		}
	}
	if u := p.order(t, "a", "enable", ""); u.State != "up" {
		t.Errorf("%+v", u)
	}
}

// The processes of an upstream end when it is disabled, also when they are in the middle of calls.
func TestDisableEndsProcesses(t *testing.T) {
	l := newLabOf(t, nil,
		&gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{child("a", "late")}})
	c := l.client(t, mcp.ClientOptions{})
	ended := make(chan error, 1)
	go func() {
		_, err := say(t.Context(), c, "work", "x")
		ended <- err
	}()
	until(t, "there is a process", func() bool { return l.stateOf(t, "a").Processes == 1 })
	if u := l.order(t, "a", "disable", ""); u.State != "disabled" || u.Processes != 0 {
		t.Errorf("%+v", u)
	}
	if err := received(t, "the end of the call", ended); err == nil {
		t.Error("the call has a result")
	}
	_, err := say(t.Context(), c, "a__work", "x")
	disabled(t, "the only upstream", err)
}

// A drained upstream finishes its calls and takes no new ones; then its processes end.
func TestDrainUpstream(t *testing.T) {
	m := newMock("legacy")
	l := newLabOf(t, nil,
		&gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{m.tcp(t, "a"), child("b", "ok")},
		})
	c := l.client(t, mcp.ClientOptions{})
	ended := make(chan error, 1)
	go func() {
		got, err := say(t.Context(), c, "a__wait", "all of it")
		if err == nil && got != "all of it" {
			err = errors.New("got " + got)
		}
		ended <- err
	}()
	received(t, "the call", m.started)
	if u := l.order(t, "a", "drain", ""); u.State != "draining" || u.InFlight != 1 {
		t.Errorf("%+v", u)
	}
	_, err := say(t.Context(), c, "a__echo", "x")
	disabled(t, "a new call", err)
	if u := l.stateOf(t, "a"); u.State != "draining" || u.InFlight != 1 {
		t.Errorf("%+v", u)
	}
	m.release <- struct{}{}
	if err := received(t, "the result", ended); err != nil {
		t.Error(err)
	}
	until(t, "it is drained", func() bool { return l.stateOf(t, "a").State == "disabled" })
	l.order(t, "a", "enable", "")
	wants(t, c, "a__echo", "x", "x")
}

// To disable an upstream that is being drained cuts its calls off.
func TestDisableDraining(t *testing.T) {
	p := newPair(t)
	ended := p.begin(t, p.legacy)
	if u := p.order(t, "a", "drain", ""); u.State != "draining" || u.InFlight != 1 {
		t.Errorf("%+v", u)
	}
	if u := p.order(t, "a", "disable", ""); u.State != "disabled" {
		t.Errorf("%+v", u)
	}
	cutOff(t, ended)
}

// A gateway that stops waits for what is being drained, as for all calls, and no longer than it is
// given.
func TestShutdownWhileDraining(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	ended := p.begin(t, p.legacy)
	p.order(t, "a", "drain", "")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := p.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := received(t, "the end of the call", ended); err == nil {
		t.Error("the call has a result")
	}
}

// A restart gives an upstream a new process, and ends calls under way with an error that says that
// their effect is not known.
func TestRestart(t *testing.T) {
	p := newPair(t)
	ended := p.begin(t, p.modern)
	if u := p.order(t, "a", "restart", ""); u.State != "up" {
		t.Errorf("%+v", u)
	}
	cutOff(t, ended)
	toldOf(t, p.changed)
	for _, body := range []string{"", `{"graceful":true}`} {
		before, err := say(t.Context(), p.legacy, "b__pid", "")
		if err != nil {
			t.Fatal(err)
		}
		if u := p.order(t, "b", "restart", body); u.State != "up" || u.Processes != 1 {
			t.Errorf("%+v", u)
		}
		if after, err := say(t.Context(), p.legacy, "b__pid", ""); err != nil || after == before {
			t.Errorf("the process is %s as before, %v", after, err)
		}
	}
	bad := p.ask(t, http.MethodPost, "/upstreams/b/restart", `{"gracefully":true}`)
	if x := bad.problem(t); x.Status != http.StatusUnprocessableEntity ||
		!strings.Contains(x.Detail, "gracefully") {
		t.Errorf("%+v", x)
	}
}

// An upstream that an operator has disabled stays so when its configuration changes.
func TestDisabledAfterReload(t *testing.T) {
	p := newPair(t)
	p.order(t, "a", "disable", "")
	off := child("off", "ok")
	off.Disabled = true
	if err := p.Reload(
		&gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{child("a", "ok"), child("b", "ok"), off},
		}); err != nil {
		t.Fatal(err)
	}
	_, err := say(t.Context(), p.legacy, "a__echo", "x")
	disabled(t, "after a reload", err)
	p.order(t, "a", "enable", "")
	if pid, err := say(t.Context(), p.legacy, "a__pid", ""); err != nil || pid == "" {
		// the child has this tool
		t.Error(pid, err)
	}
	refused := p.ask(t, http.MethodPost, "/upstreams/off/enable", "")
	if x := refused.problem(t); x.Status != http.StatusConflict ||
		!strings.Contains(x.Detail, "disabled: true") {
		t.Errorf("%+v", x)
	}
}

// An upstream that speaks no MCP is disabled and enabled like others.
func TestDisableRaw(t *testing.T) {
	u := child("a", "ok")
	u.Profile = "raw"
	l := newLab(t, nil, u)
	ping := func() *reply {
		r, err := l.post(t.Context(), "/rpc/a", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := ping(); r.err != nil {
		t.Fatal(r)
	}
	if u := l.order(t, "a", "disable", ""); u.State != "disabled" || u.Processes != 0 {
		t.Errorf("%+v", u)
	}
	disabled(t, "raw", ping().err)
	l.order(t, "a", "enable", "")
	if r := ping(); r.err != nil {
		t.Error(r)
	}
}
