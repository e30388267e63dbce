package mcp

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// extensions are what a server has beyond the protocol: methods and declared
// extensions. Both maps are copied when they change.
type extensions struct {
	mu       sync.Mutex
	handlers atomic.Pointer[map[string]farcall.Handler]
	settings atomic.Pointer[map[string]any]
}

// Handle adds a method, or notification, of an extension. It panics for those that the server
// handles itself. Of the protocol's notifications, notifications/roots/list_changed can have a
// handler. The handler's context is that of a tool's handler, and its request is as the client sent
// it. The result must be an object; what every result of the client's revision has is added.
func (s *Server) Handle(method string, h farcall.Handler) {
	s.checkMade()
	if method == "" || h == nil {
		misuse("the method %q needs a name and a handler", method)
	}
	if _, taken := methods[method]; taken || reserved(method) {
		misuse("Handle: the server itself handles %q; the handler would never be called", method)
	}
	change(&s.extensions.mu, &s.extensions.handlers, method, h)
}

// AddExtension declares an extension. Its id is such as "com.example/billing",
// to clients of revisions that know extensions. The settings must marshal to an
// object; nil is an empty one.
func (s *Server) AddExtension(id string, settings any) {
	if !strings.Contains(id, "/") {
		misuse("the extension %q needs a prefix, such as in com.example/billing", id)
	}
	if settings == nil {
		settings = struct{}{}
	}
	raw, err := jsonv2.Append(nil, settings)
	if err != nil || raw[0] != '{' {
		misuse("the settings of the extension %q must be an object", id)
	}
	change(&s.extensions.mu, &s.extensions.settings, id, any(jsonrpc.Raw(raw)))
}

func change[V any](mu *sync.Mutex, at *atomic.Pointer[map[string]V], key string, value V) {
	mu.Lock()
	defer mu.Unlock()
	all := map[string]V{}
	if old := at.Load(); old != nil {
		all = maps.Clone(*old)
	}
	all[key] = value
	at.Store(&all)
}

// declared returns what goes into the capabilities: its own map.
func (x *extensions) declared(more map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, more)
	if own := x.settings.Load(); own != nil {
		maps.Copy(all, *own)
	}
	return all
}

func (x *extensions) find(method string) farcall.Handler {
	if all := x.handlers.Load(); all != nil {
		return (*all)[method]
	}
	return nil
}

// serve calls the handler of a method of an extension.
func (x *extensions) serve(c *call, req *farcall.Request) (jsonrpc.Raw, error) {
	h := x.find(c.method)
	if h == nil {
		return nil, errNoMethod(c)
	}
	result, err := h.ServeRPC(c, req)
	if err != nil {
		return nil, err
	}
	raw, ok := result.(jsonrpc.Raw)
	if !ok {
		if raw, err = jsonv2.Append(nil, result); err != nil {
			return nil, err
		}
	}
	if len(raw) == 0 || string(raw) == "null" {
		return jsonrpc.Raw("{}"), nil
	}
	if raw[0] != '{' {
		return nil, errNoResultObject
	}
	return raw, nil
}

var errNoResultObject = &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error: the result of the method is no object"}
