package farcall_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
)

// endingInput is a transport that has one frame to read and then no more input.
type endingInput struct {
	farcall.Transport

	frame []byte
}

func (e *endingInput) Read() ([]byte, error) {
	if f := e.frame; f != nil {
		e.frame = nil
		return f, nil
	}
	return nil, io.EOF
}

// The answer of a batch is sent when the input ends while its last call ends.
func TestBatchAtEndOfInput(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	farcall.Handle(mux, "ok", func(context.Context, struct{}) (string, error) { return "", nil })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				a, b := farcall.Pipe()
				p := farcall.NewPeer(&endingInput{a, []byte(`[{"jsonrpc":"2.0","id":1,"method":"ok"}]`)},
					mux, nil)
				answer, err := b.Read()
				if err != nil {
					t.Errorf("%s, %v", answer, err)
				}
				<-p.Done()
				b.Close()
			}
		})
	}
	wg.Wait()
}
