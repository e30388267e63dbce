package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// mcpPath is where MCP is, unless the target says.
const mcpPath = "/mcp"

// forMCP takes a TARGET that was read for MCP.
func forMCP(t *target.Target, err error) (*target.Target, error) {
	if err != nil {
		return t, err
	}
	if t.Kind != target.Command && t.Framing != stream.NDJSON {
		return t, usagef("Leave ?framing="+target.FramingName(t.Framing)+" out.",
			"MCP has one message a line")
	}
	t.DefaultPath(mcpPath)
	return t, nil
}

// target finds the target among the arguments and returns the rest.
func (m *mcpRemote) target(cmd *cobra.Command, args []string) (*target.Target, []string, error) {
	t, rest, err := m.split(cmd, args)
	if err != nil || m.kept != nil {
		return t, rest, err
	}
	if t.Kind != target.Command {
		if t, err = forMCP(m.locate(args[0])); err != nil {
			return t, nil, err
		}
	}
	if m.entry != nil && m.entry.Transport == "sse" && m.era == "auto" {
		m.era = "legacy"
	}
	if _, _, err := era.Select(m.era); err != nil {
		return t, nil, usagef(eraHint(), "there is no era %q", m.era)
	}
	if m.log != "" && spec.LogSeverity(m.log) < 0 {
		return t, nil, usagef("The levels are "+strings.Join(spec.LogLevels(), ", ")+".",
			"there is no log level %q", m.log)
	}
	m.sampleGiven = cmd.Flags().Changed("sample")
	return t, rest, nil
}

// eraHint lists what --era may be.
func eraHint() string {
	var names []string
	for _, r := range slices.Backward(era.Revisions()) {
		names = append(names, r.Name)
	}
	return "Use --era auto, modern, legacy or one of " + strings.Join(names, ", ") + "."
}

// mcpSession is a client and the server that it talks to.
type mcpSession struct {
	*mcp.Client
	target *target.Target
	asked  *asker
	tap    *tap // nil over HTTP and WebSocket
	kept   bool // it ends with the shell
}

// open connects. What adjusts the options is called before.
func (m *mcpRemote) open(
	ctx context.Context, t *target.Target, adjust ...func(*mcp.ClientOptions),
) (*mcpSession, error) {
	if m.kept != nil {
		return m.kept.mcp, nil
	}
	s := &mcpSession{target: t}
	var err error
	if s.asked, err = m.newAsker(); err != nil {
		return nil, err
	}
	o, err := m.options(s.asked)
	if err != nil {
		return nil, err
	}
	if err := m.authorize(ctx, t, o); err != nil {
		return nil, err
	}
	for _, f := range adjust {
		f(o)
	}
	limited, cancel := m.limit(ctx)
	defer cancel()
	switch t.Kind {
	case target.HTTP, target.WebSocket:
		s.Client, err = mcp.Dial(limited, t.URL.String(), o)
	default:
		var tr farcall.Transport
		s.tap = &tap{report: func(noise string) {
			where := ""
			if t.Kind == target.Command {
				where = ", on the command's standard output"
			}
			m.screen.printf("farcall: not a message%s: %s", where, noise)
		}}
		if tr, err = m.dialTapped(limited, t, s.tap); err != nil {
			return nil, err
		}
		s.Client, err = mcp.Connect(limited, tr, o)
	}
	if err != nil {
		return nil, s.failure(ctx, "connect", err)
	}
	return s, nil
}

// with connects, and disconnects after use. Ctrl-C ends the context of use. What adjusts the
// options is called before.
func (m *mcpRemote) with(
	ctx context.Context, t *target.Target, use func(context.Context, *mcpSession) error,
	adjust ...func(*mcp.ClientOptions),
) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	s, err := m.open(ctx, t, adjust...)
	if err != nil {
		return err
	}
	defer s.end()
	return use(ctx, s)
}

// end says goodbye.
func (s *mcpSession) end() {
	if !s.kept {
		_ = s.Close() // nothing is to be done about it
	}
}

