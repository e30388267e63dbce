package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/observe"
)

// Clients that were asked and do not come back kept other clients from the server for 20 s, and
// then one of them lost its form. An open form is kept for suspend_timeout, and holds up its own
// connection only.
func TestOpenFormsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{Eras: "legacy"})
		mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "", mcp.ElicitURL(ctx, "visit", "https://example.com")
		})
		table := newSuspension(100, 5*time.Minute)
		var open, over int
		var took time.Duration
		count := func(n *int) func(observe.Lifetime) {
			return func(l observe.Lifetime) {
				if took += l.Took; l.Kind != observe.Suspension || l.Upstream != "s" {
					t.Errorf("observed %+v", l)
				}
				*n++
			}
		}
		table.observer = &observe.Observer{Open: count(&open), Close: count(&over)}
		u := upstream.New(&upstream.Options{
			Name: "s", Exclusive: true, Pool: 2,
			Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
				mine, theirs := farcall.Pipe()
				go func() { _ = mcp.Serve(context.Background(), s, theirs, nil) }()
				return mcp.Connect(ctx, mine, o)
			},
		})
		call := func(principal string) *upstream.Call {
			return &upstream.Call{
				Method: "tools/call", Params: jsonrpc.Raw(`{"name":"ask","arguments":{}}`),
				Caller: upstream.Caller{
					Owner:        owner.Named(principal),
					Capabilities: jsonrpc.Raw(`{"elicitation":{"url":{}}}`),
				},
				Ask: func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
					return jsonrpc.Raw(`{"action":"decline"}`), nil
				},
			}
		}
		var away []*suspended
		for i := range 12 {
			id, err := table.begin(t.Context(), u, call(fmt.Sprint("p", i/3)), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			one, err := table.attach(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-one.asked:
				if err := table.detach(one); err != nil {
					t.Fatal(err)
				}
				away = append(away, one)
			case <-one.done:
				t.Fatal(one.err)
			}
		}
		begun := time.Now()
		if _, err := u.Call(t.Context(), call("ann")); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > time.Second || len(away) != 12 {
			t.Errorf("it has waited for %v beside %d forms", took, len(away))
		}
		<-time.After(50 * time.Second)
		for i, one := range away {
			if one.ctx.Err() != nil {
				t.Errorf("form %d was given up", i)
			}
		}
		if _, err := table.attach(t.Context(), away[0].id); err != nil || open != 12 || over != 1 ||
			took < 50*time.Second {
			t.Errorf("%d suspended, %d not any more, for %v: %v", open, over, took, err)
		}
		away[0].cancel(nil)
		if err := errors.Join(table.close(t.Context()), u.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if open != 12 || over != 12 {
			t.Errorf("%d suspended, %d not any more", open, over)
		}
		s.Close()
	})
}
