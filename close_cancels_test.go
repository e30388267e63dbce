package farcall_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
)

// TestCloseCancelsCalls: the other end of a connection would go on with the calls of an end that
// closes it, where it may answer a half-closed connection, so Close cancels them first. The calls
// fail as before.
func TestCloseCancelsCalls(t *testing.T) {
	t.Parallel()
	mine, theirs := farcall.Pipe()
	p := farcall.NewPeer(mine, nil, nil)
	errs := make(chan error, 2)
	sent := map[string]bool{}
	for _, method := range []string{"a", "b"} {
		go func() { errs <- p.Call(t.Context(), method, nil, nil) }()
		frame, err := theirs.Read()
		if err != nil {
			t.Fatal(err)
		}
		_, id, _ := strings.Cut(string(frame), `"id":`)
		sent[strings.TrimRight(id, "}")] = true
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	for range 2 {
		frame, err := theirs.Read()
		if err != nil {
			t.Fatalf("a call was not cancelled: %v", err)
		}
		method, id, _ := strings.Cut(string(frame), `"params":{"id":`)
		if id = strings.TrimRight(id, "}"); !strings.Contains(method, `"$/cancelRequest"`) || !sent[id] {
			t.Errorf("%s, of the calls %v", frame, sent)
		}
		delete(sent, id)
		if err := <-errs; !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := theirs.Read(); err == nil {
		t.Error("there is more")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
