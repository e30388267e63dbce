package farcall_test

import (
	"testing"

	"github.com/farcall-dev/farcall"
)

// TestPipeCloseIsLast: once an end of a pipe reads that it was closed, nothing that it writes
// reaches the other end, as with a socket.
func TestPipeCloseIsLast(t *testing.T) {
	for range 5_000 {
		near, far := farcall.Pipe()
		go func() {
			if _, err := near.Read(); err == nil {
				t.Error("near read what nothing has written")
			}
			_ = near.Write([]byte("late"))
		}()
		go func() { _ = near.Close() }()
		if frame, err := far.Read(); err == nil {
			t.Fatalf("read %q of an end that was closed", frame)
		}
	}
}
