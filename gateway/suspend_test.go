package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// A rounds is a call of a modern client at a legacy server that asks, by hand.
type rounds struct {
	l       *lab
	t       *testing.T
	path    string
	headers []string
	params  string // name and arguments
	state   string
	keys    []string // of the questions
}

func (l *lab) rounds(t *testing.T, who string) *rounds {
	return &rounds{
		l: l, t: t, path: "/mcp", headers: []string{"X-Who: " + who},
		params: `"name":"ask","arguments":{"text":"` + who + `"}`,
	}
}

func (r *rounds) send(ctx context.Context, more string) (*reply, error) {
	return r.l.modernAt(ctx, r.path, "tools/call", "ask", r.params+more, r.headers...)
}

// begin makes the call until it is asked.
func (r *rounds) begin() *rounds {
	r.t.Helper()
	got, err := r.send(r.t.Context(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.read(got)
	return r
}

func (r *rounds) read(got *reply) {
	r.t.Helper()
	var result struct {
		ResultType    string                     `json:"resultType"`
		RequestState  string                     `json:"requestState"`
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
	}
	if err := json.Unmarshal(got.result, &result); err != nil ||
		result.ResultType != "input_required" || result.RequestState == "" {
		r.t.Fatalf("%v %v", got, err)
	}
	r.state, r.keys = result.RequestState, nil
	for key := range result.InputRequests {
		r.keys = append(r.keys, key)
	}
}

// answer sends the retry.
func (r *rounds) answer(name string) (*reply, error) {
	var answers []string
	for _, key := range r.keys {
		answers = append(answers, fmt.Sprintf(`%q:{"action":"accept","content":{"name":%q}}`, key, name))
	}
	return r.send(r.t.Context(),
		`,"requestState":`+strconv.Quote(r.state)+`,"inputResponses":{`+strings.Join(answers, ",")+`}`)
}

// refused fails unless the retry is an error that says what to do.
func (r *rounds) refused(what string, parts ...string) {
	r.t.Helper()
	got, err := r.answer("Eve")
	if err != nil || got.err == nil || !strings.Contains(got.body, "repeat the call without") {
		r.t.Errorf("%s: %v, %v", what, got, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(got.body, part) {
			r.t.Errorf("%s: %v, which lacks %q", what, got, part)
		}
	}
}

func (r *rounds) done(name, want string) {
	r.t.Helper()
	got, err := r.answer(name)
	if err != nil || got.err != nil || !strings.Contains(string(got.result), want) {
		r.t.Errorf("%v, %v, not %q", got, err, want)
	}
}

func principals() *gateway.Options {
	return &gateway.Options{Owner: func(r *http.Request) string { return r.Header.Get("X-Who") }}
}

// A modern client at a stateful server was asked to upgrade the server: here the
// call is suspended, and goes on with the very call when the client comes back.
func TestSuspended(t *testing.T) {
	m := newMock("legacy")
	l := newLab(t, principals(), m.tcp(t, "m"))
	ann, ben := l.rounds(t, "ann").begin(), l.rounds(t, "ben").begin()
	if s := l.status(t); s.Suspended != 2 || len(m.started) != 2 {
		t.Errorf("%+v, %d started", s, len(m.started))
	}
	ben.done("Benjamin", "ben is Benjamin")
	ann.done("Anna", "ann is Anna")
	if s := l.status(t); s.Suspended != 0 || s.InFlight != 0 || len(m.started) != 2 {
		t.Errorf("%+v, %d started", s, len(m.started))
	}
}

// What is refused: a state that was changed, is another's, of another
// address, call or arguments, was used already. The call goes on all the same.
func TestSuspendedState(t *testing.T) {
	m := newMock("legacy")
	l := newLab(t, principals(), m.tcp(t, "m"))
	ann := l.rounds(t, "ann").begin()

	bent := *ann
	for _, i := range []int{0, 1, len(ann.state) / 2, len(ann.state) - 1} {
		c := byte('A')
		if ann.state[i] == c {
			c = 'B'
		}
		bent.state = ann.state[:i] + string(c) + ann.state[i+1:]
		bent.refused("tampered at " + strconv.Itoa(i))
	}
	for _, state := range []string{"x", ann.state + "A", ann.state[1:], strings.Repeat("A", 100_000)} {
		bent.state = state
		bent.refused("another text")
	}
	foreign := *ann
	foreign.headers = []string{"X-Who: eve"}
	foreign.refused("another's")
	elsewhere := *ann
	elsewhere.path = "/mcp/m"
	elsewhere.refused("of another address")
	other := *ann
	other.params = `"name":"ask","arguments":{"text":"other"}`
	other.refused("of another call")

	ann.done("Anna", "ann is Anna")
	ann.refused("replayed", "is over")
	if len(m.started) != 1 {
		t.Errorf("it was called %d times", len(m.started))
	}
}

// Two retries at once: one goes on with the call, the other gets an error that says so.
func TestSuspendedTwice(t *testing.T) {
	m := newMock("legacy")
	mcp.AddTool(m.Server, mcp.Tool{Name: "ask"}, func(ctx context.Context, in textIn) (string, error) {
		f, err := mcp.Elicit[nameForm](ctx, "name")
		m.started <- f.Name
		<-m.release
		return in.Text + " is " + f.Name, err
	})
	l := newLab(t, principals(), m.tcp(t, "m"))
	ann := l.rounds(t, "ann").begin()
	type outcome struct {
		*reply
		err error
	}
	first := make(chan outcome, 1)
	go func() {
		got, err := ann.answer("Anna")
		first <- outcome{got, err}
	}()
	received(t, "the answer at the server", m.started)
	got, err := ann.answer("Eve")
	if err != nil || got.err == nil ||
		!strings.Contains(got.body, "another request is going on with the call") {
		t.Errorf("%v, %v", got, err)
	}
	m.release <- struct{}{}
	if o := received(t, "the result", first); o.err != nil ||
		!strings.Contains(string(o.result), "ann is Anna") {
		t.Errorf("%v, %v", o.reply, o.err)
	}
}

// A client that never comes back: its call is given up after suspend_timeout, and the server is
// notified. A client that comes too late gets an error that says so.
func TestSuspendedForEver(t *testing.T) {
	t.Parallel()
	m := newMock("legacy")
	u := m.tcp(t, "m")
	u.Pool = 1
	l := newLabOf(t, principals(),
		&gateway.Config{Upstreams: []*gateway.Upstream{u}, SuspendTimeout: 150 * time.Millisecond})
	ann := l.rounds(t, "ann").begin()
	received(t, "the call", m.started)
	if err := received(t, "the end of ann's call", m.ended); err == nil {
		t.Error("ann's call went on")
	}
	ben := l.rounds(t, "ben").begin()
	ben.done("Benjamin", "ben is Benjamin")
	ann.refused("too late")
	if s := l.status(t); s.Suspended != 0 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

// Sessions without a bound ran a gateway out of memory every two days: here the
// count of suspended calls has one.
func TestSuspendedBound(t *testing.T) {
	m := newMock("legacy")
	l := newLabOf(t, principals(),
		&gateway.Config{Upstreams: []*gateway.Upstream{m.tcp(t, "m")}, MaxSuspended: 3})
	var all []*rounds
	for n := range 3 {
		all = append(all, l.rounds(t, "client-"+strconv.Itoa(n)).begin())
	}
	got, err := l.rounds(t, "dave").send(t.Context(), "")
	if err != nil || got.err == nil ||
		!strings.Contains(got.body, "3 calls wait for their clients already") {
		t.Errorf("%v, %v", got, err)
	}
	for n, r := range all {
		r.done("X", fmt.Sprintf("client-%d is X", n))
	}
	// There is room again.
	l.rounds(t, "dave").begin().done("David", "dave is David")
	until(t, "nothing is in flight", func() bool { return l.status(t).InFlight == 0 })
}

// A client that vanishes while its retry waits: the call is cancelled.
func TestSuspendedVanishes(t *testing.T) {
	m := newMock("legacy")
	mcp.AddTool(m.Server, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ textIn) (string, error) {
		_, err := mcp.Elicit[nameForm](ctx, "name")
		if err == nil {
			m.started <- ""
			<-ctx.Done()
			err = ctx.Err()
		}
		m.ended <- err
		return "", err
	})
	l := newLab(t, principals(), m.tcp(t, "m"))
	ann := l.rounds(t, "ann").begin()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := ann.send(ctx,
			`,"requestState":`+strconv.Quote(ann.state)+`,"inputResponses":{`+strconv.Quote(ann.keys[0])+
				`:{"action":"accept","content":{"name":"A"}}}`)
		gone <- err
	}()
	received(t, "the answer at the server", m.started)
	cancel()
	if err := received(t, "the end", m.ended); err == nil {
		t.Error("the server was not told")
	}
	received(t, "the client's end", gone)
	ann.refused("afterwards", "is over")
}

// Many clients are asked at once. No client gets another's question or answer.
func TestManyAsked(t *testing.T) {
	for _, eras := range []string{"legacy", "modern"} {
		t.Run("server "+eras, func(t *testing.T) {
			m := newMock(eras)
			u := m.tcp(t, "m")
			u.Pool = 4
			l := newLab(t, nil, u)
			// Its question tells that clients must be kept apart.
			wants(t, l.client(t, mcp.ClientOptions{Era: "legacy", Elicit: answering}), "ask", "first",
				"first is the one of first")
			results := make(chan error, 100)
			for n := range 20 {
				era := []string{"legacy", "modern"}[n%2]
				c := l.client(t, mcp.ClientOptions{Era: era, Elicit: answering})
				go func() {
					for k := range 3 {
						who := fmt.Sprintf("%s-%d-%d", era, n, k)
						got, err := say(t.Context(), c, "ask", who)
						if want := who + " is the one of " + who; err == nil && got != want {
							err = fmt.Errorf("got %q, want %q", got, want)
						}
						results <- err
					}
				}()
			}
			var wrong []error
			for range 60 {
				if err := received(t, "a result", results); err != nil {
					wrong = append(wrong, err)
				}
			}
			if len(wrong) > 0 {
				t.Errorf("%d: %v", len(wrong), wrong[:min(3, len(wrong))])
			}
		})
	}
}

// One shared session leaked state between clients: with the lifetime principal
// no client gets the child of another one.
func TestPrincipalsApart(t *testing.T) {
	u := child("c", "ok")
	u.Lifetime = "principal"
	l := newLab(t, principals(), u)
	pids := map[string][]string{}
	for n := range 12 {
		who := "who-" + strconv.Itoa(n%3)
		got, err := l.modern(t.Context(), "tools/call", "pid", `"name":"pid","arguments":{}`,
			"X-Who: "+who)
		if err != nil || got.err != nil {
			t.Fatal(got, err)
		}
		if !slices.Contains(pids[who], string(got.result)) {
			pids[who] = append(pids[who], string(got.result))
		}
	}
	seen := map[string]bool{}
	for who, all := range pids {
		if len(all) != 1 || seen[all[0]] {
			t.Errorf("%s was served by %v", who, all)
		}
		seen[all[0]] = true
	}
}
