package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/observe"
)

// An observer learns whether an answer that no call waits for comes late, twice or for no call.
func TestUnexpectedAnswers(t *testing.T) {
	t.Parallel()
	const canceled = 70 // more than a connection remembers
	synctest.Test(t, func(t *testing.T) {
		var got []string
		a, b := farcall.Pipe()
		p := farcall.NewPeer(a, nil, &farcall.Options{FirstID: 10, Observer: &observe.Observer{
			Bad: func(_ observe.Frame, problem string) { got = append(got, problem) },
		}})
		defer func() {
			p.Close()
			<-p.Done()
		}()
		ended := make(chan error)
		for range canceled {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- p.Call(ctx, "waits", nil, nil) }()
			synctest.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		answer := func(id any) {
			t.Helper()
			if err := b.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%v,"result":1}`, id)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		go func() { ended <- p.Call(t.Context(), "answers", nil, nil) }()
		synctest.Wait()
		answer(10 + canceled)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		answer(10 + canceled)     // twice
		answer(10 + canceled - 1) // late
		answer(10 + canceled - 1) // twice
		answer(10)                // no longer remembered, or not
		answer(9)                 // before the first
		answer(10 + canceled + 1) // not made yet
		answer(`"10"`)
		want := []string{
			"duplicate answer", "late answer", "duplicate answer", "late answer",
			"unknown answer", "unknown answer", "unknown answer",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		_ = b.Close()
	})
}
