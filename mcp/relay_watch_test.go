package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// watching is a Relay's side of subscriptions: what is watched, by URI.
type watching struct {
	mu      sync.Mutex
	updated map[string][]func() // of those that were not stopped
	begun   []string
	stopped []string
	twice   bool          // something was stopped twice
	hold    chan struct{} // not nil: Watch waits for it
	refuse  string        // a URI
}

func (w *watching) watch(ctx context.Context, uri string, updated func()) (func(), error) {
	w.mu.Lock()
	w.begun = append(w.begun, uri)
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if uri == w.refuse {
		return nil, &jsonrpc.Error{
			Code: jsonrpc.InvalidParams, Message: "no such resource",
			Data: jsonrpc.Raw(`{"uri":"a:no"}`),
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.updated == nil {
		w.updated = map[string][]func(){}
	}
	w.updated[uri] = append(w.updated[uri], updated)
	done := false
	return func() {
		updated() // who stops may be in the middle of an update
		w.mu.Lock()
		defer w.mu.Unlock()
		w.twice = w.twice || done
		done = true
		w.stopped = append(w.stopped, uri)
	}, nil
}

// update tells that a resource has changed.
func (w *watching) update(uri string) {
	w.mu.Lock()
	all := slices.Clone(w.updated[uri])
	w.mu.Unlock()
	for _, f := range all {
		f()
	}
}

func (w *watching) check(t *testing.T, begun, stopped string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.begun)
	slices.Sort(w.stopped)
	if strings.Join(w.begun, " ") != begun || strings.Join(w.stopped, " ") != stopped || w.twice {
		t.Errorf("watched %q, stopped %q; want %q, %q; twice %v", w.begun, w.stopped, begun,
			stopped, w.twice)
	}
}

func uriFrame(id, method, uri string) string {
	return legacyFrame(id, method, fmt.Sprintf(`{"uri":%q}`, uri))
}

func TestRelayWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &watching{refuse: "a:no"}
		s := relayServer(t, &fakeRelay{watch: up.watch}, nil)
		w := serve(t, s)
		w.open(rev2511)
		for _, uri := range []string{"a:1", "a:2", "a:1"} {
			if got := w.ask(uriFrame("1", "resources/subscribe", uri)); !strings.Contains(got,
				`"result":{}`) {
				t.Error(got)
			}
		}
		if got := w.ask(uriFrame("2", "resources/subscribe", "a:no")); !strings.Contains(got,
			`"code":-32002`) {
			t.Error(got)
		}
		up.check(t, "a:1 a:2 a:no", "")
		up.update("a:1")
		up.update("a:1")
		settle()
		if got := w.rest(); len(got) != 1 ||
			!strings.Contains(got[0], `"notifications/resources/updated","params":{"uri":"a:1"}`) {
			t.Error(got)
		}
		w.ask(uriFrame("3", "resources/unsubscribe", "a:1"))
		w.ask(uriFrame("4", "resources/unsubscribe", "a:1"))
		up.check(t, "a:1 a:2 a:no", "a:1")
		up.update("a:1")
		settle()
		if got := w.rest(); len(got) != 0 {
			t.Error("of what was unsubscribed:", got)
		}
		w.ask(uriFrame("5", "resources/subscribe", "a:1"))
		w.close()
		up.check(t, "a:1 a:1 a:2 a:no", "a:1 a:1 a:2")
		up.update("a:2")
	})
}

// While the relay begins to watch, others wait for it, and an end ends it.
func TestRelayWatchSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &watching{hold: make(chan struct{}), refuse: "a:no"}
		w := serve(t, relayServer(t, &fakeRelay{watch: up.watch}, nil))
		w.open(rev2511)
		w.send(uriFrame("1", "resources/subscribe", "a:1"), uriFrame("2", "resources/subscribe", "a:1"),
			uriFrame("3", "resources/subscribe", "a:2"))
		settle()
		if got := w.ask(legacyFrame("4", "ping", "{}")); !strings.Contains(got, `"id":4`) {
			t.Error(got)
		}
		if got := w.ask(uriFrame("5", "resources/unsubscribe", "a:2")); !strings.Contains(got, `"id":5`) {
			t.Error(got)
		}
		close(up.hold)
		if got := w.rest(); len(got) != 3 {
			t.Error(got)
		}
		up.check(t, "a:1 a:2", "a:2")

		// One that fails lets the next one try.
		up.hold = make(chan struct{})
		w.send(uriFrame("6", "resources/subscribe", "a:no"), uriFrame("7", "resources/subscribe", "a:no"))
		settle()
		close(up.hold)
		if got := w.rest(); len(got) != 2 || strings.Count(strings.Join(got, ""), "-32002") != 2 {
			t.Error(got)
		}
		up.check(t, "a:1 a:2 a:no a:no", "a:2")

		// One that is cancelled is given up.
		up.hold = make(chan struct{})
		w.send(uriFrame("8", "resources/subscribe", "a:8"))
		w.rest()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
		w.rest()
		up.hold = nil
		w.ask(uriFrame("9", "resources/subscribe", "a:8"))
		w.close()
		up.check(t, "a:1 a:2 a:8 a:8 a:no a:no", "a:1 a:2 a:8")
	})
}

