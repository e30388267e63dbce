package watch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A reader of a file that grows waits at its end, says so each time, and ends with its context or
// when what it says fails.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		file := bytes.NewBufferString("one")
		ends := 0
		r := Follow(ctx, file, func() error {
			if ends++; ends == 3 {
				file.WriteString("two")
			}
			return nil
		})
		buf := make([]byte, 10)
		if n, err := r.Read(buf); err != nil || string(buf[:n]) != "one" || ends != 0 {
			t.Errorf("%s, %v, at its end %d times", buf[:n], err, ends)
		}
		began := time.Now()
		if n, err := r.Read(buf); err != nil || string(buf[:n]) != "two" ||
			time.Since(began) != 3*followEach {
			t.Errorf("%s, %v, after %v", buf[:n], err, time.Since(began))
		}
		cancel()
		if _, err := r.Read(buf); !errors.Is(err, io.EOF) {
			t.Errorf("after the end of the context: %v", err)
		}
		full := errors.New("full")
		r = Follow(t.Context(), file, func() error { return full })
		if _, err := r.Read(buf); !errors.Is(err, full) {
			t.Errorf("%v, want that of atEnd", err)
		}
	})
}