func (m *mcpRemote) options(a *asker) (*mcp.ClientOptions, error) {
	header, err := m.headers()
	if err != nil {
		return nil, err
	}
	client, err := m.httpClient()
	if err != nil {
		return nil, err
	}
	o := &mcp.ClientOptions{
		Name: "farcall", Version: versionName(), Era: m.era,
		Timeout: m.timeout, MaxTimeout: -1,
		LogLevel: m.log, OnLog: m.printLog, Trace: m.trace(),
		HTTP: &mcphttp.DialOptions{HTTP: client, Header: header},
		// the command reports errors itself
		RPC:       &farcall.Options{Logger: slog.New(slog.DiscardHandler)},
		Elicit:    a.elicit,
		OnWarning: func(err error) { m.screen.printf("farcall: warning: %s", plainWords(err)) },
		OnSessionLost: func() {
			m.screen.printf("farcall: the server had ended the session; this is a new one")
		},
	}
	if m.timeout <= 0 {
		o.Timeout = -1
	}
	if m.sampleGiven || a.models {
		o.Sample = a.sample
	}
	if len(a.roots) > 0 {
		o.Roots = func(context.Context) ([]mcp.Root, error) { return a.roots, nil }
	}
	return o, nil
}

// printLog shows a message of the server's log.
func (m *mcpRemote) printLog(p *spec.LoggingMessageNotificationParams) {
	who := ""
	if p.Logger != "" {
		who = tame(p.Logger) + ": "
	}
	m.screen.printf("[%s] %s%s", tame(p.Level), who, jsonText(p.Data))
}

// jsonText is a string as it reads, and any other value as JSON.
func jsonText(raw jsonrpc.Raw) string {
	if text, ok := unquote(raw); ok {
		return tame(text)
	}
	return string(appendTame(nil, compact(raw)))
}

// plainWords is an error without the terms of the library.
func plainWords(err error) string {
	return tame(libraryTerms.Replace(strings.TrimPrefix(err.Error(), "mcp: ")))
}

var libraryTerms = strings.NewReplacer(
	"; see ClientOptions.Era", "", " (it may be legacy: see ClientOptions.Era)", " (it may be legacy)",
	"; see ClientOptions.MaxRounds", "", "; raise DialOptions.MaxMessage", "",
	" (ClientOptions.Timeout)", "", " (ClientOptions.MaxTimeout)", "",
	"dial: wsrpc: cannot connect: ", "", "mcp: ", "", "gateway: ", "", "mcphttp: ", "", "mcpauth: ",
	"", "farcall: ", "")

// plainError is an error in plain words.
type plainError struct{ error }

func (e plainError) Error() string { return plainWords(e.error) }
func (e plainError) Unwrap() error { return e.error }

const autoHint = "--era auto speaks what the server does."

// pinned reports whether an error may come from --era.
func pinned(err error) bool { return strings.Contains(err.Error(), "ClientOptions.Era") }

// failure turns what went wrong into the exit that says why.
func (s *mcpSession) failure(ctx context.Context, what string, err error) error {
	t := s.target
	var exit *exitError
	var wire *jsonrpc.Error
	var status *mcphttp.StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return exit
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return &exitError{code: exitInterrupted, err: fmt.Errorf("%s: interrupted", what)}
	case errors.Is(err, context.DeadlineExceeded):
		return silent(what, t, s.tap.received())
	case errors.As(err, &wire):
		return s.answered(what, wire, err)
	case errors.As(err, &status):
		return &exitError{
			code: exitProtocol,
			err:  fmt.Errorf("%s: %s answered %s", what, t, statusText(status)),
			hint: statusHint(t, status, err),
		}
	case errors.Is(err, mcphttp.ErrConnect) && (s.Client == nil || isDialing(err)),
		s.Client == nil && strings.HasPrefix(err.Error(), "mcp: dial: "):
		return connectFailure(t, plainError{err})
	case errors.Is(err, farcall.ErrProtocol):
		return &exitError{code: exitProtocol, err: fmt.Errorf("%s: %s", what, plainWords(err))}
	case errors.Is(err, mcphttp.ErrConnect), errors.Is(err, farcall.ErrClosed), errors.Is(err, io.EOF):
		failure := closedFailure(what, t, s.tap.received(), err)
		if exit := (*exitError)(nil); s.Client != nil && errors.As(failure, &exit) && exit.hint == "" {
			exit.hint = "Whether it did what was asked is not known; call again if that does no harm."
		}
		return failure
	case pinned(err):
		return &exitError{
			code: exitAnswered, err: fmt.Errorf("%s: %s", what, plainWords(err)),
			hint: autoHint,
		}
	}
	return fmt.Errorf("%s: %s", what, plainWords(err))
}

// answered is the exit for an error that the server answered.
func (s *mcpSession) answered(what string, wire *jsonrpc.Error, err error) error {
	who := ""
	if s.Client == nil { // a bare host:port has got a path
		who = s.target.String() + " answered "
	}
	text := fmt.Sprintf("%s: %serror %d: %s", what, who, int(wire.Code), tame(wire.Message))
	if len(wire.Data) > 0 && string(wire.Data) != "null" {
		text += "\n  data: " + string(appendTame(nil, compact(wire.Data)))
	}
	return &exitError{code: exitAnswered, err: errors.New(text), hint: s.codeHint(what, wire, err)}
}

