package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// Clients that were asked and do not come back kept everybody else from a server
// that carries one call at a time: here the first of them has to make room.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{Eras: "legacy"})
		mcp.AddTool(s, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
			return "", mcp.ElicitURL(ctx, "visit", "https://example.com")
		})
		table := newSuspension(10, 5*time.Minute)
		var u *upstream.Upstream
		u = upstream.New(&upstream.Options{
			Name: "s", Exclusive: true, Pool: 1, Lifetime: "principal",
			OnWait: func(who upstream.Caller) { table.makeRoom(u, who) },
			Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
				mine, theirs := farcall.Pipe()
				go func() { _ = mcp.Serve(context.Background(), s, theirs, nil) }()
				return mcp.Connect(ctx, mine, o)
			},
		})
		call := func(principal string) *upstream.Call {
			return &upstream.Call{
				Method: "tools/call", Params: jsonrpc.Raw(`{"name":"ask","arguments":{}}`),
				Caller: upstream.Caller{Owner: owner.Named(principal), Capabilities: jsonrpc.Raw(`{"elicitation":{"url":{}}}`)},
				Ask: func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
					return jsonrpc.Raw(`{"action":"decline"}`), nil
				},
			}
		}
		var away []*suspended
		for _, who := range []string{"ann", "ben"} {
			id, err := table.begin(t.Context(), u, call(who))
			if err != nil {
				t.Fatal(err)
			}
			one, err := table.attach(t.Context(), id)
			if err == nil {
				<-one.asked
				err = table.detach(one)
			}
			if err != nil {
				t.Fatal(err)
			}
			away = append(away, one)
		}
		begun := time.Now()
		if _, err := u.Call(t.Context(), call("ann")); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < mayBeAway || took > mayBeAway+2*time.Second {
			t.Errorf("it has waited for %v", took)
		}
		if <-away[0].done; !errors.Is(away[0].err, errAway) || table.count() != 1 {
			t.Errorf("%v, %d", away[0].err, table.count())
		}
		if away[1].ctx.Err() != nil {
			t.Error("the call of another principal was given up")
		}
		if err := errors.Join(table.close(t.Context()), u.Close(t.Context())); err != nil {
			t.Error(err)
		}
		s.Close()
	})
}
