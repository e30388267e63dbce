package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A reasonMock is a server with a tool that waits for its cancellation and tells why it came.
type reasonMock struct {
	*mcp.Server
	begun chan struct{}
	why   chan error
}

func newReasonMock(eras string) *reasonMock {
	m := &reasonMock{
		mcp.NewServer("mock", "1", &mcp.ServerOptions{Eras: eras}),
		make(chan struct{}, 1), make(chan error, 1),
	}
	mcp.AddTool(m.Server, mcp.Tool{Name: "wait"},
		func(ctx context.Context, _ struct{}) (string, error) {
			m.begun <- struct{}{}
			<-ctx.Done()
			m.why <- context.Cause(ctx)
			return "", ctx.Err()
		})
	return m
}

// reasonOf returns the reason of a cancellation, "" for none.
func reasonOf(t *testing.T, why chan error) string {
	t.Helper()
	if given, ok := errors.AsType[*farcall.CancelError](received(t, "the cancellation", why)); ok {
		return given.Reason
	}
	return ""
}

// TestCancelReasonsPass: why a client cancels a call reaches the handler of an upstream, for each
// pair of revisions and transports that say it: those with sessions always do, 2026-07-28 on
// streams only. Elsewhere the call is cancelled without a reason.
func TestCancelReasonsPass(t *testing.T) {
	mocks := map[string]*reasonMock{}
	says := map[string]bool{}
	var upstreams []*gateway.Upstream
	for _, rev := range era.Revisions() {
		for _, transport := range []string{"tcp", "http"} {
			name := transport + strings.ReplaceAll(rev.Name, "-", "")
			m := newReasonMock(rev.Name)
			mocks[name], says[name] = m, rev.Handshake || transport == "tcp"
			u := over(t, name, m.Server)
			if transport == "http" {
				u = (&mock{Server: m.Server}).http(t, name, nil)
			}
			u.Namespace = "always"
			upstreams = append(upstreams, u)
		}
	}
	l := newLab(t, nil, upstreams...)
	const reason = "the user pressed \"stop\"\n\u2028\x1b[31m"
	try := func(t *testing.T, c *mcp.Client, sends bool) {
		t.Helper()
		for name, m := range mocks {
			ctx, cancel := context.WithCancelCause(t.Context())
			over := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, name+"__wait", nil)
				over <- err
			}()
			received(t, "the call of "+name, m.begun)
			cancel(errors.New(reason))
			want := ""
			if sends && says[name] {
				want = reason
			}
			if got := reasonOf(t, m.why); want != "" && got != want {
				t.Errorf("%s: the reason is %q, want %q", name, got, want)
			}
			if err := received(t, "the end of the call", over); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, rev := range era.Revisions() {
		for _, asked := range []bool{false, true} {
			o, name := reasonClient(rev.Name, asked), rev.Name
			if asked {
				name += " can be asked"
			}
			t.Run(name+" http", func(t *testing.T) { try(t, l.client(t, o), rev.Handshake) })
			t.Run(name+" stream", func(t *testing.T) {
				c, err := l.pipe(t, o)
				if err != nil {
					t.Fatal(err)
				}
				try(t, c, true)
			})
		}
	}
	if strings.Contains(l.log.String(), "\x1b") {
		t.Error("the log has a control character of a reason")
	}
}

// TestCancelReasonOfTimeout: a call that lasts longer than the timeout of its upstream is cancelled
// there with that reason, which is not the client's.
func TestCancelReasonOfTimeout(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"legacy", "modern"} {
		for _, asked := range []bool{false, true} {
			m := newReasonMock("legacy")
			u := over(t, "u", m.Server)
			u.Timeout = 500 * time.Millisecond
			c, err := newLab(t, nil, u).pipe(t, reasonClient(revision, asked))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.CallTool(t.Context(), "wait", nil); err == nil {
				t.Error("the call has a result")
			}
			if got := reasonOf(t, m.why); got != "deadline exceeded" {
				t.Errorf("%s client, asked %t: the reason is %q", revision, asked, got)
			}
		}
	}
}

// reasonClient are the options of a client that can be asked, or not.
func reasonClient(revision string, asked bool) mcp.ClientOptions {
	o := mcp.ClientOptions{Era: revision}
	if asked {
		o.Elicit = func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return nil, errors.New("nothing asks")
		}
	}
	return o
}
