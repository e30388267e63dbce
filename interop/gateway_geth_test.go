package interop

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/creachadair/jrpc2/channel"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/sourcegraph/jsonrpc2"
)

// go-ethereum's server behind the gateway, and its client in front of that.
func TestGatewayGeth(t *testing.T) {
	httpURL, wsURL := gethServer(t)
	for to, url := range map[string]string{"HTTP": httpURL, "WebSocket": wsURL} {
		f := starts(t, "bridge", "127.0.0.1:0", url, "--profile", "raw")
		for from, url := range map[string]string{
			"HTTP":      "http://" + f.address + "/rpc",
			"WebSocket": "ws://" + f.address + "/rpc/ws",
		} {
			t.Run(from+" to "+to, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
				defer cancel()
				c, err := rpc.DialContext(ctx, url)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				gethCalls(t, ctx, c)
				if from == "WebSocket" {
					gethSubscribes(t, ctx, c, to == "WebSocket")
				}
			})
		}
	}
}

func gethCalls(t *testing.T, ctx context.Context, c *rpc.Client) {
	t.Helper()
	var sum float64
	if err := c.CallContext(ctx, &sum, "calc_add", 2, 3); err != nil || sum != 5 {
		t.Errorf("add = %v, %v", sum, err)
	}
	var same json.RawMessage
	const text = `{"a":1.0,"b":9007199254740993,"c":"\u00e9"}`
	if err := c.CallContext(ctx, &same, "calc_echo", json.RawMessage(text)); err != nil ||
		string(same) != text {
		t.Errorf("echo = %s, %v", same, err)
	}
	var coded rpc.Error
	var data rpc.DataError
	if err := c.CallContext(ctx, nil, "calc_fail"); !errors.As(err, &coded) ||
		coded.ErrorCode() != 4711 || coded.Error() != "it failed" {
		t.Errorf("fail: %v", err)
	} else if !errors.As(err, &data) || data.ErrorData().(map[string]any)["at"] != 7.0 {
		t.Errorf("fail: %v has no data", err)
	}
	if err := c.CallContext(ctx, nil, "nosuch"); !errors.As(err, &coded) ||
		coded.ErrorCode() != -32601 {
		t.Errorf("nosuch: %v", err)
	}
	sums := make([]float64, 100)
	batch := make([]rpc.BatchElem, 0, len(sums)+1)
	for i := range sums {
		batch = append(batch, rpc.BatchElem{Method: "calc_add", Args: []any{i, 1}, Result: &sums[i]})
	}
	batch = append(batch, rpc.BatchElem{Method: "calc_fail"})
	if err := c.BatchCallContext(ctx, batch); err != nil {
		t.Fatalf("batch: %v", err)
	}
	for i, sum := range sums {
		if batch[i].Error != nil || sum != float64(i+1) {
			t.Errorf("%d of the batch: %v, %v", i, sum, batch[i].Error)
		}
	}
	if err := batch[len(sums)].Error; !errors.As(err, &coded) || coded.ErrorCode() != 4711 {
		t.Errorf("the last of the batch: %v", err)
	}
}

// gethSubscribes subscribes to something, as with eth_subscribe. Where there is no
// connection for the notifications the server says so.
func gethSubscribes(t *testing.T, ctx context.Context, c *rpc.Client, works bool) {
	t.Helper()
	const n = 50
	ticks := make(chan int, n)
	sub, err := c.Subscribe(ctx, "calc", ticks, "ticks", n)
	if !works {
		if err == nil || !strings.Contains(err.Error(), "notifications not supported") {
			t.Errorf("subscribe: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	defer sub.Unsubscribe()
	for i := range n {
		select {
		case tick := <-ticks:
			if tick != i {
				t.Fatalf("tick %d = %d", i, tick)
			}
		case err := <-sub.Err():
			t.Fatalf("the subscription ended at %d: %v", i, err)
		case <-ctx.Done():
			t.Fatalf("there was no tick %d", i)
		}
	}
}

// A server of jrpc2 that asks its client back, for a client of sourcegraph/jsonrpc2.
func TestGatewayJrpc2(t *testing.T) {
	for _, c := range []struct {
		query   string
		framing channel.Framing
	}{{"", channel.Line}, {"?framing=header", channel.LSP}, {"?framing=raw", channel.RawJSON}} {
		f := starts(t, "bridge", "127.0.0.1:0", "tcp://"+jrpc2Server(t, c.framing)+c.query,
			"--profile", "raw")
		e := newEditor(t.Context(), dialHeader(t, f.address))
		var sum float64
		if err := e.conn.Call(t.Context(), "add", []int{2, 3}, &sum); err != nil || sum != 5 {
			t.Errorf("add = %v, %v", sum, err)
		}
		var back any
		if err := e.conn.Call(t.Context(), "callback", nil, &back); err != nil || back != nil {
			t.Errorf("callback = %v, %v", back, err)
		}
		if e.await(t, "ask"); string(*e.last["ask"].Params) != "[1]" {
			t.Errorf("ask %s", *e.last["ask"].Params)
		}
		var wire *jsonrpc2.Error
		if err := e.conn.Call(t.Context(), "nosuch", nil, nil); !errors.As(err, &wire) ||
			wire.Code != jsonrpc2.CodeMethodNotFound {
			t.Errorf("nosuch: %v", err)
		}
		e.conn.Close()
	}
}
