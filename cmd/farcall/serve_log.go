package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/observe/logs"
)

// maxPayload is how much of a message goes into the log with --log-payloads.
const maxPayload = 16 << 10

// logOff is the format of no log on standard error.
const logOff = "off"

const (
	payloadRequest  = "request"
	payloadResponse = "response"
)

// logFlags are the flags of the log.
type logFlags struct {
	log         string
	logLevel    string
	logPayloads bool
	logRate     int
	exported    *logs.Exporter // nil: the environment does not ask for it
	levels      *levels.Levels // of the log; the API for operators sets them
	fileLevels  string         // those of the configuration, as they were last applied
}

func (f *logFlags) registerLog(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.log, "log-format", "text",
		"`format` of the log on standard error: text, json or off")
	flags.StringVar(&f.log, "log", "text", "`format` of the log: --log-format")
	_ = flags.MarkHidden("log") // it is there: the flag has been called so
	flags.StringVar(&f.logLevel, "log-level", "",
		"log from this `level` on: debug, info, warn or error; info,guard=debug gives a component its "+
			"own; 'farcall admin log-level' sets them later (default info)")
	flags.BoolVar(&f.logPayloads, "log-payloads", false,
		"log the messages too, up to 16 KiB of each; they may hold secrets")
	flags.IntVar(&f.logRate, "log-rate", 1000,
		"`lines` of the log in a second, half of them at most for one caller; what is left out is "+
			"counted; 0: no bound")
}

// newLogger makes the log that the flags ask for, or nil for none.
func (f *logFlags) newLogger(ctx context.Context, w io.Writer) (*slog.Logger, error) {
	if f.logRate < 0 {
		return nil, usagef("Use --log-rate 0 for no bound.", "--log-rate: %d is less than 0", f.logRate)
	}
	f.levels = levels.New(levels.Standard()...)
	if f.logLevel != "" {
		if e, ok := errors.AsType[*levels.Error](f.levels.Set(f.logLevel)); ok {
			return nil, usagef("Use "+strings.Join(e.Candidates, ", ")+".", "--log-level: there is no %s %q",
				e.What, e.Name)
		}
	}
	o := &slog.HandlerOptions{ReplaceAttr: clipAttr, Level: slog.LevelDebug}
	var h slog.Handler
	switch f.log {
	case "text":
		h = slog.NewTextHandler(w, o)
	case "json":
		h = slog.NewJSONHandler(w, o)
	case logOff:
	default:
		return nil, usagef("Use --log-format text, json or off.", "there is no log format %q", f.log)
	}
	var err error
	if f.exported, err = logs.FromEnvironment(ctx, &logs.Options{Version: versionName()}); err != nil {
		return nil, usagef(
			"The variables are those of OpenTelemetry; OTEL_LOGS_EXPORTER=none sends no lines.", "%w", err)
	}
	switch {
	case h == nil && f.exported == nil:
		return nil, nil
	case h == nil:
		h = f.exported.Handler()
	case f.exported != nil:
		f.exported.Warn(slog.New(f.levels.Handler(h)).With(levels.Key, "trace"))
		h = slog.NewMultiHandler(h, f.exported.Handler())
	}
	return slog.New(f.levels.Handler(newPaced(h, f.logRate))), nil
}

// setLevels applies the levels of a configuration, which was checked, when they differ from those
// that it had. Those of the flag come before them.
func (f *logFlags) setLevels(c *gateway.Config) {
	if text := c.LogLevels(); f.logLevel == "" && text != f.fileLevels {
		_ = f.levels.Replace(cmp.Or(text, "info"))
		f.fileLevels = text
	}
}

// callLog is an observer that writes one line for each call and notification. Nil: there is no log.
func callLog(log *slog.Logger, payloads bool) *observe.Observer {
	if log == nil {
		return nil
	}
	log = log.With(levels.Key, "call")
	pid := slog.Int("pid", os.Getpid())
	line := func(ctx context.Context, c *observe.Call) {
		level := callLevel(c)
		if c.Outgoing && c.BytesOut == 0 || !log.Enabled(ctx, level) {
			return // there was no message, or the log does not want it
		}
		at := placeOf(ctx, c)
		if callerOf(ctx).IsZero() && !at.owner.IsZero() {
			ctx = context.WithValue(ctx, owner.ConnKey{}, &owner.Conn{Name: at.conn, Owner: at.owner})
		}
		attrs := make([]slog.Attr, 0, 24)
		attrs = append(appendCall(attrs, c, at), pid)
		if payloads {
			attrs = append(attrs, payload(payloadRequest, c.Request), payload(payloadResponse, c.Response))
		}
		log.LogAttrs(ctx, level, callMessage(c), attrs...)
	}
	return &observe.Observer{End: line, Refuse: line, Messages: payloads, Traces: true}
}

