package tap

import (
	"net/url"
	"strconv"
	"testing"
)

// A client that makes up sessions fills the table, no more, and the session of another client is
// recorded as a separate connection before and after.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	r, frames := recording(t)
	p := &proxy{recorder: r, to: &url.URL{Host: "server"}, sessions: map[string]uint64{}}
	one, other := p.connection("one", false), p.connection("other", false)
	if one == other || p.connection("one", false) != one {
		t.Fatalf("sessions have the connections %d and %d", one, other)
	}
	seen := map[uint64]string{one: "one", other: "other"}
	for i := range maxSessions {
		name := "made up " + strconv.Itoa(i)
		conn := p.connection(name, false)
		if seen[conn] != "" {
			t.Fatalf("%q has the connection of %q", name, seen[conn])
		}
		seen[conn] = name
	}
	if len(p.sessions) > maxSessions {
		t.Errorf("%d sessions are kept, %d are allowed", len(p.sessions), maxSessions)
	}
	if c := p.connection("one", false); seen[c] != "" && seen[c] != "one" {
		t.Errorf("the session has the connection of %q", seen[c])
	}
	frames()
}