func (s *mcpSession) codeHint(what string, wire *jsonrpc.Error, err error) string {
	if s.target.Kind == target.HTTP && unauthenticated(wire.Code) {
		return loginHint(s.target, http.StatusUnauthorized)
	}
	if s.Client == nil { // it has not got beyond the handshake
		if mayRetry(wire) {
			return fmt.Sprintf("It may work later. 'farcall errors %d' says what the code means.",
				int(wire.Code))
		}
		if pinned(err) {
			return autoHint
		}
		return s.handshakeHint(wire)
	}
	switch wire.Code {
	case jsonrpc.MethodNotFound:
		return fmt.Sprintf("'%s' shows what the server offers.",
			commandLine("farcall mcp discover", s.target, ""))
	case spec.MissingRequiredClientCapability:
		return s.capabilityHint(what, wire)
	case jsonrpc.InternalError:
		return "The cause is in the server's log, if it has one."
	}
	return ""
}

// handshakeHint is for an error that answers the first request of MCP.
func (s *mcpSession) handshakeHint(wire *jsonrpc.Error) string {
	switch {
	case wire.Code != jsonrpc.MethodNotFound:
		return ""
	case s.target.URL == nil || s.target.URL.Path == mcpPath:
		return "It does not know the first request of MCP: it is a server of something else."
	}
	return "It does not know the first request of MCP at this path. Over HTTP most servers of " +
		"MCP are at " + mcpPath + "."
}

// capabilityHint says how to give the server what it cannot do without.
func (s *mcpSession) capabilityHint(what string, wire *jsonrpc.Error) string {
	var data spec.MissingRequiredClientCapabilityData
	if err := jsonv2.Unmarshal(wire.Data, &data); err != nil {
		return ""
	}
	switch want := data.RequiredCapabilities; {
	case want.Sampling != nil:
		return "It asks for the answer of a model: give one with --sample TEXT."
	case want.Roots != nil:
		return "It asks for directories: show them with --root DIRECTORY."
	case want.Extensions[spec.ExtensionTasks] != nil:
		return fmt.Sprintf("It runs as a task only: '%s'.",
			commandLine("farcall mcp tasks", s.target, "start "+what+" --wait"))
	}
	return ""
}

// listHint names the command that lists the prompts or resources, when one was asked for
// in a way that the server does not accept.
func (s *mcpSession) listHint(method string, err error) string {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) ||
		wire.Code != jsonrpc.InvalidParams && wire.Code != spec.ResourceNotFound {
		return ""
	}
	switch method {
	case spec.MethodPromptsGet, spec.MethodCompletionComplete:
		return fmt.Sprintf("'%s' lists the prompts, with their arguments.",
			commandLine("farcall mcp prompts", s.target, ""))
	case spec.MethodResourcesRead:
		return fmt.Sprintf("'%s' lists the resources; there are templates, too.",
			commandLine("farcall mcp resources", s.target, ""))
	}
	return ""
}

// statusText is an HTTP status and, if it is meant for people, what came with it.
func statusText(e *mcphttp.StatusError) string {
	text := strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", e.Status, http.StatusText(e.Status)))
	if strings.HasPrefix(e.ContentType, "text/plain") {
		if line := firstLine(string(e.Body)); line != "" {
			text += ": " + shorten(line, 200)
		}
	}
	return text
}

func statusHint(t *target.Target, e *mcphttp.StatusError, err error) string {
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		switch {
		case pinned(err):
			return autoHint
		case t.URL.Path == mcpPath:
			return "Give the path that MCP is served at; with old servers it often is /sse."
		}
		return "Give the path that MCP is served at, for example " + t.URL.Scheme + "://" + t.URL.Host +
			mcpPath + "."
	case http.StatusUnauthorized, http.StatusForbidden:
		return loginHint(t, e.Status)
	}
	return ""
}

// isDialing reports whether an error comes from the making of a connection, and not
// from one that broke.
func isDialing(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// trace returns what shows messages in both directions, nil without -v.
func (m *mcpRemote) trace() io.Writer {
	if !m.verbose {
		return nil
	}
	return consoleLines{m.screen}
}

// consoleLines writes lines to a console, above what moves there.
type consoleLines struct{ *console }

func (c consoleLines) Write(p []byte) (int, error) {
	c.printf("%s", bytes.TrimSuffix(p, []byte("\n")))
	return len(p), nil
}
