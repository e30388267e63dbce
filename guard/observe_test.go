package guard_test

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/observe"
)

// The observer has each decision once, with the rule that made it.
func TestObserver(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	c := &guard.Config{
		Keys:  []guard.Key{keyOf("ci", goodKey, "dev")},
		Allow: []guard.Rule{{Name: "sums", Calls: []string{"who", "math/*"}}},
		Deny:  []guard.Rule{{Name: "never", Calls: []string{"admin/*"}}},
	}
	c.Limits.Rates = []guard.Rate{{Limit: 2, Every: time.Hour}}
	s := newSite(t, c, &guard.Options{Observer: &observe.Observer{Decide: func(d observe.Decision) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, d.Outcome+" "+d.Policy)
	}}})
	for _, method := range []string{"who", "admin/halt", "no/rule", "who", "who"} {
		s.call(method, "", bearer(goodKey))
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{
		"allowed sums", "denied never", "denied ", "allowed sums",
		"limited sums",
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The readings have the nonces of the memory, and what the audit has not written yet.
func TestReadings(t *testing.T) {
	t.Parallel()
	now := newClock()
	c := twoSigners(100, guard.Rate{Limit: 10, Every: time.Minute})
	c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	g := newGuard(t, c, &guard.Options{Now: now.Now})
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	for range 3 {
		expect(t, "a call", ask(t, p, "who", signed(t, "who", `{}`, "a", "", []byte(secret))),
			"service a by signature")
	}
	got := map[string]float64{}
	for r := range g.Readings {
		got[r.Name] = r.Value
	}
	if got["farcall_nonces"] != 3 {
		t.Errorf("%v", got)
	}
	if bytes, ok := got["farcall_audit_backlog_bytes"]; !ok || bytes < 0 {
		t.Errorf("%v", got)
	}
}
