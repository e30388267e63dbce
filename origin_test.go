package farcall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An error that answered a call of the handler leaves as the handler's own only where it says so.
func TestErrorsKeepTheirOrigin(t *testing.T) {
	codes := &farcall.Errors{}
	farcall.MapError[*stockError](codes, 1001)
	var client *farcall.Peer
	back := func(ctx context.Context) error {
		return farcall.CallerFrom(ctx).Call(ctx, "confirm", nil, nil)
	}
	mux := farcall.NewMux()
	for method, f := range map[string]func(ctx context.Context) error{
		"nested":  back,
		"wrapped": func(ctx context.Context) error { return fmt.Errorf("confirming: %w", back(ctx)) },
		"passed": func(ctx context.Context) error {
			return farcall.PassOn(fmt.Errorf("confirming: %w", back(ctx)))
		},
		"extracted": func(ctx context.Context) error {
			wire := new(jsonrpc.Error)
			errors.As(back(ctx), &wire)
			return wire
		},
		"around": func(ctx context.Context) error {
			return &jsonrpc.Error{Code: 7, Message: "not confirmed", Cause: back(ctx)}
		},
		"joined": func(ctx context.Context) error {
			return errors.Join(back(ctx), jsonrpc.Errorf(7, "not confirmed"))
		},
		"mapped": func(ctx context.Context) error {
			var e *stockError
			if err := farcall.CallerFrom(ctx).Call(ctx, "stock", nil, nil); !errors.As(err, &e) {
				t.Errorf("the error is %v", err)
				return nil
			} else if e.Left == 1 {
				return err
			}
			return e
		},
		"batch": func(context.Context) error {
			calls := []*farcall.BatchCall{{Method: "confirm"}}
			if err := client.Batch(t.Context(), calls...); err != nil {
				t.Error(err)
			}
			return calls[0].Err
		},
	} {
		farcall.Handle(mux, method, func(ctx context.Context, _ struct{}) (int, error) {
			return 0, f(ctx)
		})
	}
	left := 1
	theirs := farcall.NewMux()
	farcall.Handle(theirs, "stock", func(context.Context, struct{}) (int, error) {
		return 0, &stockError{left}
	})
	a, b := farcall.Pipe()
	var log bytes.Buffer
	client = farcall.NewPeer(a, mux, &farcall.Options{Errors: codes, Logger: textLogger(&log)})
	other := farcall.NewPeer(b, theirs, &farcall.Options{Errors: codes})
	for _, test := range []struct {
		method string
		code   jsonrpc.Code
		text   string
	}{
		{"nested", jsonrpc.InternalError, "Internal error"},
		{"wrapped", jsonrpc.InternalError, "Internal error"},
		{"batch", jsonrpc.InternalError, "Internal error"},
		{"passed", jsonrpc.MethodNotFound, "Method not found"},
		{"extracted", jsonrpc.MethodNotFound, "Method not found"},
		{"around", 7, "not confirmed"},
		{"joined", 7, "not confirmed"},
		{"mapped", jsonrpc.InternalError, "Internal error"},
	} {
		err := other.Call(t.Context(), test.method, nil, nil)
		wire := new(jsonrpc.Error)
		if !errors.As(err, &wire) || wire.Code != test.code ||
			!strings.HasPrefix(wire.Message, test.text) {
			t.Errorf("%s: got %v", test.method, err)
		}
	}
	left = 2
	if err := other.Call(t.Context(), "mapped", nil, nil); !errors.Is(err, jsonrpc.Code(1001)) {
		t.Errorf("mapped and taken out: got %v", err)
	}
	for _, p := range []*farcall.Peer{client, other} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := log.String(); !strings.Contains(got, `error="confirming: Method not found`) {
		t.Errorf("the log has not what the handler met: %s", got)
	}
}

type stockError struct {
	Left int `json:"left"`
}

func (e *stockError) Error() string { return fmt.Sprint(e.Left, " left") }

// A caller that cannot be called back hears of it, with its own code.
func TestNoCallbackOnTheWire(t *testing.T) {
	mux := farcall.NewMux()
	farcall.Handle(mux, "ask", func(ctx context.Context, _ struct{}) (int, error) {
		return farcall.Call[int](ctx, farcall.CallerFrom(ctx), "n", nil)
	})
	farcall.Handle(mux, "tell", func(ctx context.Context, _ struct{}) (int, error) {
		return 0, farcall.CallerFrom(ctx).Notify(ctx, "n", nil)
	})
	r := farcall.NewResponder(mux, nil)
	for _, method := range []string{"ask", "tell"} {
		got := r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","method":"`+method+`","id":1}`), nil)
		want := `{"jsonrpc":"2.0","error":{"code":-32043,"message":"This transport cannot call the ` +
			`caller back; use WebSocket, TCP, a unix socket or stdio"},"id":1}`
		if string(got) != want {
			t.Errorf("%s: %s", method, got)
		}
	}
	if rows := jsonrpc.Lookup(-32043); len(rows) == 0 || rows[0].Name != "No callback" {
		t.Errorf("the registry has %v", rows)
	}
}
