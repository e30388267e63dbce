package mcp

import (
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
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
	if l.rev.Modern {
		if meta.complete && (w.OnProgress != nil || !meta.token) && (w.LogLevel == "" || meta.level) {
			return params, nil
		}
		return w.withMeta(params, l.rev)
	}
	add := false
	if w.Method == spec.MethodToolsCall && l.callsTasks() {
		add = w.asTask && scan.Member(params, "task") == nil
		w.task = w.asTask || scan.Member(params, "task") != nil
	}
	if !add && (w.OnProgress != nil || !meta.token) {
		return params, nil
	}
	out := withoutToken(params)
	if add {
		out.add("task", jsonrpc.Raw("{}"))
	}
	return out.end(), nil
}

// givenMeta says what is in the _meta of params.
type givenMeta struct {
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
func withoutToken(params jsonrpc.Raw) *object {
	out := newObject(params, "_meta")
	scan.Object(params, func(key, meta []byte) bool {
		if string(key) == "_meta" {
			if kept := newObject(meta, spec.MetaProgressToken); len(*kept) > 1 {
				out.add("_meta", kept.end())
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
	meta := newObject(nil)
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
			meta.add(string(key), value)
			return true
		})
		return true
	})
	meta.add(spec.MetaProtocolVersion, scan.Member(own, spec.MetaProtocolVersion))
	if !info {
		meta.add(spec.MetaClientInfo, orElse(w.Info, scan.Member(own, spec.MetaClientInfo)))
	}
	if !capabilities {
		meta.add(spec.MetaClientCapabilities, orElse(withTasks(w.Capabilities), scan.Member(own, spec.MetaClientCapabilities)))
	}
	if !level && w.LogLevel != "" {
		meta.add(spec.MetaLogLevel, jsonrpc.AppendString(nil, w.LogLevel))
	}
	all := newObject(params, "_meta")
	all.add("_meta", meta.end())
	return all.end(), nil
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
	more := newObject(extensions)
	more.add(spec.ExtensionTasks, jsonrpc.Raw("{}"))
	return withMember(capabilities, "extensions", more.end())
}
