package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A Session is a session of a client of a revision that has sessions: see [Request.Session] and
// [Server.Sessions]. It may be kept after the request, for what is sent from the background. Its
// methods may be called by any goroutine.
type Session struct{ x *session }

var (
	errNotReady = errors.New(
		"mcp: the client has not said that it is initialized; send from OnSessionInitialized on")
	errOfCall = errors.New("mcp: the notification belongs to a call; use Progress in its handler")
)

// Sessions returns the sessions that have begun and not ended in this process. Those that begin or
// end meanwhile may be among them.
func (s *Server) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		s.listeners.mu.Lock()
		all := make([]*Session, 0, len(s.listeners.sessions))
		for x := range s.listeners.sessions {
			all = append(all, &x.public)
		}
		s.listeners.mu.Unlock()
		// One that has ended may still be in the table.
		all = slices.DeleteFunc(all, func(s *Session) bool { return s.x.hasEnded() })
		slices.Values(all)(yield)
	}
}

// ID returns ClientInfo.Session, which names the session. That of a nil *Session is "".
func (s *Session) ID() string {
	if s == nil {
		return ""
	}
	return s.x.name
}

// Client says who the client is. It has no ProgressWanted, which is of a request.
func (s *Session) Client() *ClientInfo {
	i := s.x.who.Load().describe(s.x.rev.Load())
	i.Session, i.LogLevel = s.x.name, s.x.level()
	return &i
}

// End ends the session. Its calls are cancelled. A client over HTTP gets status 404 for its next
// request, and begins a new session; any other connection is closed. It is not for a handler of the
// session itself, because it may wait for its end.
func (s *Session) End(ctx context.Context) {
	switch c := s.x.client.(type) {
	case interface{ End(ctx context.Context) }:
		c.End(ctx)
	case io.Closer:
		_ = c.Close() // its error is about handlers that do not end
	}
}

// Done returns a channel that is closed when the session ends.
func (s *Session) Done() <-chan struct{} {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if s.x.done == nil {
		s.x.done = make(chan struct{})
		if s.x.closed {
			close(s.x.done)
		}
	}
	return s.x.done
}

// Notify sends a notification. The params marshal to an object in the form of the newest revision,
// or are nil. One that the revision of the client does not have is not sent.
//
// It fails before the client is initialized, when the session has ended, when the client cannot be
// reached, and for notifications that belong to a call.
func (s *Session) Notify(ctx context.Context, method string, params any) error {
	if handledBelow(method) {
		return errOfCall
	}
	raw, err := objectOf(params)
	if err != nil {
		return fmt.Errorf("mcp: notify %q: %w", method, err)
	}
	x := s.x
	if !x.hold() {
		return errSessionEnded
	}
	defer x.release()
	x.mu.Lock()
	ready, closed := x.ready, x.closed
	x.mu.Unlock()
	switch {
	case closed:
		return errSessionEnded
	case !ready:
		return errNotReady
	}
	return notify(ctx, x.client, x.rev.Load(), method, raw)
}

// Log sends a message to the log of the client, as the function [Log] does, without a request.
func (s *Session) Log(ctx context.Context, level, logger string, data any) error {
	severity := spec.LogSeverity(level)
	if severity < 0 {
		return fmt.Errorf("mcp: %q is no log level; use one of %s", level,
			strings.Join(spec.LogLevels(), ", "))
	}
	if severity < spec.LogSeverity(s.x.level()) {
		return nil
	}
	raw, err := jsonv2.Append(nil, data)
	if err != nil {
		return fmt.Errorf("mcp: the data of a log message cannot be marshalled: %w", err)
	}
	return s.Notify(ctx, spec.NotificationMessage,
		spec.LoggingMessageNotificationParams{Level: level, Logger: logger, Data: raw})
}

// URLDone tells the client that the user has done what [ElicitURL] asked for at the URL, where the
// revision has such a notification (2025-11-25); it does nothing in others. Questions with the same
// URL have the same id, so each should have its own URL. The server of the page calls it, so that
// the client need not ask the user.
func (s *Session) URLDone(ctx context.Context, url string) error {
	return s.Notify(ctx, spec.NotificationElicitationComplete,
		spec.ElicitationCompleteNotificationParams{ElicitationID: elicitationID(url)})
}

// elicitationID returns the id of the elicitation that asks to visit a URL.
func elicitationID(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:16])
}

// begins calls the hook for the session that initialize has begun.
func (x *session) begins(c *call) {
	if h := x.srv.opts.OnSessionBegan; h != nil {
		h(c, &x.public)
	}
	x.mu.Lock()
	x.began = true
	ready := x.ready
	x.mu.Unlock()
	if ready { // a client that does not wait for the answer
		x.initialized(c)
	}
}

