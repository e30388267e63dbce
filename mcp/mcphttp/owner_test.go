package mcphttp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
)

// A caller is where a request comes from.
type caller struct{ user, address string }

func (c caller) send(h http.Handler, method, session, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://localhost/mcp",
		strings.NewReader(body))
	r.RemoteAddr = c.address
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.user != "" {
		r.Header.Set("X-User", c.user)
	}
	if session != "" {
		r.Header.Set(headerSession, session)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (c caller) open(h http.Handler) (session string, status int) {
	w := c.send(h, http.MethodPost, "",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+legacyName+`"}}`)
	return w.Header().Get(headerSession), w.Code
}

func (c caller) ping(h http.Handler, session string) int {
	return c.send(h, http.MethodPost, session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`).Code
}

// Two owners of every pair: one opens more sessions than there is room for, and loses its own. The
// other keeps its session, can open more, and neither can use the other's.
func TestSessionsOfOwners(t *testing.T) {
	callers := []caller{
		{"ada", "192.0.2.1:1"},
		{"bob", "192.0.2.1:2"},
		{"", "192.0.2.1:3"},
		{"", "198.51.100.7:1"},
		{"", "[2001:db8::1]:1"},
	}
	for _, greedy := range callers {
		for _, other := range callers {
			if greedy == other {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", greedy, other), func(t *testing.T) {
				h := NewHandler(newFake(), &Options{MaxSessions: 20, Owner: func(r *http.Request) string {
					return r.Header.Get("X-User")
				}})
				defer shutDown(h)
				session, _ := other.open(h)
				var last string
				for range 100 {
					id, status := greedy.open(h)
					if status != http.StatusOK {
						t.Fatalf("a session was refused with %d", status)
					}
					last = id
				}
				if n := h.Sessions(); n != 20 {
					t.Errorf("%d sessions are open", n)
				}
				if status := other.ping(h, session); status != http.StatusOK {
					t.Errorf("the session of the other owner answers %d", status)
				}
				if status := greedy.ping(h, last); status != http.StatusOK {
					t.Errorf("the newest session answers %d", status)
				}
				if _, status := other.open(h); status != http.StatusOK {
					t.Errorf("the other owner cannot open a session: %d", status)
				}
				if greedy.user == "" {
					return // its session belongs to who knows its id
				}
				if status := other.ping(h, last); status != http.StatusNotFound {
					t.Errorf("the session of another owner answers %d", status)
				}
			})
		}
	}
}

// Sessions that are in use make room as well, for an owner that has fewer.
func TestSessionsInUseMakeRoom(t *testing.T) {
	e := serve(t, &Options{MaxSessions: 3, Owner: func(r *http.Request) string {
		return r.Header.Get("X-User")
	}})
	var streams []*reply
	for range 3 {
		v := e.session(legacyName)
		streams = append(streams, v.get())
	}
	if _, status := (caller{"ada", "192.0.2.9:1"}).open(e.h); status != http.StatusOK {
		t.Fatalf("a session was refused with %d", status)
	}
	streams[0].wants("", "EOF")
	if n := e.h.Sessions(); n != 3 {
		t.Errorf("%d sessions are open", n)
	}
}

// The context of a call has its owner, for what the backend keeps.
func TestOwnerInContext(t *testing.T) {
	f := newFake()
	h := NewHandler(f, &Options{Owner: func(r *http.Request) string { return r.Header.Get("X-User") }})
	defer shutDown(h)
	for _, tt := range []struct {
		c    caller
		want owner.Key
	}{
		{caller{"ada", "192.0.2.1:1"}, owner.Named("ada")},
		{caller{"", "192.0.2.1:1"}, owner.Address("192.0.2.1")},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp",
			http.NoBody)
		r.RemoteAddr = tt.c.address
		r.Header.Set("X-User", tt.c.user)
		if tt.c.user == "" {
			r.Header.Del("X-User")
		}
		x := &exchange{h: h, req: r}
		x.derive(r.Context())
		if got := owner.From(x); got != tt.want {
			t.Errorf("%v: the owner is %v", tt.c, got)
		}
		if got := owner.SessionFrom(x); !got.IsZero() {
			t.Errorf("%v: the owner of no session is %v", tt.c, got)
		}
		x.session = h.newSession(r)
		if got := owner.SessionFrom(x); got != x.session.owner {
			t.Errorf("%v: the owner of the session is %v", tt.c, got)
		}
		if got := owner.From(x); got.Authenticated() != (tt.c.user != "") ||
			got.Group() != tt.want.Group() {
			t.Errorf("%v: the owner in a session is %v", tt.c, got)
		}
	}
}

// shutDown ends the sessions at once.
func shutDown(h *Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Shutdown(ctx)
}
