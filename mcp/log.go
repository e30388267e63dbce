package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// defaultLevel is the level of a session with a client that has not set one.
const defaultLevel = spec.LogInfo

// Log sends a message to the log of the client with a request that is being handled,
// when the client wants messages of that level: one of debug, info, notice,
// warning, error, critical, alert and emergency. logger may be empty; data is
// any value that marshals to JSON.
//
// Messages arrive in order, and before the result. Outside of a handler Log does
// nothing. It fails when the handler has returned, when the level or the data is not
// valid, and when the client is gone.
func Log(ctx context.Context, level, logger string, data any) error {
	severity := spec.LogSeverity(level)
	if severity < 0 {
		return fmt.Errorf("mcp: %q is no log level; use one of %s", level, strings.Join(spec.LogLevels(), ", "))
	}
	c := callFrom(ctx)
	switch {
	case c == nil:
		return nil
	case c.isOver():
		return errReturned
	case !c.logs(severity):
		return nil
	}
	raw, err := jsonv2.Append(nil, data)
	if err != nil {
		return fmt.Errorf("mcp: the data of a log message cannot be marshalled: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return errReturned
	}
	return c.notifyLocked(ctx, spec.NotificationMessage, spec.LoggingMessageNotificationParams{Level: level, Logger: logger, Data: raw})
}

var errReturned = errors.New("mcp: the handler has returned; what it logs or reports now belongs to no call, and is not sent")

// notifyLocked sends a notification that belongs to the request. The params are
// canonical.
func (c *call) notifyLocked(ctx context.Context, method string, params any) error {
	raw, err := jsonv2.Append(nil, params)
	if err != nil {
		return err
	}
	return notify(ctx, c.client, c.rev, method, raw)
}

// notify sends a notification to a client of a revision. The params are
// canonical. One that the revision does not have is not sent.
func notify(ctx context.Context, client farcall.Caller, rev *era.Revision, method string, params jsonrpc.Raw) error {
	params, err := era.Translate(era.Notification, method, params, era.Latest(), rev)
	if err != nil {
		return nil //nolint:nilerr // there is no way to say it in that revision
	}
	return client.Notify(ctx, method, params)
}

// setLevel serves logging/setLevel.
func (s *Server) setLevel(c *call) (answer, error) {
	var p spec.SetLevelParams
	if err := jsonv2.Unmarshal(c.params, &p); err != nil || spec.LogSeverity(p.Level) < 0 {
		return answer{}, invalidParams("the level must be one of %s", strings.Join(spec.LogLevels(), ", "))
	}
	return emptyAnswer(), c.session.setLevel(p.Level)
}

// Progress tells the client with a request that is being handled how far it has come:
// done of total, 0 when the total is not known. done must grow from one report
// to the next. message may be empty.
//
// Reports arrive in order, and before the result. In a task the message, or else
// the numbers, become the statusMessage, which clients ask for or are notified of;
// a client of 2025-11-25 that asked for progress also gets each report. Progress
// does nothing outside of a handler, and for a client that did not ask for progress.
// It fails when the handler has returned, and when the client is gone.
func Progress(ctx context.Context, done, total float64, message string) error {
	c := callFrom(ctx)
	if c == nil {
		return nil
	}
	p := spec.ProgressNotificationParams{Progress: done, Message: message}
	if total != 0 {
		p.Total = &total
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over { // basic/patterns/progress: MUST stop; the token is another call's by now
		return errReturned
	}
	if c.task.started() {
		c.task.report(statusMessage(&p))
	}
	if p.ProgressToken = c.progressToken(); p.ProgressToken == nil {
		return nil
	}
	return c.notifyLocked(ctx, spec.NotificationProgress, p)
}

// progressToken returns what the progress of the call has to name, or nil when
// there is no way to report it. In the legacy era it is valid for as long as the
// task lives (2025-11-25 basic/utilities/tasks, "Task Progress"); c.mu is held.
func (c *call) progressToken() jsonrpc.Raw {
	if c.rev.TasksExtension && c.task.started() {
		return nil
	}
	return c.in.progressToken()
}

// statusMessage says in words how far a task has come.
func statusMessage(p *spec.ProgressNotificationParams) string {
	switch {
	case p.Message != "":
		return p.Message
	case p.Total != nil:
		return fmt.Sprintf("%v of %v", p.Progress, *p.Total)
	}
	return fmt.Sprint(p.Progress)
}

// isToken reports whether raw can be a progressToken: a string or an integer.
func isToken(raw jsonrpc.Raw) bool {
	switch {
	case len(raw) == 0:
		return false
	case raw[0] == '"':
		return true
	}
	return (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') && !bytes.ContainsAny(raw, ".eE")
}
