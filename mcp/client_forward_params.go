package mcp

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// paramsFor returns the params for the server of a link.
func (w *forwarding) paramsFor(l *link) (jsonrpc.Raw, error) {
	params, err := era.Translate(era.Params, w.Method, w.params, w.rev, l.rev)
	if err != nil {
		return nil, err
	}
	w.task = false
	meta := metaIn(params, l.rev)
	if l.rev.RequestMeta {
		if meta.complete && (w.OnProgress != nil || !meta.token) && (w.LogLevel == "" || meta.level) {
			return params, nil
		}
		if !meta.there {
			return w.withCallers(params, l.rev)
		}
		return w.withMeta(params, l.rev)
	}
	params, add := w.taskFor(l, params)
	if !add && (w.OnProgress != nil || !meta.token) {
		return params, nil
	}
	out := withoutToken(params)
	if add {
		out.Add("task", jsonrpc.Raw("{}"))
	}
	return out.End(), nil
}

// taskFor decides whether a tool is called as a task at a legacy server, and
// whether the params are still to say so.
func (w *forwarding) taskFor(l *link, params jsonrpc.Raw) (_ jsonrpc.Raw, add bool) {
	if w.Method != spec.MethodToolsCall {
		return params, false
	}
	said := scan.Member(params, "task") != nil
	if said && w.rev.TasksExtension {
		params, said = object.New(params, "task").End(), false // it means nothing there
	}
	if l.callsTasks() {
		add = w.asTask && !said
		w.task = w.asTask || said
	}
	return params, add
}

// givenMeta says what is in the _meta of params.
type givenMeta struct {
	there    bool
	complete bool // all that a request in the revision must have
	level    bool // a log level
	token    bool // a progressToken
}

func metaIn(params jsonrpc.Raw, rev *era.Revision) (found givenMeta) {
	version, info, capabilities := false, false, false
	for key, meta := range scan.Members(params) {
		if string(key) != "_meta" {
			continue
		}
		found.there = true
		for key, value := range scan.Members(meta) {
			switch string(key) {
			case spec.MetaProtocolVersion:
				version = string(value[1:max(len(value)-1, 1)]) == rev.Name
			case spec.MetaClientInfo:
				info = true
			case spec.MetaClientCapabilities:
				capabilities = true
			case spec.MetaLogLevel:
				found.level = true
			case spec.MetaProgressToken:
				found.token = true
			}
		}
	}
	found.complete = version && info && capabilities
	return found
}

// withoutToken returns params, without their end, that have no progressToken: that
// of another connection means nothing in this one.
func withoutToken(params jsonrpc.Raw) *object.Builder {
	out := object.New(params, "_meta")
	for key, meta := range scan.Members(params) {
		if string(key) == "_meta" {
			if kept := object.New(meta, spec.MetaProgressToken); len(*kept) > 1 {
				out.Add("_meta", kept.End())
			}
		}
	}
	return out
}

// withMeta returns params with all that their _meta must have in a modern
// revision. What is there counts, except for the revision.
func (w *forwarding) withMeta(params jsonrpc.Raw, rev *era.Revision) (jsonrpc.Raw, error) {
	own, err := w.c.requestMeta(rev)
	if err != nil {
		return nil, err
	}
	meta := object.New(nil)
	info, capabilities, level := false, false, false
	for key, given := range scan.Members(params) {
		if string(key) != "_meta" {
			continue
		}
		for key, value := range scan.Members(given) {
			switch string(key) {
			case spec.MetaProtocolVersion, spec.MetaProgressToken:
				continue
			case spec.MetaClientInfo:
				info = true
			case spec.MetaClientCapabilities:
				capabilities = true
			case spec.MetaLogLevel:
				level = true
			}
			meta.Add(string(key), value)
		}
	}
	meta.Add(spec.MetaProtocolVersion, scan.Member(own, spec.MetaProtocolVersion))
	if !info {
		meta.Add(spec.MetaClientInfo, orElse(w.Info, scan.Member(own, spec.MetaClientInfo)))
	}
	if !capabilities {
		meta.Add(spec.MetaClientCapabilities,
			orElse(withTasks(w.Capabilities), scan.Member(own, spec.MetaClientCapabilities)))
	}
	if !level && w.LogLevel != "" {
		meta.Add(spec.MetaLogLevel, jsonrpc.AppendString(nil, w.LogLevel))
	}
	all := object.New(params, "_meta")
	all.Add("_meta", meta.End())
	return all.End(), nil
}

