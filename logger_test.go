package farcall_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
)

// Failures of handlers are logged without an option.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var log bytes.Buffer
	slog.SetDefault(textLogger(&log))
	mux := farcall.NewMux()
	farcall.Handle(mux, "fail", func(context.Context, struct{}) (int, error) {
		return 0, errors.New("out of stock")
	})
	farcall.Handle(mux, "panic", func(context.Context, struct{}) (int, error) { panic("boom") })
	r := farcall.NewResponder(mux, nil)
	silent := farcall.NewResponder(mux, &farcall.Options{Logger: slog.New(slog.DiscardHandler)})
	for method, want := range map[string]string{
		"fail":  `error="out of stock"`,
		"panic": "panic=boom",
	} {
		frame := []byte(`{"jsonrpc":"2.0","method":"` + method + `","id":1}`)
		log.Reset()
		silent.Respond(t.Context(), nil, frame, nil)
		if log.Len() > 0 {
			t.Errorf("the log was discarded, and yet has %s", &log)
		}
		r.Respond(t.Context(), nil, frame, nil)
		if got := log.String(); !strings.Contains(got, want) || !strings.Contains(got, "method="+method) {
			t.Errorf("%s: the log has %q", method, got)
		}
	}
}
