package farcall_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Params that are bytes of the caller's stay the caller's: no later call writes into them.
func TestParamsAreNotReused(t *testing.T) {
	a, b := farcall.Pipe()
	p, _ := connect(t, a, b, nil, farcall.HandlerFunc(echo), nil, nil)
	want := `["` + strings.Repeat("x", 10_000) + `"]`
	params := jsonrpc.Raw(want)
	for range 20 {
		if err := p.Call(t.Context(), "echo", params, nil); err != nil {
			t.Fatal(err)
		}
		if string(params) != want {
			t.Fatalf("the params became %.100s", params)
		}
	}
}
