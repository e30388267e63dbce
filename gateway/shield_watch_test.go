package gateway_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Who may not read a resource any more is not told of it any more, over streams that stay open.
func TestShieldSubscriptionsAfterReload(t *testing.T) {
	for _, eras := range []string{"legacy", "modern"} {
		t.Run(eras, func(t *testing.T) {
			a := newShop("a", "")
			u := over(t, "a", a.Server)
			config := func(calls ...string) *gateway.Config {
				return &gateway.Config{
					Upstreams: []*gateway.Upstream{u},
					Guard:     guarded(guard.Rule{Roles: []string{"dev"}, Calls: calls}),
				}
			}
			l := newLabOf(t, nil,
				config("resources/read a/test://a/open", "resources/read a/test://a/secret"))
			updated, granted := make(chan string, 100), make(chan spec.SubscriptionFilter, 1)
			c := l.clientAt(t, "/mcp", mcp.ClientOptions{
				Era: eras, HTTP: withKeyOf("dev"), OnResourceUpdated: func(uri string) { updated <- uri },
				OnListening: func(f spec.SubscriptionFilter) { granted <- f },
			})
			both := []string{"test://a/open", "test://a/secret"}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			if eras == "legacy" {
				ended <- nil
				for _, uri := range both {
					if err := c.Request(ctx, spec.MethodResourcesSubscribe, map[string]string{"uri": uri},
						nil); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				go func() { ended <- c.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: both}) }()
				if f := received(t, "the subscription", granted); len(f.ResourceSubscriptions) != 2 {
					t.Fatalf("%+v", f)
				}
			}
			for _, uri := range []string{"test://a/secret", "test://a/open"} {
				// the client may be notified twice: what changes while a server is asked is not known
				a.ResourceUpdated(uri)
				for received(t, "an update", updated) != uri {
				}
			}
			for len(updated) > 0 {
				<-updated
			}
			if err := l.Reload(config("resources/read a/test://a/open")); err != nil {
				t.Fatal(err)
			}
			a.ResourceUpdated("test://a/secret")
			a.ResourceUpdated("test://a/open")
			if got := received(t, "an update", updated); got != "test://a/open" {
				t.Errorf("told of %s", got)
			}
			cancel()
			<-ended
		})
	}
}
