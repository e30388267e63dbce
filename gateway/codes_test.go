package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
)

// TestOwnCodes: what the gateway says of the way to a server has the registry's code for the
// revision of the client. A code that a server has chosen passes as it is.
func TestOwnCodes(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "down"}, func(context.Context, textIn) (string, error) {
		return "", farcall.PassOn(
			&jsonrpc.Error{
				Code: jsonrpc.Unavailable, Message: "its own",
				Data: jsonrpc.Raw(`{"uri":"x://y"}`),
			})
	})
	for _, namespace := range []string{"always", "auto"} {
		l := newLabOf(t, nil,
			&gateway.Config{
				Namespace: namespace,
				Upstreams: []*gateway.Upstream{over(t, "s", s), {Name: "gone", URL: "tcp://127.0.0.1:1"}},
			})
		row := jsonrpc.Unavailable.Condition()
		for _, rev := range era.Revisions() {
			c := l.client(t, mcp.ClientOptions{Era: rev.Name})
			code := func(err error) jsonrpc.Code {
				wire, ok := errors.AsType[*jsonrpc.Error](err)
				if !ok {
					t.Fatalf("%T: %v", err, err)
				}
				return wire.Code
			}
			want := row.Legacy
			if rev.ReservedCodes {
				want = row.Modern
			}
			if _, err := say(t.Context(), c, "gone__x", ""); code(err) != want {
				t.Errorf("%s, %s: %v, want %d", namespace, rev.Name, err, want)
			}
			if _, err := say(t.Context(), c, "s__down", ""); code(err) != jsonrpc.Unavailable {
				t.Errorf("%s, %s: the server's own: %v", namespace, rev.Name, err)
			}
		}
	}
}
