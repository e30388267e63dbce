package guard_test

import (
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
		Allow: []guard.Rule{{Name: "sums", Calls: []string{"who", "math/*"}}}, Deny: []guard.Rule{{Name: "never", Calls: []string{"admin/*"}}},
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
	if want := []string{"allowed sums", "denied never", "denied ", "allowed sums", "limited sums"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