// A session that ends while the relay begins to watch stops it.
func TestRelayWatchEnds(t *testing.T) {
	up := &watching{hold: make(chan struct{})}
	entered := make(chan struct{})
	f := &fakeRelay{watch: func(_ context.Context, uri string, updated func()) (func(), error) {
		close(entered)
		return up.watch(t.Context(), uri, updated)
	}}
	s := relayServer(t, f, nil)
	x := s.Accept(t.Context(), nil).(*session)
	x.rev.Store(s.legacy[0])
	done := make(chan error)
	go func() {
		c := (&call{srv: s, rev: s.legacy[0], session: x, who: &clientMeta{}}).derive(t.Context())
		done <- x.watch(c, "a:1")
	}()
	<-entered
	x.Close()
	close(up.hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
	up.check(t, "a:1", "a:1")
	if err := x.watch((&call{srv: s, session: x}).derive(t.Context()), "a:1"); err == nil {
		t.Error("a session that has ended subscribes")
	}
}

func TestRelayListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &watching{refuse: "a:no"}
		f := &fakeRelay{watch: up.watch}
		s := relayServer(t, f, nil)
		w := serve(t, s)
		ack := w.ask(
			modernFrame("1", "subscriptions/listen",
				`"notifications":{"toolsListChanged":true,"resourcesListChanged":true,`+
					`"resourceSubscriptions":["a:1","a:no","a:2","a:1"]}`))
		wantJSON(t, "ack", ack,
			`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},
			"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:1","a:2"]}}}`)
		up.check(t, "a:1 a:2 a:no", "")
		for _, kind := range []string{"tools", "tools", "prompts", "resources"} {
			s.ListChanged(kind)
		}
		up.update("a:2")
		settle()
		got := strings.Join(w.rest(), "\n")
		for _, want := range []string{
			"notifications/tools/list_changed",
			"notifications/resources/list_changed", `"uri":"a:2"`,
		} {
			if strings.Count(got, want) != 1 {
				t.Errorf("%s: %s", want, got)
			}
		}
		if strings.Contains(got, "prompts") {
			t.Error(got)
		}
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		w.rest()
		up.check(t, "a:1 a:2 a:no", "a:1 a:2")

		// The server's end is one, too.
		w.ask(modernFrame("2", "subscriptions/listen",
			`"notifications":{"resourceSubscriptions":["a:1"]}`))
		s.Close()
		if got := w.rest(); len(got) != 2 {
			t.Error(got)
		}
		up.check(t, "a:1 a:1 a:2 a:no", "a:1 a:1 a:2")
		w.close()
	})
}

// A listener that ends before the relay watches all leaves nothing behind.
func TestRelayListenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &watching{}
		hold := make(chan struct{})
		f := &fakeRelay{watch: func(ctx context.Context, uri string, updated func()) (func(), error) {
			if uri == "a:slow" {
				<-hold
			}
			return up.watch(context.WithoutCancel(ctx), uri, updated)
		}}
		w := serve(t, relayServer(t, f, nil))
		w.send(modernFrame("1", "subscriptions/listen",
			`"notifications":{"resourceSubscriptions":["a:1","a:slow"]}`))
		w.rest()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		w.rest()
		close(hold)
		if got := w.rest(); len(got) != 0 {
			t.Error(got)
		}
		up.check(t, "a:1 a:slow", "a:1 a:slow")
		w.close()
	})
}

func TestRelayListenTooMuch(t *testing.T) {
	f := &fakeRelay{watch: func(context.Context, string, func()) (func(), error) {
		t.Error("watched")
		return nil, nil
	}}
	many := strings.Repeat(`"a:1",`, maxSubscriptions) + `"a:1"`
	got := exchange(t, relayServer(t, f, nil),
		modernFrame("1", "subscriptions/listen", `"notifications":{"resourceSubscriptions":[`+many+`]}`))
	if len(got) != 1 || !strings.Contains(got[0], "at a time at most") {
		t.Errorf("%.200s", got)
	}
}

// Sessions are notified of lists that have changed.
func TestRelayListChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relayServer(t, &fakeRelay{}, nil)
		w := serve(t, s)
		w.open("2024-11-05")
		s.ListChanged("prompts")
		settle()
		if got := w.rest(); len(got) != 1 ||
			!strings.Contains(got[0], "notifications/prompts/list_changed") {
			t.Error(got)
		}
		w.close()
	})
}
