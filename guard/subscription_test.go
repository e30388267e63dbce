package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What may not be called may not be subscribed to either: the call that subscribes has another
// name.
func TestSubscriptionIsAsked(t *testing.T) {
	topics := map[string]*farcall.Topic[string]{}
	mux := farcall.NewMux()
	for _, name := range []string{"time/ticks", "time/secret"} {
		topic := new(farcall.Topic[string])
		topics[name] = topic
		farcall.HandleTopic(mux, name, func(context.Context, struct{}) (*farcall.Topic[string], error) {
			return topic, nil
		})
	}
	c := &guard.Config{
		Anonymous: true,
		Allow:     []guard.Rule{{Calls: []string{"time/*"}}},
		Deny:      []guard.Rule{{Calls: []string{"time/secret", "time/absent"}}},
	}
	g := newGuard(t, c, nil)
	ours, theirs := farcall.Pipe()
	server := farcall.NewPeer(theirs, mux,
		&farcall.Options{
			Interceptors: []farcall.Interceptor{g.Interceptor(&guard.Conn{Transport: "tcp"})},
		})
	client := farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()
	for name, want := range map[string]jsonrpc.Code{
		"time/ticks": 0, "time/secret": jsonrpc.PermissionDenied, "time/absent": jsonrpc.PermissionDenied,
		"time/other": jsonrpc.InvalidParams,
	} {
		_, err := farcall.Subscribe[string](t.Context(), client, name, nil)
		var wire *jsonrpc.Error
		errors.As(err, &wire)
		if want == 0 && err != nil ||
			want != 0 && (wire == nil || wire.Code != want || strings.Contains(wire.Message, "secret,")) {
			t.Errorf("%s: %v, want %d", name, err, want)
		}
	}
	if topics["time/ticks"].Subscribers() != 1 || topics["time/secret"].Subscribers() != 0 {
		t.Error("the wrong ones are subscribed to")
	}
}
