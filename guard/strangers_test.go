package guard_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
)

// Strangers cannot fill the audit until there is nothing else in it, and what is left out is counted.
func TestStrangersFillNoAudit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.jsonl")
	clock := newClock()
	c := &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}
	c.Audit.File = name
	s := newSite(t, c, &guard.Options{Now: clock.Now})
	for range 500 {
		s.call("who", "").wants(t, unauthenticated)
	}
	s.call("who", "", asCI).wants(t, "service ci by key")
	clock.add(time.Second)
	s.call("who", "").wants(t, unauthenticated)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := lines(t, name)
	if len(all) != 102 { // a burst of 100, ours, and the one a second later
		t.Errorf("there are %d lines", len(all))
	}
	if last := all[len(all)-1]; !strings.Contains(last.Reason, "400 refusals of strangers") {
		t.Errorf("%+v", last)
	}
}

// A connection of which nothing comes but what must be refused is ended.
func TestStrangersAreNotHeardForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
		ours, theirs := farcall.Pipe()
		p := connect(t, g, &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:5", Close: theirs.Close}, ours, theirs)
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
