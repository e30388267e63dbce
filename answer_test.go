package farcall_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// An answer without result and error, as some ends write a result that is null,
// fails the call at once and is not answered.
func TestAnswerWithoutResult(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	done := w.call(t.Context())
	w.expect(`{"jsonrpc":"2.0","method":"ask","id":1}`)
	w.write(`{"jsonrpc":"2.0","id":1}`)
	if err := <-done; !errors.Is(err, farcall.ErrProtocol) {
		t.Errorf("got %v, want ErrProtocol", err)
	}
	w.ping()
}

// A method that does not stream yields what it answers.
func TestStreamOfAPlainMethod(t *testing.T) {
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, farcall.HandlerFunc(echo), nil, nil)
	for params, want := range map[string][]string{`{"a":1}`: {`{"a":1}`}, `[1,2]`: {"1", "2"}} {
		var got []string
		for v, err := range farcall.Stream[jsonrpc.Raw](t.Context(), pa, "echo", jsonrpc.Raw(params)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(v))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", params, got, want)
		}
	}
}