// initialized calls the hook. The client has said that it is.
func (x *session) initialized(ctx context.Context) {
	if h := x.srv.opts.OnSessionInitialized; h != nil {
		h(ctx, &x.public)
	}
}

// ended calls the hook when nothing of the session runs any more.
func (x *session) ended() {
	x.mu.Lock()
	began := x.began
	x.mu.Unlock()
	if h := x.srv.opts.OnSessionEnded; h != nil && began {
		x.srv.contain("OnSessionEnded", func() { h(&x.public) })
	}
}

// contain calls a hook and logs its panic: it runs in a goroutine that others need.
func (s *Server) contain(hook string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.logger().Error("mcp: a hook has panicked", "hook", hook, "panic", fmt.Sprint(p))
		}
	}()
	f()
}

// withElicitationID returns the params of an elicitation of the mode url with an id: that of the
// question, if it has one.
func withElicitationID(params, asked jsonrpc.Raw) jsonrpc.Raw {
	if scan.Member(asked, "elicitationId") != nil {
		return params
	}
	url := string(scan.Unquote(scan.Member(params, "url")))
	return object.With(params, "elicitationId", scan.AppendQuoted(nil, elicitationID(url)))
}

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
		return fmt.Errorf("mcp: %q is no log level; use one of %s", level,
			strings.Join(spec.LogLevels(), ", "))
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
	return c.notifyLocked(ctx, spec.NotificationMessage,
		spec.LoggingMessageNotificationParams{Level: level, Logger: logger, Data: raw})
}

var errReturned = errors.New(
	"mcp: the handler has returned; what it logs or reports now belongs to no call, and is not sent")

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
func notify(
	ctx context.Context, client farcall.Caller, rev *era.Revision, method string, params jsonrpc.Raw,
) error {
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
		return answer{}, invalidParams("the level must be one of %s",
			strings.Join(spec.LogLevels(), ", "))
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

const (
	// maxSessionValues bounds the bytes of the values of one session, with their keys.
	maxSessionValues = 64 << 10
	// valuesPrefix begins the id of the record with the values of a session, which no task has.
	valuesPrefix = "session-values "
	// levelKey is the key of the level of the log, beside those of SetValue.
	levelKey = "\x00log level"
	// levelAge is how old the level may be that a session logs from: messages are many, and a level
	// is seldom set.
	levelAge = time.Second
	// maxValuesAge bounds how long the values of sessions without an end are stored, from the last
	// change on.
	maxValuesAge = 10 * 365 * 24 * time.Hour
	// swaps is how often a change is made again because another one was first.
	swaps = 100
)

var errManyValues = fmt.Errorf(
	"mcp: the values of one session have %d bytes at most, with their keys", maxSessionValues)

// SetValue keeps a value under a key for the session, as JSON. A nil value removes what is there.
// The values of a session have 64 KB at most, with their keys.
//
// They last as long as the session does in this process. The id of a session that is sealed for all
// replicas does not have them: with ServerOptions.Sessions they are in that store, and each replica
// that shares it sees them at once; different keys may be set at several replicas at a time, and of
// one key the last value stays. Without it, another replica does not see them, and neither does
// this one after it was idle for mcphttp.Options.IdleTimeout. So they suit what can be made again.
//
// It fails when the session has ended, when there is no more room, and when the store does.
func (s *Session) SetValue(key string, value any) error {
	var raw jsonrpc.Raw
	if value != nil {
		var err error
		if raw, err = jsonv2.Append(nil, value); err != nil {
			return fmt.Errorf("mcp: the value %q of a session cannot be marshalled: %w", key, err)
		}
	}
	x := s.x
	if stored := x.storedValues(); stored != nil {
		if x.hasEnded() {
			return errSessionEnded
		}
		return stored.set(key, raw)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return errSessionEnded
	}
	return setValue(&x.values, key, raw)
}

// Value stores the value of a key in what v points to, and reports whether there is one.
func (s *Session) Value(key string, v any) (ok bool, err error) {
	var raw jsonrpc.Raw
	if stored := s.x.storedValues(); stored != nil {
		values, _, err := stored.get(storeTimeout)
		if err != nil {
			return false, err
		}
		raw, ok = values[key]
	} else {
		s.x.mu.Lock()
		raw, ok = s.x.values[key]
		s.x.mu.Unlock()
	}
	if !ok {
		return false, nil
	}
	return true, jsonv2.Unmarshal(raw, v)
}

// setValue sets a value, or removes it where it is nil.
func setValue(values *map[string]jsonrpc.Raw, key string, raw jsonrpc.Raw) error {
	size := len(key) + len(raw)
	for k, v := range *values {
		if k != key {
			size += len(k) + len(v)
		}
	}
	switch {
	case raw == nil:
		delete(*values, key)
		return nil
	case size > maxSessionValues:
		return errManyValues
	case *values == nil:
		*values = map[string]jsonrpc.Raw{}
	}
	(*values)[key] = raw
	return nil
}

// storedValues are the values of a session that outlives the process: one record, an object of
// JSON.
type storedValues struct {
	records          store.Records
	owner, group, id string
	until            time.Time
}

// storedValues returns where the values of the session are stored. Nil: in memory.
func (x *session) storedValues() *storedValues {
	sealed, ok := x.client.(interface {
		Sealed() (id string, until time.Time)
	})
	if !ok || x.srv.opts.Sessions == nil {
		return nil
	}
	id, until := sealed.Sealed()
	if id == "" {
		return nil
	}
	if most := time.Now().Add(maxValuesAge); until.After(most) {
		until = most
	}
	v := &storedValues{
		records: x.srv.opts.Sessions, owner: x.owner.Text(), id: valuesPrefix + id,
		until: until,
	}
	if g := x.owner.Group(); g != x.owner {
		v.group = g.Text()
	}
	return v
}

// get returns the values and the version of their record, which are both none where there is no
// record. within: how long the store may take.
func (v *storedValues) get(
	within time.Duration,
) (values map[string]jsonrpc.Raw, version uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within) //nolint:forbidigo // as storing
	defer cancel()
	r, err := v.records.Get(ctx, v.owner, v.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, 0, nil
	case err == nil:
		if err = jsonv2.Unmarshal(r.Value, &values); err == nil {
			return maps.Clone(values), r.Version, nil
		}
	}
	return nil, 0, fmt.Errorf("mcp: the values of a session cannot be read: %w", err)
}

