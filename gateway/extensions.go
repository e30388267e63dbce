package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/apps"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// An extension is what the gateway knows of an extension of MCP, and how several servers with it
// are one. Where references are in its messages is in the table of package refs.
type extension struct {
	// merge returns the settings that are declared for several servers. Nil: those that all of them
	// have, or none.
	merge func(all []any) any
	// methods has those that MCP does not define.
	methods map[string]func(e *endpoint, w *calling) (upstream.Result, error)
}

const extensionSkills = "io.modelcontextprotocol/skills"

// extensions has a row for each extension that the gateway knows. What has none goes to the one
// server that declares an extension without a row: see custom.
var extensions = map[string]extension{
	apps.Extension: {},
	// tasks are the gateway's own
	spec.ExtensionTasks: {merge: func([]any) any { return spec.JSONObject{} }},
	extensionSkills: {
		merge: func(all []any) any {
			for _, settings := range all {
				if listsDirectories(settings) {
					return settings
				}
			}
			return all[0]
		},
		methods: map[string]func(e *endpoint, w *calling) (upstream.Result, error){
			"skills/list":              (*endpoint).listSkills,
			"skills/get":               (*endpoint).skill,
			"resources/directory/read": (*endpoint).skill,
		},
	},
}

// declared returns what the extensions of several servers are together. Nil infos are of servers
// that are down.
func declared(infos []*mcp.ServerInfo) map[string]any {
	settings := map[string][]any{}
	for _, info := range infos {
		if info != nil {
			for id, value := range info.Capabilities.Extensions {
				settings[id] = append(settings[id], value)
			}
		}
	}
	merged := map[string]any{}
	for id, all := range settings {
		if merge := extensions[id].merge; merge != nil {
			merged[id] = merge(all)
			continue
		}
		same := true
		for _, value := range all {
			same = same && reflect.DeepEqual(value, all[0])
		}
		if same {
			merged[id] = all[0]
		}
	}
	return merged
}

// listsDirectories reports whether the settings of the skills extension say that a server has
// resources/directory/read.
func listsDirectories(settings any) bool {
	of, _ := settings.(map[string]any)
	yes, _ := of["directoryRead"].(bool)
	return yes
}

// having returns the servers of the address with the description meets that a condition, in order,
// and whether one of the others could not be asked.
func (e *endpoint) having(
	ctx context.Context, meets func(*spec.ServerCapabilities) bool,
) (some []*server, unsure bool) {
	_, servers := e.servers()
	infos := make([]*mcp.ServerInfo, len(servers))
	who := e.g.caller(ctx)
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { infos[i] = s.describe(ctx, who) })
	}
	wg.Wait()
	for i, info := range infos {
		switch {
		case info == nil:
			unsure = true
		case meets(info.Capabilities):
			some = append(some, servers[i])
		}
	}
	return some, unsure
}

// hasSkills reports whether a server declares the skills extension.
func hasSkills(c *spec.ServerCapabilities) bool { return c.Extensions[extensionSkills] != nil }

// hasUnknown reports whether a server declares an extension that the gateway does not know.
func hasUnknown(c *spec.ServerCapabilities) bool {
	for id := range c.Extensions {
		if _, known := extensions[id]; !known {
			return true
		}
	}
	return false
}

// custom makes a call of a method that MCP does not define: as the row of its extension says, or at
// the only server that can have it. It is never tried at one server after the other: a call may
// have effects.
func (e *endpoint) custom(w *calling) (upstream.Result, error) {
	_, servers := e.servers()
	if e.virtual() != nil { // nothing of it was chosen
		return upstream.Result{},
			jsonrpc.Errorf(jsonrpc.MethodNotFound,
				"Method not found: a virtual server has no methods of extensions: %s", w.Method)
	}
	if len(servers) == 1 {
		return e.customAt(w, route.Target{Source: servers[0].cfg.Name}, "")
	}
	for _, x := range extensions {
		if call := x.methods[w.Method]; call != nil {
			return call(e, w)
		}
	}
	some, unsure := e.having(w, hasUnknown)
	if len(some) > 0 {
		some = slices.DeleteFunc(some, func(s *server) bool {
			return !e.g.shield.admits(w, s.cfg.Name, w.Method, w.Params)
		})
		if len(some) == 0 {
			return upstream.Result{},
				e.g.shield.missing(w, w.Method,
					jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found: %s", w.Method))
		}
	}
	switch {
	case len(some) == 1 && !unsure:
		return e.customAt(w, route.Target{Source: some[0].cfg.Name}, "")
	case len(some) == 0 && !unsure:
		return upstream.Result{}, jsonrpc.Errorf(jsonrpc.MethodNotFound,
			"Method not found: no server behind this address declares an extension with %q; the server "+
				"that has it is at /mcp/NAME", w.Method)
	case unsure:
		return upstream.Result{}, &jsonrpc.Error{
			Code: jsonrpc.Unavailable,
			Message: fmt.Sprintf(
				"a server that cannot be asked may have %q; try again, or call it at /mcp/NAME", w.Method),
			Data: jsonrpc.Raw(`{"sent":"no","retryable":true}`), Cause: errUnasked,
		}
	}
	addresses := make([]string, 0, len(some))
	for _, s := range some {
		addresses = append(addresses, "/mcp/"+s.cfg.Name)
	}
	return upstream.Result{},
		jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Invalid params: several servers may have %q: call it at %s", w.Method,
			strings.Join(addresses, " or "))
}

