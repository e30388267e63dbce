package interop

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/sourcegraph/jsonrpc2"
)

// Foreign clients against farcall serve.

func TestJrpc2Client(t *testing.T) {
	address := serve(t)
	for name, framing := range map[string]channel.Framing{
		"lines": channel.Line, "Content-Length": channel.LSP, "texts": channel.RawJSON,
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			c := jrpc2.NewClient(framing(conn, conn), &jrpc2.ClientOptions{
				OnCallback: func(_ context.Context, req *jrpc2.Request) (any, error) {
					return req.Method() + req.ParamString(), nil
				},
			})
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			var sum float64
			if err := c.CallResult(ctx, "math/add", map[string]int{"a": 2, "b": 3}, &sum); err != nil ||
				sum != 5 {
				t.Errorf("math/add = %v, %v", sum, err)
			}
			if err := c.Notify(ctx, "logEvent", map[string]string{"event": "x"}); err != nil {
				t.Error(err)
			}
			_, err = c.Call(ctx, "nosuch", nil)
			if jrpc2.ErrorCode(err) != jrpc2.MethodNotFound {
				t.Errorf("nosuch: %v", err)
			}
			answers, err := c.Batch(ctx, []jrpc2.Spec{
				{Method: "sum", Params: []int{1, 2, 4}},
				{Method: "notify_hello", Params: []int{7}, Notify: true},
				{Method: "get_data"},
			})
			if err != nil || len(answers) != 2 || answers[0].ResultString() != "7" ||
				answers[1].ResultString() != `["hello",5]` {
				t.Errorf("batch: %v, %v", answers, err)
			}
			var back string
			if err := c.CallResult(ctx, "callback", map[string]any{"method": "ask", "params": []int{1}},
				&back); err != nil || back != "ask[1]" {
				t.Errorf("callback = %q, %v", back, err)
			}
		})
	}
}

func TestGethClient(t *testing.T) {
	address := serve(t)
	for _, url := range []string{"http://" + address + "/rpc", "ws://" + address + "/rpc/ws"} {
		t.Run(strings.SplitN(url, ":", 2)[0], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			c, err := rpc.DialContext(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var sum float64
			if err := c.CallContext(ctx, &sum, "math/add", 2, 3); err != nil || sum != 5 {
				t.Errorf("math/add = %v, %v", sum, err)
			}
			var coded rpc.Error
			if err := c.CallContext(ctx, nil, "nosuch"); !errors.As(err, &coded) ||
				coded.ErrorCode() != -32601 {
				t.Errorf("nosuch: %v", err)
			}
			var total float64
			var data []any
			batch := []rpc.BatchElem{
				{Method: "sum", Args: []any{1, 2, 4}, Result: &total},
				{Method: "get_data", Result: &data},
				{Method: "nosuch"},
			}
			if err := c.BatchCallContext(ctx, batch); err != nil || batch[0].Error != nil ||
				batch[1].Error != nil || batch[2].Error == nil || total != 7 || len(data) != 2 {
				t.Errorf("batch: %v, %+v, %v, %v", err, batch, total, data)
			}
		})
	}
}

func TestSourcegraphClient(t *testing.T) {
	conn, err := net.Dial("tcp", serve(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	answer := jsonrpc2.HandlerWithError(func(
		_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request,
	) (any, error) {
		return req.Params, nil
	})
	c := jsonrpc2.NewConn(ctx, jsonrpc2.NewBufferedStream(conn, jsonrpc2.VSCodeObjectCodec{}),
		jsonrpc2.AsyncHandler(answer))
	defer c.Close()
	var sum float64
	if err := c.Call(ctx, "math/add", []int{2, 3}, &sum); err != nil || sum != 5 {
		t.Errorf("math/add = %v, %v", sum, err)
	}
	var wire *jsonrpc2.Error
	if err := c.Call(ctx, "nosuch", nil, nil); !errors.As(err, &wire) ||
		wire.Code != jsonrpc2.CodeMethodNotFound {
		t.Errorf("nosuch: %v", err)
	}
	var back json.RawMessage
	if err := c.Call(ctx, "callback", map[string]any{"method": "ask", "params": []int{1}},
		&back); err != nil || string(back) != "[1]" {
		t.Errorf("callback = %s, %v", back, err)
	}
}
