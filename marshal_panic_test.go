package farcall_test

import (
	"context"
	"errors"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type badJSON struct{}

func (badJSON) MarshalJSON() ([]byte, error) { panic("badJSON") }

type badError struct{}

func (badError) Error() string { panic("badError") }
func (badError) Unwrap() error { panic("badError") }

// What a handler returns may panic too, when it is marshalled or asked for its
// text.
func TestPanicInWhatAHandlerReturns(t *testing.T) {
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, handle(map[string]farcall.HandlerFunc{
		"result": func(context.Context, *farcall.Request) (any, error) { return badJSON{}, nil },
		"error":  func(context.Context, *farcall.Request) (any, error) { return nil, badError{} },
		"echo":   echo,
	}), nil, nil)
	for _, m := range []string{"result", "error"} {
		if err := pa.Call(t.Context(), m, nil, nil); !errors.Is(err, jsonrpc.InternalError) {
			t.Errorf("%s: got %v", m, err)
		}
		if err := pa.Notify(t.Context(), m, nil); err != nil {
			t.Error(err)
		}
		if err := pa.Call(t.Context(), "echo", []int{1}, nil); err != nil {
			t.Errorf("after %s: %v", m, err)
		}
	}
}
