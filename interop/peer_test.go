package interop

import (
	"context"
	"errors"
	"testing"

	"github.com/creachadair/jrpc2/channel"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// The library's peer against foreign servers.

func TestPeerJrpc2(t *testing.T) {
	for _, c := range []struct {
		name    string
		framing channel.Framing
		ours    stream.Framing
	}{
		{"lines", channel.Line, stream.NDJSON},
		{"Content-Length", channel.LSP, stream.Header},
		{"texts", channel.RawJSON, stream.Raw},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			tr, err := stream.Dial(ctx, "tcp", jrpc2Server(t, c.framing), c.ours, nil)
			if err != nil {
				t.Fatal(err)
			}
			mux := farcall.NewMux()
			farcall.Handle(mux, "ask", func(_ context.Context, p []int) (int, error) {
				return p[0] + 41, nil
			})
			peer := farcall.NewPeer(tr, mux, nil)
			defer peer.Close()
			if sum, err := farcall.Call[float64](ctx, peer, "add", []int{2, 3}); err != nil || sum != 5 {
				t.Errorf("add = %v, %v", sum, err)
			}
			if back, err := farcall.Call[int](ctx, peer, "callback", nil); err != nil || back != 42 {
				t.Errorf("callback = %v, %v", back, err)
			}
			if err := peer.Call(ctx, "nosuch", nil, nil); !errors.Is(err, jsonrpc.MethodNotFound) {
				t.Errorf("nosuch: %v", err)
			}
			var one, two float64
			calls := []*farcall.BatchCall{
				{Method: "add", Params: []int{1, 0}, Result: &one},
				{Method: "add", Params: []int{1, 0}, Notify: true},
				{Method: "nosuch"},
				{Method: "add", Params: []int{2, 0}, Result: &two},
			}
			if err := peer.Batch(ctx, calls...); err != nil || one != 1 || two != 2 ||
				!errors.Is(calls[2].Err, jsonrpc.MethodNotFound) {
				t.Errorf("batch: %v, %v, %v, %v", err, one, two, calls[2].Err)
			}
		})
	}
}

func TestPeerGeth(t *testing.T) {
	httpURL, wsURL := gethServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	x, err := httprpc.Dial(httpURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := wsrpc.Dial(ctx, wsURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, peer := range map[string]*farcall.Peer{
		"http": farcall.NewClient(x, nil, nil),
		"ws":   farcall.NewPeer(tr, nil, nil),
	} {
		t.Run(name, func(t *testing.T) {
			defer peer.Close()
			if sum, err := farcall.Call[float64](ctx, peer, "calc_add", []int{2, 3}); err != nil ||
				sum != 5 {
				t.Errorf("add = %v, %v", sum, err)
			}
			var wire *jsonrpc.Error
			if err := peer.Call(ctx, "calc_fail", nil, nil); !errors.As(err, &wire) || wire.Code != 4711 ||
				string(wire.Data) != `{"at":7}` {
				t.Errorf("fail: %v", err)
			}
			var one, two float64
			calls := []*farcall.BatchCall{
				{Method: "calc_add", Params: []int{1, 0}, Result: &one},
				{Method: "nosuch"},
				{Method: "calc_add", Params: []int{2, 0}, Result: &two},
			}
			if err := peer.Batch(ctx, calls...); err != nil || one != 1 || two != 2 ||
				!errors.Is(calls[1].Err, jsonrpc.MethodNotFound) {
				t.Errorf("batch: %v, %v, %v, %v", err, one, two, calls[1].Err)
			}
		})
	}
}
