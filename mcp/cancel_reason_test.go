package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// reasonServer has a tool that waits for its cancellation and tells why it came.
func reasonServer(t *testing.T) (s *Server, begun chan struct{}, why chan error) {
	t.Helper()
	begun, why = make(chan struct{}, 1), make(chan error, 1)
	s = NewServer("s", "1", nil)
	t.Cleanup(s.Close)
	AddTool(s, Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		begun <- struct{}{}
		<-derived.Done()
		if own := context.Cause(ctx); own.Error() != context.Cause(derived).Error() {
			t.Errorf("the cause is %v, and that of a derived context %v", own, context.Cause(derived))
		}
		why <- context.Cause(derived)
		return "", ctx.Err()
	})
	return s, begun, why
}

// TestCancelReasons: the cause of a caller's context is the reason that the handler sees, in every
// revision and over every transport that can say it. Over HTTP a request of the modern era is
// cancelled by closing it, which says nothing.
func TestCancelReasons(t *testing.T) {
	long := strings.Repeat("é", 600)
	causes := map[string]struct {
		cause error
		want  string
	}{
		"a text": {
			errors.New("the user pressed \"stop\"\n\u2028\x1b[31m"),
			"the user pressed \"stop\"\n\u2028\x1b[31m",
		},
		"no cause": {nil, ""},
		"long":     {errors.New(long), long[:1024]},
		"no UTF-8": {errors.New("a\xffb"), "a\ufffdb"},
		"passed on": {
			fmt.Errorf("because: %w", &farcall.CancelError{Reason: "of another"}),
			"of another",
		},
		"deadline": {context.DeadlineExceeded, "deadline exceeded"},
	}
	try := func(
		t *testing.T, silent bool, begun chan struct{}, why chan error,
		connect func(*ClientOptions) (*Client, error), rev *era.Revision,
	) {
		t.Helper()
		c, err := connect(&ClientOptions{Era: rev.Name})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for name, tt := range causes {
			ctx, cancel := context.WithCancelCause(t.Context())
			over := make(chan error, 1)
			go func() {
				_, err := CallTool[string](ctx, c, "wait", nil)
				over <- err
			}()
			<-begun
			cancel(tt.cause)
			got := <-why
			var reason *farcall.CancelError
			switch errors.As(got, &reason); {
			case !errors.Is(got, context.Canceled):
				t.Errorf("%s: the cause is %v", name, got)
			case silent || tt.want == "":
				if reason != nil {
					t.Errorf("%s: the reason is %q", name, reason.Reason)
				}
			case reason == nil || reason.Reason != tt.want:
				t.Errorf("%s: the cause is %v, want %q", name, got, tt.want)
			}
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the call fails with %v", name, err)
			}
		}
	}
	for _, rev := range era.Revisions() {
		t.Run(rev.Name+" stream", func(t *testing.T) {
			s, begun, why := reasonServer(t)
			mine, theirs := farcall.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.Serve(t.Context(), theirs) }()
			try(t, false, begun, why, func(o *ClientOptions) (*Client, error) {
				return Connect(t.Context(), mine, o)
			}, rev)
			<-served
		})
		t.Run(rev.Name+" http", func(t *testing.T) {
			s, begun, why := reasonServer(t)
			h := mcphttp.NewHandler(s, nil)
			server := httptest.NewServer(h)
			defer server.Close()
			defer h.Shutdown(t.Context())
			try(t, !rev.Handshake, begun, why, func(o *ClientOptions) (*Client, error) {
				return Dial(t.Context(), server.URL, o)
			}, rev)
		})
	}
}

// TestCancelReasonsOfQuestions: what a server asks its client is cancelled for the same reason as
// the call that it is part of.
func TestCancelReasonsOfQuestions(t *testing.T) {
	const reason = "the operator has had enough"
	try := func(t *testing.T, s *Server, connect func(*ClientOptions) (*Client, error)) {
		t.Helper()
		asked, why := make(chan struct{}), make(chan error, 1)
		AddTool(s, Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			go func() {
				<-asked
				cancel(errors.New(reason))
			}()
			_, err := Elicit[struct{ Name string }](ctx, "Who?")
			return "", err
		})
		c, err := connect(&ClientOptions{
			Era: era.LatestLegacy().Name,
			Elicit: func(ctx context.Context, _ *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				close(asked)
				<-ctx.Done()
				why <- context.Cause(ctx)
				return nil, ctx.Err()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := CallTool[string](t.Context(), c, "ask", nil); err == nil {
			t.Error("the call has a result")
		}
		var got *farcall.CancelError
		if err := <-why; !errors.As(err, &got) || got.Reason != reason {
			t.Errorf("the client gets %v", err)
		}
	}
	t.Run("stream", func(t *testing.T) {
		s, _, _ := reasonServer(t)
		mine, theirs := farcall.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context(), theirs) }()
		try(t, s, func(o *ClientOptions) (*Client, error) { return Connect(t.Context(), mine, o) })
		<-served
	})
	t.Run("http", func(t *testing.T) {
		s, _, _ := reasonServer(t)
		h := mcphttp.NewHandler(s, nil)
		server := httptest.NewServer(h)
		defer server.Close()
		defer h.Shutdown(t.Context())
		try(t, s, func(o *ClientOptions) (*Client, error) { return Dial(t.Context(), server.URL, o) })
	})
}
