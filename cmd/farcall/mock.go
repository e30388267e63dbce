package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

type mockFlags struct {
	*env
	redacted, pace bool
	upstream       string
}

const (
	redactedUsage = "use a capture with replaced secrets, too"
	upstreamUsage = "of the capture of a gateway, use what passed between it and this `upstream`"
)

func newMockCmd(e *env) *cobra.Command {
	f := &mockFlags{env: e}
	cmd := command("mock FILE [ADDRESS]", "Answer as the server of a capture did", f.run)
	cmd.Flags().BoolVar(&f.redacted, "redacted", false, redactedUsage)
	cmd.Flags().StringVar(&f.upstream, "upstream", "", upstreamUsage)
	cmd.Flags().BoolVar(&f.pace, "pace", false, "answer as slowly as the server did")
	return cmd
}

func (f *mockFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return usagef("For example: farcall mock a.jsonl 127.0.0.1:9000",
			"mock takes FILE and at most one ADDRESS")
	}
	script, err := loadScript(args[0], &mock.Part{Upstream: f.upstream, Redacted: f.redacted})
	if err != nil {
		return err
	}
	if script.Skipped > 0 {
		fmt.Fprintf(f.stderr, "farcall: the capture has no answer to %s\n",
			countOf(script.Skipped, "call"))
	}
	if len(args) == 2 {
		return f.bridge(cmd, script, args)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	return script.Serve(ctx, stream.Stdio(stream.Detect, nil), &mock.Options{Pace: f.pace})
}

// loadScript reads a capture.
func loadScript(path string, part *mock.Part) (*mock.Script, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	script, err := mock.Load(r, part)
	if err != nil {
		return nil, scriptFailure(path, err)
	}
	return script, nil
}

// scriptFailure is the exit for a capture that cannot be used.
func scriptFailure(path string, err error) error {
	hint := ""
	if errors.Is(err, mock.ErrRedacted) {
		hint = "Record it with 'farcall tap --raw', or add --redacted."
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("%s: %w", path, err), hint: hint}
}

// bridge serves the mock at an address, through a bridge to this program.
func (f *mockFlags) bridge(cmd *cobra.Command, script *mock.Script, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	profile := "mcp"
	if !script.MCP {
		profile = "raw"
	}
	line := []string{args[1], "--profile", profile, "--", program, "mock", args[0]}
	if f.redacted {
		line = append(line, "--redacted")
	}
	if f.upstream != "" {
		line = append(line, "--upstream", f.upstream)
	}
	if f.pace {
		line = append(line, "--pace")
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	ahead := &mocking{ctx: ctx, script: script, o: &mock.Options{Pace: f.pace}}
	bridge := (&bridgeFlags{remote: remote{env: f.env}, ahead: ahead}).command(f.env)
	bridge.SilenceErrors, bridge.SilenceUsage = true, true
	bridge.SetArgs(line)
	return bridge.ExecuteContext(cmd.Context())
}

// mocking answers clients that speak as that of the capture did with its frames. The gateway
// translates for all others.
type mocking struct {
	ctx    context.Context //nolint:containedctx // of all connections
	script *mock.Script
	o      *mock.Options
	web    http.HandlerFunc
}

// begin makes the gateway the one that serves other clients.
func (m *mocking) begin(b *behind) {
	posts := m.script.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.Gateway.ServeHTTP(w, r)
	}), m.o)
	sockets := wsrpc.NewHandler(func(t farcall.Transport, r *http.Request) {
		m.serve(func(t farcall.Transport) <-chan struct{} {
			b.ServeStream(t, &guard.Conn{Transport: "ws", Remote: r.RemoteAddr, Close: t.Close})
			return nil
		})(t)
	}, nil)
	m.web = func(w http.ResponseWriter, r *http.Request) {
		if err := new(origin.Policy).Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			sockets.ServeHTTP(w, r)
			return
		}
		posts.ServeHTTP(w, r)
	}
}

// serve serves connections, or has next do it, as their first frame says.
func (m *mocking) serve(
	next func(farcall.Transport) <-chan struct{},
) func(farcall.Transport) <-chan struct{} {
	return func(t farcall.Transport) <-chan struct{} {
		stop := context.AfterFunc(m.ctx, func() { _ = t.Close() })
		again, frame, err := port.First(t)
		if !stop() || err != nil || !m.script.Speaks(frame) {
			return next(again)
		}
		_ = m.script.Serve(m.ctx, again, m.o) // its error is the connection's: it broke
		return nil
	}
}
