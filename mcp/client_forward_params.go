package mcp

import (
	"bytes"
	"slices"
	"sync"

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
	scan.Object(params, func(key, meta []byte) bool {
		if string(key) != "_meta" {
			return true
		}
		found.there = true
		scan.Object(meta, func(key, value []byte) bool {
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
			return true
		})
		return true
	})
	found.complete = version && info && capabilities
	return found
}

// withoutToken returns params, without their end, that have no progressToken: that
// of another connection means nothing in this one.
func withoutToken(params jsonrpc.Raw) *object.Builder {
	out := object.New(params, "_meta")
	scan.Object(params, func(key, meta []byte) bool {
		if string(key) == "_meta" {
			if kept := object.New(meta, spec.MetaProgressToken); len(*kept) > 1 {
				out.Add("_meta", kept.End())
			}
		}
		return true
	})
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
	scan.Object(params, func(key, given []byte) bool {
		if string(key) != "_meta" {
			return true
		}
		scan.Object(given, func(key, value []byte) bool {
			switch string(key) {
			case spec.MetaProtocolVersion, spec.MetaProgressToken:
				return true
			case spec.MetaClientInfo:
				info = true
			case spec.MetaClientCapabilities:
				capabilities = true
			case spec.MetaLogLevel:
				level = true
			}
			meta.Add(string(key), value)
			return true
		})
		return true
	})
	meta.Add(spec.MetaProtocolVersion, scan.Member(own, spec.MetaProtocolVersion))
	if !info {
		meta.Add(spec.MetaClientInfo, orElse(w.Info, scan.Member(own, spec.MetaClientInfo)))
	}
	if !capabilities {
		meta.Add(spec.MetaClientCapabilities, orElse(withTasks(w.Capabilities), scan.Member(own, spec.MetaClientCapabilities)))
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
		if m.rev == rev && m.level == f.LogLevel && bytes.Equal(m.info, f.Info) && bytes.Equal(m.capabilities, f.Capabilities) {
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
	m := &callersMeta{rev: rev, info: slices.Clone(f.Info), capabilities: slices.Clone(f.Capabilities), level: f.LogLevel, raw: raw}
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