// customAt makes a call of a method that MCP does not define at a server. To policies it is
// named as one of a server that speaks no MCP.
func (e *endpoint) customAt(
	w *calling, t route.Target, member string,
) (r upstream.Result, err error) {
	e.address(w, &t, member)
	done, err := e.g.shield.begin(w, w.Revision,
		&guard.Call{
			Method: methodRPC, Upstream: t.Source, Name: w.Method, Params: w.Params,
			Arguments: w.Params,
		})
	if err != nil {
		return upstream.Result{}, err
	}
	err = errPanicked // until it returns
	defer func() { done(r.Raw, err) }()
	return e.forward(w, t.Source)
}

// listSkills returns a page of the skills of all servers: one server's page after the other. The
// cursor names the server, so nothing is kept between pages; a server that fails is left out, and
// the page is not to be kept then.
func (e *endpoint) listSkills(w *calling) (upstream.Result, error) {
	some, unsure := e.having(w, hasSkills)
	if len(some) == 0 {
		return upstream.Result{},
			jsonrpc.Errorf(jsonrpc.MethodNotFound,
				"Method not found: no server behind this address declares skills")
	}
	at, cursor, err := skillsAt(w.Params, some)
	if err != nil {
		return upstream.Result{}, err
	}
	var failed error
	for ; at < len(some); at++ {
		page := e.g.newCalling(w)
		page.Method, page.Revision, page.Params = w.Method, w.Revision, without(w.Params, "cursor")
		if cursor != "" {
			page.Params = withMember(page.Params, "cursor", jsonrpc.AppendString(nil, cursor))
		}
		r, err := e.customAt(page, route.Target{Source: some[at].cfg.Name}, "")
		if err != nil {
			failed, cursor = err, ""
			continue
		}
		next, more := text(r.Raw, "nextCursor")
		r.Raw = without(r.Raw, "nextCursor")
		switch {
		case more:
			r.Raw = withMember(r.Raw, "nextCursor", jsonrpc.AppendString(nil, skillsCursor(some[at], next)))
		case at+1 < len(some):
			r.Raw = withMember(r.Raw, "nextCursor", jsonrpc.AppendString(nil, skillsCursor(some[at+1], "")))
		}
		if unsure || failed != nil {
			r.Raw = withMember(r.Raw, "ttlMs", []byte("0"))
		}
		r.Raw = withMember(r.Raw, "cacheScope", jsonrpc.AppendString(nil, spec.CachePrivate))
		return r, nil
	}
	return upstream.Result{}, failed
}

// skillsCursor is the cursor of a page of the skills of a server, which has its own cursor for it.
func skillsCursor(s *server, own string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(s.cfg.Name + "\n" + own))
}

// skillsAt returns the place in the list that the cursor in params stands for: a server and its own
// cursor.
func skillsAt(params jsonrpc.Raw, servers []*server) (at int, own string, err error) {
	given, ok := text(params, "cursor")
	if !ok {
		return 0, "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(given)
	name, own, ok := strings.Cut(string(raw), "\n")
	if err != nil || !ok {
		return 0, "", errCursor
	}
	for i, s := range servers {
		if s.cfg.Name == name {
			return i, own, nil
		}
	}
	return 0, "", errCursor
}

// skill makes a call about a skill, or a directory of one, at the server that its URI is of.
func (e *endpoint) skill(w *calling) (upstream.Result, error) {
	uri, ok := text(w.Params, "uri")
	if !ok {
		return upstream.Result{},
			jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: %s needs a member %q, a string",
				w.Method, "uri")
	}
	has := hasSkills
	if w.Method == "resources/directory/read" {
		has = func(c *spec.ServerCapabilities) bool {
			return listsDirectories(c.Extensions[extensionSkills])
		}
	}
	some, _ := e.having(w, has)
	view, _ := e.servers()
	source, own, ok := view.Qualified(uri)
	target := route.Target{Source: source, Name: own}
	if !ok {
		var err error
		if target, ok, err = e.find(w, route.Resources, uri); err != nil {
			return upstream.Result{}, err
		}
	}
	for _, s := range some {
		if ok && s.cfg.Name == target.Source {
			return e.customAt(w, target, "uri")
		}
	}
	return upstream.Result{}, notFound(uri)
}

var errUnasked = errors.New("gateway: not every server could be asked for its extensions")
