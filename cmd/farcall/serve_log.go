package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
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
	logPayloads bool
	logRate     int
}

func (f *logFlags) registerLog(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.log, "log", "text", "`format` of the log on standard error: text, json or off")
	flags.BoolVar(&f.logPayloads, "log-payloads", false, "log the messages too, up to 16 KiB of each; they may hold secrets")
	flags.IntVar(&f.logRate, "log-rate", 1000, "`lines` of the log in a second, half of them at most for one caller; what is left out is counted; 0: no bound")
}

// newLogger makes the log that the flags ask for, or nil for none.
func (f *logFlags) newLogger(w io.Writer) (*slog.Logger, error) {
	if f.logRate < 0 {
		return nil, usagef("Use --log-rate 0 for no bound.", "--log-rate: %d is less than 0", f.logRate)
	}
	o := &slog.HandlerOptions{ReplaceAttr: clipAttr}
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

// recorder writes one record for each call and notification.
func recorder(log *slog.Logger, payloads bool) func(context.Context, farcall.Record) {
	if log == nil {
		return nil
	}
	return func(ctx context.Context, r farcall.Record) {
		attrs := make([]slog.Attr, 0, 15)
		if !r.ID.IsAbsent() {
			attrs = append(attrs, idAttr(r.ID.Raw()))
		}
		attrs = append(attrs,
			slog.String("method", clipped(r.Method, maxLogName)))
		if name := subject(r); name != "" {
			attrs = append(attrs, slog.String("name", name))
		}
		attrs = append(attrs,
			slog.Int("code", int(r.Code)),
			slog.Float64("latency_ms", float64(r.Latency.Microseconds())/1000),
			slog.Int("bytes_in", r.BytesIn),
			slog.Int("bytes_out", r.BytesOut),
			slog.String("transport", r.Transport),
			slog.String("conn", cmp.Or(r.Conn, owner.ConnFrom(ctx).Name)))
		if r.Batch {
			attrs = append(attrs, slog.Bool("batch", true))
		}
		if r.Err != nil {
			attrs = append(attrs, slog.String("error", r.Err.Error()))
		}
		if payloads {
			attrs = append(attrs, payload(payloadRequest, r.Request), payload(payloadResponse, r.Response))
		}
		level := recordLevel(r.Code)
		if r.Outgoing && r.Code == 0 {
			level = slog.LevelDebug // what handlers send is theirs to log
		}
		log.LogAttrs(ctx, level, recordMessage(r), attrs...)
	}
}

// maxSubject is how long a request may be to be looked into for its subject.
const maxSubject = 64 << 10

// subject is the tool, prompt or resource that a call of MCP is about.
func subject(r farcall.Record) string {
	switch r.Method {
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
	if len(r.Request) > maxSubject || jsonv2.Unmarshal(r.Request, &request) != nil {
		return ""
	}
	return clipped(cmp.Or(request.Params.Name, request.Params.URI), maxLogName)
}

// ofRequest names the transport and the connection of MCP over HTTP by the request: one handler serves
// it with and without TLS, because sessions belong to both.
func ofRequest(record func(context.Context, farcall.Record)) func(context.Context, farcall.Record) {
	if record == nil {
		return nil
	}
	return func(ctx context.Context, r farcall.Record) {
		if req := mcphttp.RequestFrom(ctx); req != nil {
			conn := owner.ConnFrom(req.Context())
			r.Conn = conn.Name
			if callerOf(ctx).IsZero() {
				ctx = context.WithValue(ctx, owner.ConnKey{}, &owner.Conn{Name: conn.Name, Owner: callerOf(req.Context())})
			}
			sse := req.URL.Path == "/messages"
			switch {
			case sse && req.TLS != nil:
				r.Transport = "sse+tls"
			case sse:
				r.Transport = "sse"
			case req.TLS != nil:
				r.Transport = "https"
			default:
				r.Transport = "http"
			}
		}
		record(ctx, r)
	}
}

func recordMessage(r farcall.Record) string {
	kind := "call"
	if r.Notification {
		kind = "notification"
	}
	if r.Outgoing {
		return "outgoing " + kind
	}
	return kind
}

// recordLevel is an error for what is this end's fault, a warning for what is
// the caller's.
func recordLevel(code jsonrpc.Code) slog.Level {
	switch code {
	case 0:
		return slog.LevelInfo
	case jsonrpc.InternalError:
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
