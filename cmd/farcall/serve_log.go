package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// maxPayload is how much of a message goes into the log with --log-payloads.
const maxPayload = 16 << 10

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
	level       slog.LevelVar // of the log; the API for operators sets it
}

func (f *logFlags) registerLog(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.log, "log", "text", "`format` of the log on standard error: text, json or off")
	flags.StringVar(&f.logLevel, "log-level", "info", "log from this `level` on: debug, info, warn or error; 'farcall admin log-level' sets it later")
	flags.BoolVar(&f.logPayloads, "log-payloads", false, "log the messages too, up to 16 KiB of each; they may hold secrets")
	flags.IntVar(&f.logRate, "log-rate", 1000, "`lines` of the log in a second, half of them at most for one caller; what is left out is counted; 0: no bound")
}

// newLogger makes the log that the flags ask for, or nil for none.
func (f *logFlags) newLogger(w io.Writer) (*slog.Logger, error) {
	if f.logRate < 0 {
		return nil, usagef("Use --log-rate 0 for no bound.", "--log-rate: %d is less than 0", f.logRate)
	}
	if f.logLevel != "" {
		if err := f.level.UnmarshalText([]byte(f.logLevel)); err != nil {
			return nil, usagef("Use debug, info, warn or error.", "--log-level: there is no level %q", f.logLevel)
		}
	}
	o := &slog.HandlerOptions{ReplaceAttr: clipAttr, Level: &f.level}
	switch f.log {
	case "text":
		return slog.New(newPaced(slog.NewTextHandler(w, o), f.logRate)), nil
	case "json":
		return slog.New(newPaced(slog.NewJSONHandler(w, o), f.logRate)), nil
	case "off":
		return nil, nil
	}
	return nil, usagef("Use --log text, --log json or --log off.", "there is no log format %q", f.log)
}

// callLog is an observer that writes one line for each call and notification. Nil: there is no log.
func callLog(log *slog.Logger, payloads bool) *observe.Observer {
	if log == nil {
		return nil
	}
	line := func(ctx context.Context, c *observe.Call) {
		level := callLevel(c)
		if c.Outgoing && c.BytesOut == 0 || !log.Enabled(ctx, level) {
			return // there was no message, or nothing that the log wants
		}
		at := placeOf(ctx, c)
		if callerOf(ctx).IsZero() && !at.owner.IsZero() {
			ctx = context.WithValue(ctx, owner.ConnKey{}, &owner.Conn{Name: at.conn, Owner: at.owner})
		}
		attrs := make([]slog.Attr, 0, 24)
		attrs = appendCall(attrs, c, at)
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
	attrs = append(attrs, slog.String("method", clipped(c.Method, maxLogName)))
	add("name", cmp.Or(c.Tool, c.Prompt, subject(c)))
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
		attrs = append(attrs, slog.String("trace_id", hex.EncodeToString(span.Trace[:])), slog.String("span_id", hex.EncodeToString(span.ID[:])))
	}
	if c.Err != nil {
		attrs = append(attrs, slog.String("error", c.Err.Error()))
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

// placeOf returns where a call came from. One handler serves MCP over HTTP with and without TLS, because sessions belong to
// both: there, the request says it.
func placeOf(ctx context.Context, c *observe.Call) place {
	conn := owner.ConnFrom(ctx)
	at := place{transport: c.Transport, conn: cmp.Or(c.Conn, conn.Name), address: conn.Remote, owner: conn.Owner}
	req := mcphttp.RequestFrom(ctx)
	if req == nil || c.Outgoing {
		return at
	}
	conn = owner.ConnFrom(req.Context())
	at.conn, at.owner, at.address = conn.Name, owner.Or(callerOf(req.Context()), conn.Owner), req.RemoteAddr
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

// callLevel is an error for what is this end's fault, a warning for what is the caller's. A call that a handler makes has its
// end in the line of the call that the handler is for.
func callLevel(c *observe.Call) slog.Level {
	switch {
	case c.Outgoing:
		return slog.LevelDebug
	case c.Code == 0:
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
