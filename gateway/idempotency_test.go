package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/store"
)

// A bank has a tool that must not be called twice.
type bank struct {
	*mcp.Server

	ran     atomic.Int64
	entered chan struct{}
	release chan struct{}
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{
		mcp.NewServer("bank", "1", nil),
		atomic.Int64{},
		make(chan struct{}, 100),
		make(chan struct{}),
	}
	t.Cleanup(b.Close)
	mcp.AddTool(b.Server, mcp.Tool{Name: "charge"},
		func(_ context.Context, in textIn) (string, error) {
			n := b.ran.Add(1)
			if in.Text == "waits" {
				b.entered <- struct{}{}
				select {
				case <-b.release:
				case <-t.Context().Done():
				}
			}
			if in.Text == "fails" {
				return "", errors.New("no money")
			}
			return fmt.Sprint(in.Text, " ", n), nil
		})
	return b
}

// charge calls the tool once more.
func (l *lab) charge(ctx context.Context, t *testing.T, args string, headers ...string) *reply {
	t.Helper()
	got, err := l.modernAt(ctx, "/mcp", "tools/call", "charge", `"name":"charge","arguments":`+args,
		headers...)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return got
}

// Of the calls with one key at two gateways, one is executed, and all have its answer: while it is
// executed, when it has ended, and when the client that made it has left.
func TestIdempotency(t *testing.T) {
	shared := store.NewMemory(nil)
	t.Cleanup(func() {
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
	b := newBank(t)
	var labs [2]*lab
	for i := range labs {
		labs[i] = newLabOf(t, &gateway.Options{Shared: shared}, &gateway.Config{
			Upstreams: []*gateway.Upstream{over(t, "a", b.Server)}, Guard: everybody(),
		})
	}
	charge := func(i int, who, key, args string) *reply {
		return labs[i].charge(t.Context(), t, args, "Idempotency-Key: "+key, as(who))
	}
	want := func(what string, executed int64, got ...*reply) {
		t.Helper()
		for _, r := range got {
			if r.result == nil || string(r.result) != string(got[0].result) {
				t.Errorf("%s: %v, and first %v", what, r, got[0])
			}
		}
		if n := b.ran.Swap(0); n != executed {
			t.Errorf("%s: %d executions", what, n)
		}
	}

	var all [40]*reply
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = charge(i%2, "dev", "one", `{"text":"waits"}`) })
	}
	<-b.entered
	b.release <- struct{}{}
	wg.Wait()
	want("in flight", 1, append(all[:], charge(1, "dev", `"one"`, `{ "text": "waits" }`))...)

	for i := range labs {
		got := charge(i, "dev", "one", `{"text":"other"}`)
		if got.err == nil || got.err.Code != jsonrpc.InvalidParams ||
			!strings.Contains(got.body, `"sent":"no"`) {
			t.Errorf("other arguments: %v", got)
		}
	}
	want("the key of another principal", 1, charge(0, "eve", "one", `{"text":"x"}`))
	want("a tool's error", 1, charge(0, "dev", "two", `{"text":"fails"}`),
		charge(1, "dev", "two", `{"text":"fails"}`))
	want("without a key", 2, charge(0, "dev", "", `{"text":"fails"}`),
		charge(0, "dev", "", `{"text":"fails"}`))

	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { labs[0].charge(ctx, t, `{"text":"waits"}`, "Idempotency-Key: three", as("dev")) })
	<-b.entered
	cancel()
	wg.Wait()
	var again *reply
	wg.Go(func() { again = charge(1, "dev", "three", `{"text":"waits"}`) })
	b.release <- struct{}{}
	wg.Wait()
	want("a client that has left", 1, again, charge(0, "dev", "three", `{"text":"waits"}`))

	meta := strings.Replace(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"text":"meta"},
		"_meta":{"idempotencyKey":"four","io.modelcontextprotocol/protocolVersion":"REV",
		"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, "REV", modern, 1)
	var two [2]*reply
	for i := range two {
		got, err := labs[i].post(t.Context(), "/mcp", meta, "MCP-Protocol-Version: "+modern,
			"Mcp-Method: tools/call", "Mcp-Name: charge", as("dev"))
		if err != nil {
			t.Fatal(err)
		}
		two[i] = got
	}
	want("in _meta", 1, two[:]...)
	if got := charge(0, "dev", strings.Repeat("k", 257), `{"text":"x"}`); got.err == nil ||
		got.err.Code != jsonrpc.InvalidParams {
		t.Errorf("a long key: %v", got)
	}
}

// A key may be an argument of the tool. Callers that share an address need one that others do not
// guess.
func TestIdempotencyArgument(t *testing.T) {
	b := newBank(t)
	c := &gateway.Config{Upstreams: []*gateway.Upstream{over(t, "a", b.Server)}}
	c.Idempotency.Argument = "text"
	l := newLabOf(t, nil, c)
	const args = `{"text":"order 4711 of 2026-11-27"}`
	first, second := l.charge(t.Context(), t, args), l.charge(t.Context(), t, args)
	if first.result == nil || string(first.result) != string(second.result) || b.ran.Load() != 1 {
		t.Errorf("%v, %v, %d executions", first, second, b.ran.Load())
	}
	if got := l.charge(t.Context(), t, `{"text":"short"}`); got.err == nil ||
		!strings.Contains(got.body, "at least 16 bytes") {
		t.Errorf("a short key: %v", got)
	}
}