// withCallers returns params that have no _meta with the one of the caller.
func (w *forwarding) withCallers(params jsonrpc.Raw, rev *era.Revision) (jsonrpc.Raw, error) {
	meta := w.c.callers.find(w.Forward, rev)
	if meta == nil {
		made, err := w.withMeta(nil, rev)
		if err != nil {
			return nil, err
		}
		meta = scan.Member(made, "_meta")
		w.c.callers.keep(w.Forward, rev, meta)
	}
	const name = `"_meta":`
	out := append(make([]byte, 0, len(params)+len(name)+len(meta)+len("{,}")), '{')
	if i := scan.Space(params, 0); i < len(params) && params[i] == '{' {
		members := bytes.TrimSuffix(bytes.TrimRight(params[i+1:], " \t\r\n"), []byte("}"))
		if scan.Space(members, 0) < len(members) {
			out = append(append(out, members...), ',')
		}
	}
	return append(append(append(out, name...), meta...), '}'), nil
}

// callers remembers the _meta of those who have called last: it is the same in
// each of their calls.
type callers struct {
	mu  sync.Mutex
	all []*callersMeta // the one that was used last is the first
}

type callersMeta struct {
	rev                *era.Revision
	info, capabilities jsonrpc.Raw
	level              string
	raw                jsonrpc.Raw // not to be changed
}

const maxCallers = 16

func (k *callers) find(f *relay.Forward, rev *era.Revision) jsonrpc.Raw {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, m := range k.all {
		if m.rev == rev && m.level == f.LogLevel && bytes.Equal(m.info, f.Info) &&
			bytes.Equal(m.capabilities, f.Capabilities) {
			copy(k.all[1:i+1], k.all[:i])
			k.all[0] = m
			return m.raw
		}
	}
	return nil
}

func (k *callers) keep(f *relay.Forward, rev *era.Revision, raw jsonrpc.Raw) {
	if len(raw) > maxRemembered {
		return
	}
	m := &callersMeta{
		rev: rev, info: slices.Clone(f.Info), capabilities: slices.Clone(f.Capabilities),
		level: f.LogLevel, raw: raw,
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) == maxCallers {
		k.all = k.all[:maxCallers-1]
	}
	k.all = slices.Insert(k.all, 0, m)
}

func orElse(raw, other jsonrpc.Raw) jsonrpc.Raw {
	if raw == nil {
		return other
	}
	return raw
}

// withTasks adds to capabilities that the server may make tasks: Forward waits for
// them.
func withTasks(capabilities jsonrpc.Raw) jsonrpc.Raw {
	extensions := scan.Member(capabilities, "extensions")
	if capabilities == nil || scan.Member(extensions, spec.ExtensionTasks) != nil {
		return capabilities
	}
	more := object.New(extensions)
	more.Add(spec.ExtensionTasks, jsonrpc.Raw("{}"))
	return object.With(capabilities, "extensions", more.End())
}

// mayBeTask reports whether the answer to a call may be a task.
func (w *forwarding) mayBeTask(l *link) bool {
	if w.Method != spec.MethodToolsCall {
		return false
	}
	return w.asTask || l.rev.TasksExtension && l.info.Capabilities != nil &&
		l.info.Capabilities.Extensions[spec.ExtensionTasks] != nil
}

