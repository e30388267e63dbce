package gateway_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

// A till is a JSON-RPC server with a method that must not be called twice.
type till struct {
	ran     atomic.Int64
	entered chan struct{}
	release chan struct{}
}

func (b *till) serve(conn net.Conn) {
	lines(func(line string) string {
		n := b.ran.Add(1)
		id := scan.Member([]byte(line), "id")
		switch {
		case strings.Contains(line, "waits"):
			b.entered <- struct{}{}
			<-b.release
		case strings.Contains(line, "dies"):
			_ = conn.Close()
			return ""
		case strings.Contains(line, "fails"):
			return fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no money","data":%d}}`, id, n)
		case strings.Contains(line, "looks modern"):
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","n":%d}}`,
				id, n)
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%d}`, id, n)
	})(conn)
}

// A call of JSON-RPC with a key is made once, by two gateways together: see TestIdempotency. A call
// that has failed says whether it was sent, the same to all.
func TestIdempotencyOfRPC(t *testing.T) {
	shared := store.NewMemory(nil)
	t.Cleanup(func() { _ = shared.Close() })
	b := &till{entered: make(chan struct{}, 100), release: make(chan struct{}, 100)}
	var labs [2]*lab
	url := listen(t, b.serve)
	for i := range labs {
		c := &gateway.Config{Guard: everybody(), Upstreams: []*gateway.Upstream{
			{Name: "r", URL: url, Profile: "raw"}, {Name: "down", URL: "tcp://127.0.0.1:1", Profile: "raw"},
		}}
		c.Idempotency.Argument = "order"
		labs[i] = newLabOf(t, &gateway.Options{Shared: shared}, c)
	}
	call := func(ctx context.Context, i int, at, params string, headers ...string) *reply {
		got, err := labs[i].post(ctx, "/rpc/"+at,
			`{"jsonrpc":"2.0","id":1,"method":"charge","params":`+params+`}`, headers...)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return got
	}
	dev := func(i int, key, params string) *reply {
		return call(t.Context(), i, "r", params, "Idempotency-Key: "+key, as("dev"))
	}
	want := func(what string, executed int64, got ...*reply) {
		t.Helper()
		for _, r := range got {
			if r.body != got[0].body {
				t.Errorf("%s: %v, and first %v", what, r, got[0])
			}
		}
		if n := b.ran.Swap(0); n != executed {
			t.Errorf("%s: %d executions", what, n)
		}
	}
	var all [20]*reply
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = dev(i%2, "one", `["waits",1]`) })
	}
	<-b.entered
	b.release <- struct{}{}
	wg.Wait()
	want("in flight", 1, append(all[:], dev(1, `"one"`, `[ "waits", 1.0 ]`))...)
	if all[0].result == nil {
		t.Errorf("the answer: %v", all[0])
	}
	for _, params := range []string{`["waits",2]`, `{}`, `null`} {
		if got := dev(0, "one", params); got.err == nil || got.err.Code != jsonrpc.InvalidParams ||
			!strings.Contains(got.body, `"sent":"no"`) {
			t.Errorf("other arguments: %v", got)
		}
	}
	want("of other arguments", 0)
	want("the key of another principal", 1,
		call(t.Context(), 0, "r", `[1]`, "Idempotency-Key: one", as("eve")))
	want("in _meta", 1, dev(0, "", `{"a":1,"_meta":{"idempotencyKey":"three","n":1}}`),
		dev(1, "", `{"_meta":{"n":2,"idempotencyKey":"three"},"a":1}`))
	want("in a member", 1, dev(0, "", `{"order":"four"}`), dev(1, "", `{"order":"four"}`))
	want("an error", 1, dev(0, "five", `["fails"]`), dev(1, "five", `["fails"]`))
	plain := dev(0, "as MCP", `["looks modern"]`)
	if want("a result that looks as one of MCP", 1, plain,
		dev(1, "as MCP", `["looks modern"]`)); plain.result == nil {
		t.Errorf("a result that looks as one of MCP: %v", plain)
	}
	dev(0, "", `[1]`)
	dev(0, "", `[1]`)
	want("without a key", 2)
	died, again := dev(0, "six", `["dies"]`), dev(1, "six", `["dies"]`)
	if want("the server has gone away", 1, died,
		again); !strings.Contains(died.body, `"sent":"unknown"`) {
		t.Errorf("the server has gone away: %v", died)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { call(ctx, 0, "r", `["waits"]`, "Idempotency-Key: seven", as("dev")) })
	<-b.entered
	cancel()
	wg.Wait()
	b.release <- struct{}{}
	want("a client that has left", 1, dev(1, "seven", `["waits"]`), dev(0, "seven", `["waits"]`))

	unsent := call(t.Context(), 0, "down", `[1]`, "Idempotency-Key: eight", as("dev"))
	if !strings.Contains(unsent.body, `"sent":"no"`) {
		t.Errorf("the server is down: %v", unsent)
	}
}
