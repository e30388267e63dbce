package gateway_test

import (
	"math/rand/v2"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
)

// TestReferencesNested: a gateway behind a gateway, with servers of equal names on both floors.
// Every reference that a client of the outer one sees leads to its server, in every revision of the
// client and of the way between.
func TestReferencesNested(t *testing.T) {
	race.Skip(t, "TestReferences follows the same references")
	t.Parallel()
	some := func(mark string) *mcp.Server { return sharer(rand.New(rand.NewPCG(7, 3)), mark) }
	inner := newLabOf(t, nil, &gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{
		{Name: "a", Server: some("inner-a")}, {Name: "b", Server: some("inner-b")},
	}})
	for _, between := range []string{"legacy", "modern"} {
		outer := newLabOf(t, nil, &gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{
			{Name: "a", Server: some("outer-a")}, {Name: "b", URL: inner.url + "/mcp", Era: between},
		}})
		for _, rev := range era.Revisions() {
			c := outer.client(t, mcp.ClientOptions{Era: rev.Name})
			w := &walker{Client: c, t: t, revision: rev.Name + " over " + between}
			w.walk(false)
			if w.checked < 100 || w.misroute > 0 || w.refused > w.checked/4 {
				t.Errorf("%s: %d references, %d refused, %d misrouted",
					w.revision, w.checked, w.refused, w.misroute)
			}
		}
	}
}
