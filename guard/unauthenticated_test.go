package guard_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
)

// A connection on which 100 messages were refused and none accepted is closed.
func TestAbusiveConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
		ours, theirs := farcall.Pipe()
		p := connect(t, g, &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:5", Close: theirs.Close},
			ours, theirs)
		for range 99 {
			expect(t, "a call", ask(t, p, "who", nil), unauthenticated)
		}
		_, _ = farcall.Call[any](t.Context(), p, "who", nil)
		select {
		case <-p.Done():
		case <-time.After(time.Minute):
			t.Error("the connection is there")
		}
	})
}

// What was opened with a key is over when the key is taken out, or expires.
func TestStreamsEndWithTheirCredentials(t *testing.T) {
	for _, way := range []string{"reload", "expiry"} {
		t.Run(way, func(t *testing.T) {
			key := keyOf("ci", goodKey)
			clock := newClock()
			if way == "expiry" {
				key.Expires = clock.Now().Add(time.Hour)
			}
			g := newGuard(t, &guard.Config{Keys: []guard.Key{key}}, &guard.Options{Now: clock.Now})
			ended := make(chan struct{})
			s := serve(t, g, g.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})))
			r := s.request("", "", asCI)
			r.Method, r.Body, r.ContentLength = http.MethodGet, nil, 0
			got, err := s.web.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			clock.add(2 * time.Hour)
			next := &guard.Config{Keys: []guard.Key{key}}
			if way == "reload" {
				next.Keys = []guard.Key{keyOf("other", "another key")}
			}
			if err := g.Reload(next); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// What a header of the answer is made of has no quotes.
func TestNoQuotesInChallenges(t *testing.T) {
	for _, change := range []func(*guard.Config){
		func(c *guard.Config) { c.Resource.URL = `https://a"b/mcp` },
		func(c *guard.Config) { c.Resource.Scopes = map[string][]string{"x": {`a", error="b`}} },
	} {
		c := &guard.Config{Anonymous: true}
		change(c)
		if g, err := guard.New(c, nil); err == nil {
			_ = g.Close()
			t.Errorf("%+v is taken", c.Resource)
		}
	}
}
