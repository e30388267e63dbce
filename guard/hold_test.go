package guard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A caller that may no longer subscribe to something gets no more events of it, and those of
// others.
func TestReloadEndsSubscriptions(t *testing.T) {
	topics := map[string]*farcall.Topic[string]{}
	mux := farcall.NewMux()
	for _, name := range []string{"time/ticks", "time/days"} {
		topic := new(farcall.Topic[string])
		topics[name] = topic
		farcall.HandleTopic(mux, name, func(context.Context, struct{}) (*farcall.Topic[string], error) {
			return topic, nil
		})
	}
	c := guard.Config{Anonymous: true, Allow: []guard.Rule{{Calls: []string{"time/*"}}}}
	g := newGuard(t, &c, nil)
	ours, theirs := farcall.Pipe()
	server := farcall.NewPeer(theirs, mux, &farcall.Options{
		Interceptors: []farcall.Interceptor{g.Interceptor(&guard.Conn{Transport: "tcp"})},
	})
	client := farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()
	subs := map[string]*farcall.Subscription[string]{}
	for name := range topics {
		sub, err := farcall.Subscribe[string](t.Context(), client, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		subs[name] = sub
	}
	publish := func(v string) {
		for _, topic := range topics {
			if err := topic.Publish(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish("before")
	less := c
	less.Deny = []guard.Rule{{Calls: []string{"time/ticks"}}}
	if err := g.Reload(&less); err != nil {
		t.Fatal(err)
	}
	var got []string
	var ended error
	for v, err := range subs["time/ticks"].Events() {
		if ended = err; err == nil {
			got = append(got, v)
		}
	}
	if len(got) != 1 || !errors.Is(ended, jsonrpc.PermissionDenied) ||
		topics["time/ticks"].Subscribers() != 0 {
		t.Errorf("%q, then %v", got, ended)
	}
	publish("after")
	got = nil
	for v, err := range subs["time/days"].Events() {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, v); len(got) == 2 {
			break
		}
	}
	if got[1] != "after" {
		t.Errorf("the other subscription: %q", got)
	}
}

// The same for the resources of an MCP server: see TestReloadEndsSubscriptions.
func TestReloadEndsListening(t *testing.T) {
	for _, rev := range era.Revisions() {
		t.Run(rev.Name, func(t *testing.T) {
			c := guard.Config{Anonymous: true, Allow: []guard.Rule{{Calls: []string{"*"}}}}
			g := newGuard(t, &c, nil)
			stopped := make(chan string, 2)
			s := mcp.NewServer("watched", "1", &mcp.ServerOptions{
				RPC: &farcall.Options{Interceptors: []farcall.Interceptor{
					g.Interceptor(&guard.Conn{Transport: "tcp"}),
				}},
				OnSubscribe: func(_ context.Context, uri string) (func(), error) {
					return func() { stopped <- uri }, nil
				},
			})
			uris := []string{"test:a", "test:b"}
			for _, uri := range uris {
				s.AddResource(mcp.Resource{URI: uri, Name: uri},
					func(context.Context, string) ([]mcp.ResourceContents, error) {
						return nil, nil
					})
			}
			ours, theirs := farcall.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.Serve(t.Context(), theirs) }()
			listening, updated := make(chan struct{}, 2), make(chan string, 9)
			client, err := mcp.Connect(t.Context(), ours, &mcp.ClientOptions{
				Era:               rev.Name,
				OnListening:       func(spec.SubscriptionFilter) { listening <- struct{}{} },
				OnResourceUpdated: func(uri string) { updated <- uri },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- client.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: uris}) }()
			<-listening
			less := c
			less.Deny = []guard.Rule{{Calls: []string{"resources/read test:b"}}}
			if err := g.Reload(&less); err != nil {
				t.Fatal(err)
			}
			if rev.Handshake {
				if uri := <-stopped; uri != "test:b" {
					t.Errorf("it no longer watches %s", uri)
				}
				s.ResourceUpdated("test:b")
				s.ResourceUpdated("test:a")
				if uri := <-updated; uri != "test:a" {
					t.Errorf("the client hears of %s", uri)
				}
				cancel()
				<-ended
			} else {
				err := <-ended
				var wire *jsonrpc.Error
				if !errors.As(err, &wire) || wire.Code != jsonrpc.PermissionDenied.Condition().Modern {
					t.Errorf("listening ended with %v", err)
				}
			}
			cancel()
			_ = client.Close()
			<-served
		})
	}
}