// set sets a value, whatever other replicas set at the same time.
func (v *storedValues) set(key string, raw jsonrpc.Raw) error {
	for range swaps {
		values, version, err := v.get(storeTimeout)
		if err == nil {
			err = setValue(&values, key, raw)
		}
		if err != nil {
			return err
		}
		switch err = v.put(values, version); {
		case errors.Is(err, store.ErrConflict):
		case err != nil:
			return fmt.Errorf("mcp: the values of a session cannot be stored: %w", err)
		default:
			return nil
		}
	}
	return fmt.Errorf(
		"mcp: the values of a session cannot be stored: %d others were stored meanwhile: %w", swaps,
		store.ErrConflict)
}

func (v *storedValues) put(values map[string]jsonrpc.Raw, version uint64) error {
	ctx, cancel := storing()
	defer cancel()
	if len(values) == 0 {
		values = map[string]jsonrpc.Raw{} // the record stays, so that its version goes on
	}
	text, err := jsonv2.Append(nil, values)
	if err == nil {
		_, err = v.records.Put(ctx,
			&store.Record{
				Owner: v.owner, Group: v.group, ID: v.id, Version: version, Expires: v.until,
				Value: text,
			})
	}
	return err
}

// Discard removes what is stored of a session that its client has ended: see mcphttp.Handler.
func (x *session) Discard(ctx context.Context) {
	x.srv.discardTasks(x.owner)
	v := x.storedValues()
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := v.records.Delete(ctx, v.owner, v.id); err != nil {
		x.srv.logger().Error("mcp: the values of a session stay in the store until it expires",
			"error", err)
	}
}

// setLevel sets the level of the log, at all replicas that share the values of sessions.
func (x *session) setLevel(level string) error {
	if v := x.storedValues(); v != nil {
		raw, err := jsonv2.Append(nil, level)
		if err == nil {
			err = v.set(levelKey, raw)
		}
		if err != nil {
			return err
		}
	}
	x.log.Store(&logLevel{level, time.Now()})
	return nil
}

// readLevel reads the level that another replica may have set. When the store does not answer, the
// level stays.
func (x *session) readLevel() {
	if x.srv.opts.Sessions == nil {
		return
	}
	last, next := x.log.Load(), logLevel{defaultLevel, time.Now()}
	if last != nil {
		if next.level = last.level; next.read.Sub(last.read) < levelAge {
			return
		}
	}
	v := x.storedValues()
	if v == nil {
		return
	}
	values, _, err := v.get(levelAge)
	next.read = time.Now() // a store that is slow is not asked for each message
	if err != nil {
		x.srv.logger().Warn("mcp: the level of a client's log may be older than that of another replica",
			"error", err)
	}
	var level string
	if jsonv2.Unmarshal(values[levelKey], &level) == nil && spec.LogSeverity(level) >= 0 {
		next.level = level
	}
	x.log.CompareAndSwap(last, &next) // setLevel may have been called meanwhile
}