// appendCall appends what is known of a call.
func appendCall(attrs []slog.Attr, c *observe.Call, at place) []slog.Attr {
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, clipped(value, maxLogName)))
		}
	}
	if !c.ID.IsAbsent() {
		attrs = append(attrs, idAttr(c.ID.Raw()))
	}
	method, name := c.Method, cmp.Or(c.Tool, c.Prompt)
	if !c.Known {
		method = audit.MaskText(method)
	}
	if name == "" {
		name = audit.MaskText(subject(c)) // the caller has chosen it
	}
	attrs = append(attrs, slog.String("method", clipped(method, maxLogName)))
	add("name", name)
	add("upstream", c.Upstream)
	attrs = append(attrs,
		slog.Int("code", int(c.Code)),
		slog.String("outcome", outcomeOf(c)),
		slog.Float64("latency_ms", milliseconds(c.Took)),
		slog.Int("bytes_in", c.BytesIn),
		slog.Int("bytes_out", c.BytesOut),
		slog.String("transport", at.transport),
		slog.String("conn", at.conn))
	add("address", at.address)
	add("revision", c.Revision)
	if c.UpstreamRevision != c.Revision {
		add("upstream_revision", c.UpstreamRevision)
	}
	add("session", c.Session)
	add("client", strings.TrimSpace(c.ClientName+" "+c.ClientVersion))
	add("principal", c.Principal)
	add("decision", c.Decision)
	if c.Queued > 0 {
		attrs = append(attrs, slog.Float64("queued_ms", milliseconds(c.Queued)))
	}
	if c.Attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", c.Attempts))
	}
	if c.Batch {
		attrs = append(attrs, slog.Bool("batch", true))
	}
	if span := cmp.Or(c.Span, c.Caller); span != (observe.Span{}) {
		attrs = append(attrs, slog.String("trace_id", hex.EncodeToString(span.Trace[:])),
			slog.String("span_id", hex.EncodeToString(span.ID[:])))
	}
	if c.Err != nil {
		attrs = append(attrs, slog.String("error", audit.MaskText(c.Err.Error())))
	}
	return attrs
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// outcomeOf says in a word how a call has ended.
func outcomeOf(c *observe.Call) string {
	switch {
	case c.Code != 0:
		return "error"
	case c.ToolError:
		return "tool_error"
	}
	return "ok"
}

// maxSubject is how long a request may be to be looked into for its subject.
const maxSubject = 64 << 10