// How long the answer to a call that was given up may still come. A server that
// was asked to make a task of it, answers at once.
const (
	taskGrace = closeTimeout
	callGrace = 100 * time.Millisecond
)

// lingering returns a context that ends a moment after ctx: a task that the server
// has just made must be known, to be cancelled.
func (w *forwarding) lingering(ctx context.Context) (inner context.Context, end func()) {
	grace := callGrace
	if w.asTask {
		grace = taskGrace
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-inner.Done():
		}
	})
	return inner, func() {
		stop()
		cancel(nil)
	}
}

// created returns the task that the answer to a call is, or nil. kind is its
// resultType, if it is a modern one.
func (w *forwarding) created(raw jsonrpc.Raw, kind string) (*spec.DetailedTask, error) {
	switch {
	case kind == spec.ResultTask && w.Method == spec.MethodToolsCall:
		return readTask(raw)
	case kind == "" && w.task:
		return createdTask(raw), nil
	}
	return nil, nil //nolint:nilnil // there is none
}

// finish follows the task of a call to its end.
func (w *forwarding) finish(
	ctx context.Context, t *spec.DetailedTask,
) (jsonrpc.Raw, *era.Revision, error) {
	f := w.follower()
	if w.Tasks != nil {
		if err := w.Tasks.TaskStarted(t.TaskID, t.CreatedAt); err != nil {
			f.giveUp(ctx, t.TaskID)
			return nil, nil, err
		}
	}
	raw, in, err := f.finish(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	return withoutRelatedTask(raw), in, nil
}

// resume follows a task that an earlier call has made.
func (w *forwarding) resume(ctx context.Context) (jsonrpc.Raw, *era.Revision, error) {
	t, err := w.follower().state(ctx, w.TaskID)
	if err != nil {
		return nil, nil, err
	}
	return w.finish(ctx, t)
}

// follower returns the follower of the task of this call. It may cancel the task after Forward has
// returned, when the bytes of the caller's request are in use again: it has copies of them.
func (w *forwarding) follower() *follower {
	who := &relay.Forward{Info: w.Info, Capabilities: w.Capabilities, Timeout: w.Timeout}
	if w.rev.RequestMeta {
		meta := scan.Member(w.params, "_meta")
		who.Info = orElse(scan.Member(meta, spec.MetaClientInfo), who.Info)
		who.Capabilities = orElse(scan.Member(meta, spec.MetaClientCapabilities), who.Capabilities)
	}
	who.Info, who.Capabilities = slices.Clone(who.Info), slices.Clone(who.Capabilities)
	f := &follower{c: w.c, resumed: w.TaskID != "", created: w.TaskCreated}
	f.call = func(
		ctx context.Context, method string, params jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		call := *who
		call.Method, call.Params = method, params
		return w.c.forwardTask(ctx, &call)
	}
	if w.Tasks != nil {
		f.leave = w.Tasks.LeavesTask
	}
	return f
}

// forwardTask makes a call about a task in the name of the caller that has made that. What it
// returns is in the form of the newest revision, but for the result of the tool.
func (c *Client) forwardTask(
	ctx context.Context, f *relay.Forward,
) (jsonrpc.Raw, *era.Revision, error) {
	raw, in, err := c.Forward(ctx, f)
	if err != nil || f.Method == spec.MethodTasksResult {
		return raw, in, err
	}
	raw, err = era.Translate(era.Result, f.Method, raw, in, era.Latest())
	return raw, era.Latest(), err
}

// withoutRelatedTask returns a result that does not name the task with the result that it
// is, which is not known any more.
func withoutRelatedTask(raw jsonrpc.Raw) jsonrpc.Raw {
	meta := scan.Member(raw, "_meta")
	if scan.Member(meta, spec.MetaRelatedTask) == nil {
		return raw
	}
	out := object.New(raw, "_meta")
	if kept := object.New(meta, spec.MetaRelatedTask); len(*kept) > 1 {
		out.Add("_meta", kept.End())
	}
	return out.End()
}
