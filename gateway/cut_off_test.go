package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// TestCutOffIsCancelled: a call that an operator cuts off is cancelled at a server that is not a
// child, where it would go on otherwise, for each kind of transport and revision.
func TestCutOffIsCancelled(t *testing.T) {
	t.Parallel()
	for _, eras := range []string{"2024-11-05", "2025-11-25", "modern"} {
		for name, at := range map[string]func(*testing.T, *mock) *gateway.Upstream{
			"tcp": func(t *testing.T, m *mock) *gateway.Upstream { return m.tcp(t, "a") },
			"http": func(t *testing.T, m *mock) *gateway.Upstream {
				return m.http(t, "a", func(*http.Request) {})
			},
		} {
			t.Run(eras+"/"+name, func(t *testing.T) {
				t.Parallel()
				m := newMock(eras)
				l := newLab(t, nil, at(t, m))
				c := l.client(t, mcp.ClientOptions{})
				over := make(chan error, 1)
				go func() {
					_, err := say(t.Context(), c, "wait", "a")
					over <- err
				}()
				received(t, "the call", m.started)
				began := time.Now()
				l.order(t, "a", "restart", "{}")
				if err := received(t, "the end at the client", over); err == nil {
					t.Error("the call was answered")
				}
				if err := received(t, "the end at the server", m.ended); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				t.Log(time.Since(began))
			})
		}
	}
}