// subject is the tool, prompt or resource that a call of MCP is about.
func subject(c *observe.Call) string {
	switch c.Method {
	case spec.MethodToolsCall, spec.MethodPromptsGet, spec.MethodResourcesRead:
	default:
		return ""
	}
	var request struct {
		Params struct {
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"params"`
	}
	if len(c.Request) > maxSubject || jsonv2.Unmarshal(c.Request, &request) != nil {
		return ""
	}
	return cmp.Or(request.Params.Name, request.Params.URI)
}

// place is where a call came from.
type place struct {
	transport, conn, address string
	owner                    owner.Key // of the connection
}

// placeOf returns where a call came from. One handler serves MCP over HTTP with and without TLS,
// because sessions belong to both: there, the request says it.
func placeOf(ctx context.Context, c *observe.Call) place {
	conn := owner.ConnFrom(ctx)
	at := place{
		transport: c.Transport, conn: cmp.Or(c.Conn, conn.Name), address: conn.Remote,
		owner: conn.Owner,
	}
	req := mcphttp.RequestFrom(ctx)
	if req == nil || c.Outgoing {
		return at
	}
	conn = owner.ConnFrom(req.Context())
	at.conn, at.owner, at.address = conn.Name, owner.Or(callerOf(req.Context()), conn.Owner),
		req.RemoteAddr
	sse := req.URL.Path == "/messages"
	switch {
	case sse && req.TLS != nil:
		at.transport = "sse+tls"
	case sse:
		at.transport = "sse"
	case req.TLS != nil:
		at.transport = "https"
	default:
		at.transport = "http"
	}
	return at
}

func callMessage(c *observe.Call) string {
	kind := "call"
	if c.Notification {
		kind = "notification"
	}
	if c.Outgoing {
		return "outgoing " + kind
	}
	return kind
}

// callLevel is an error for what is this end's fault, a warning for what is the caller's. A caller
// that cancels its call, or leaves, does nothing wrong; a server that says of a call that it was
// cancelled, when the caller has not, does. A call that a handler makes has its end in the line of
// the call that the handler is for.
func callLevel(c *observe.Call) slog.Level {
	switch {
	case c.Outgoing:
		return slog.LevelDebug
	case c.Code == 0, c.Code == jsonrpc.Cancelled && errors.Is(c.Err, context.Canceled):
		return slog.LevelInfo
	case c.Code == jsonrpc.InternalError:
		return slog.LevelError
	default:
		return slog.LevelWarn
	}
}

// idAttr is an id in the log: one that is too long is a text.
func idAttr(id jsonrpc.Raw) slog.Attr {
	if len(id) > maxLogName {
		return slog.String("id", clipped(string(id), maxLogName))
	}
	return slog.Any("id", rawID(id))
}

// rawID is an id in the log: JSON where the log is JSON.
type rawID jsonrpc.Raw

// MarshalJSON is for the log in JSON.
func (id rawID) MarshalJSON() ([]byte, error) { return id, nil }

// MarshalText is for the log as text, which prints bytes as Go source otherwise.
func (id rawID) MarshalText() ([]byte, error) { return id, nil }

// payload is a message as it was on the wire: as text, because it need not be
// valid JSON.
func payload(name string, raw jsonrpc.Raw) slog.Attr {
	if len(raw) > maxPayload {
		return slog.String(name, fmt.Sprintf("%s… (%d bytes in all)", raw[:maxPayload], len(raw)))
	}
	return slog.String(name, string(raw))
}

// orDiscard returns a log, one that takes nothing for nil.
func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}

// lockedWriter lets the log and the ready lines share standard error.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

const (
	// maxLogName bounds what callers name in the log, in characters, and maxLogText every other text.
	maxLogName = 200
	maxLogText = 2000
)

// clipped bounds a text in the log, and says how much of it is missing.
func clipped(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := 0
	for range most {
		if at == len(text) {
			return text
		}
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	if at == len(text) {
		return text
	}
	return fmt.Sprintf("%s… (%d more bytes)", text[:at], len(text)-at)
}

// clipAttr bounds the texts of a record, but messages that were asked for, which are bounded
// themselves, and stacks.
func clipAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case payloadRequest, payloadResponse, "stack":
		return a
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(clipped(a.Value.String(), maxLogText))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(clipped(err.Error(), maxLogText))
		}
	}
	return a
}

// callerOf returns who has caused a line of the log; zero: farcall itself, or it is not known.
func callerOf(ctx context.Context) owner.Key {
	return owner.Or(owner.From(ctx), owner.ConnFrom(ctx).Owner)
}

// A paced handler bounds the lines of each second. Callers share them: each has at most as many as
// are left. Lines that no caller is known for are counted apart, so that callers do not silence
// farcall.
type paced struct {
	slog.Handler

	p *pace
}

type pace struct {
	out  slog.Handler // for the line about those left out
	most int

	mu      sync.Mutex
	began   time.Time // of this second
	callers *share.Ledger
	own     int
	left    int // out, since the last line about that
	timer   *time.Timer
}

// newPaced bounds the lines of a second; 0 bounds none.
func newPaced(h slog.Handler, most int) slog.Handler {
	if most == 0 {
		return h
	}
	return &paced{h, &pace{out: h, most: most}}
}

// Handle implements slog.Handler.
func (h *paced) Handle(ctx context.Context, r slog.Record) error {
	if !h.p.take(callerOf(ctx), r.Time) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *paced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &paced{h.Handler.WithAttrs(attrs), h.p}
}

// WithGroup implements slog.Handler.
func (h *paced) WithGroup(name string) slog.Handler {
	return &paced{h.Handler.WithGroup(name), h.p}
}

// take reports whether there is room for a line.
func (p *pace) take(o owner.Key, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.began); since >= time.Second || since < -time.Second {
		p.tellLocked()
		p.began, p.own, p.callers = now, 0, share.NewLedger(share.Bounds{Total: p.most})
	}
	if o.IsZero() && p.own < p.most {
		p.own++
		return true
	}
	if !o.IsZero() && p.callers.Take(o, 1) {
		return true
	}
	if p.left++; p.timer == nil {
		p.timer = time.AfterFunc(time.Second, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.tellLocked()
		})
	}
	return false
}

// tellLocked writes how many lines were left out.
func (p *pace) tellLocked() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.left == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn,
		"lines of the log were left out: there were too many in a second", 0)
	r.AddAttrs(slog.Int("lines", p.left))
	p.left = 0
	_ = p.out.Handle(context.Background(), r) //nolint:forbidigo // the line is of no call
}
