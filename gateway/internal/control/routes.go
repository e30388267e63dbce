package control

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
)

// A route is one operation.
type route struct {
	method, path string
	change       string // its name in the guard; "": it reads
	id           string // operationId
	summary      string
	about        string       // more of it, for the document
	query        reflect.Type // a struct with the parameters of the query; nil: there are none
	in, out      reflect.Type // the body of the request and of the answer; nil: none
	run          func(b Backend, r *request) (any, error)
}

func (t *route) changes() bool    { return t.change != "" }
func (t *route) ofUpstream() bool { return strings.HasPrefix(t.path, "/upstreams/") }

// routes are all operations.
var routes = []*route{
	{
		method: http.MethodGet, path: document, id: "getDocument", summary: "This document", out: reflect.TypeFor[map[string]any](),
	},
	{
		method: http.MethodGet, path: "", id: "getOverview", summary: "The gateway as a whole", out: reflect.TypeFor[Overview](),
		run: func(b Backend, r *request) (any, error) { return b.Overview(r.Context()), nil },
	},
	{
		method: http.MethodGet, path: "/cluster", id: "getCluster", summary: "The nodes that share state, and what they share",
		out: reflect.TypeFor[Cluster](),
		run: func(b Backend, r *request) (any, error) { return b.Cluster(r.Context()), nil },
	},
	{
		method: http.MethodGet, path: "/upstreams", id: "listUpstreams", summary: "The upstreams and their states", out: reflect.TypeFor[Upstreams](),
		run: func(b Backend, r *request) (any, error) { return b.Upstreams(r.Context()), nil },
	},
	{
		method: http.MethodGet, path: "/upstreams/{name}", id: "getUpstream", summary: "One upstream and its last lines of standard error",
		out: reflect.TypeFor[UpstreamDetails](),
		run: func(b Backend, r *request) (any, error) { return b.Upstream(r.Context(), r.name) },
	},
	{
		method: http.MethodPost, path: "/upstreams/{name}/restart", change: "restart", id: "restartUpstream", summary: "Restart an upstream",
		about: "Its connections and processes end, and calls under way get an error that says that it is not known whether they had an effect. It starts again at " +
			"once when it was up, and otherwise with the next call. A circuit breaker is closed again.",
		in: reflect.TypeFor[Restart](), out: reflect.TypeFor[Upstream](),
		run: given(func(b Backend, r *request, o *Restart) (any, error) {
			return b.Restart(r.Context(), r.name, o)
		}),
	},
	{
		method: http.MethodPost, path: "/upstreams/{name}/drain", change: "drain", id: "drainUpstream", summary: "Let the calls of an upstream end, and disable it",
		about: "It takes no new calls. Those under way go on until they end; then its connections and processes end, and its state is disabled.",
		in:    reflect.TypeFor[Nothing](), out: reflect.TypeFor[Upstream](),
		run: ofName(Backend.Drain),
	},
	{
		method: http.MethodPost, path: "/upstreams/{name}/disable", change: "disable", id: "disableUpstream", summary: "Disable an upstream at once",
		about: "Its connections and processes end, with the calls under way. Its tools leave the lists, and calls are refused with -32008 until it is enabled. A reload " +
			"does not enable it; a restart of the gateway does.",
		in: reflect.TypeFor[Nothing](), out: reflect.TypeFor[Upstream](),
		run: ofName(Backend.Disable),
	},
	{
		method: http.MethodPost, path: "/upstreams/{name}/enable", change: "enable", id: "enableUpstream", summary: "Enable an upstream that was drained or disabled",
		in: reflect.TypeFor[Nothing](), out: reflect.TypeFor[Upstream](),
		run: ofName(Backend.Enable),
	},
	{
		method: http.MethodGet, path: "/sessions", id: "listSessions", summary: "The sessions of MCP",
		about: "Callers without the permission gateway/admin sessions see their own. Clients of revisions without sessions have none.",
		out:   reflect.TypeFor[Sessions](),
		run:   func(b Backend, r *request) (any, error) { return b.Sessions(r.Context()), nil },
	},
	{
		method: http.MethodGet, path: "/calls", id: "listCalls", summary: "The last calls that have failed, were refused or took long",
		about: "The gateway keeps up to 100 of each outcome, so that many of one kind leave the others. " +
			"Callers without the permission gateway/admin calls see their own that came over HTTP.",
		out: reflect.TypeFor[Calls](),
		run: func(b Backend, r *request) (any, error) { return b.Calls(r.Context()), nil },
	},
	{
		method: http.MethodPost, path: "/sessions/{id}/end", change: "end-session", id: "endSession", summary: "End a session",
		about: "Its calls are cancelled. A client over HTTP gets 404 and begins a new session; any other connection is closed.",
		in:    reflect.TypeFor[Nothing](), out: reflect.TypeFor[Session](),
		run: ofName(Backend.EndSession),
	},
	{
		method: http.MethodGet, path: "/log-level", id: "getLogLevel", summary: "From which level on lines are logged", out: reflect.TypeFor[LogLevel](),
		run: func(b Backend, r *request) (any, error) { return b.LogLevel(r.Context()) },
	},
	{
		method: http.MethodPut, path: "/log-level", change: "log-level", id: "setLogLevel", summary: "Set from which level on lines are logged",
		about: "It holds until it is set again or the gateway starts again. What is left out stays as it is.",
		in:    reflect.TypeFor[LogLevel](), out: reflect.TypeFor[LogLevel](),
		run: given(func(b Backend, r *request, to *LogLevel) (any, error) {
			return b.SetLogLevel(r.Context(), to)
		}),
	},
	{
		method: http.MethodPost, path: "/reload", change: "reload", id: "reload", summary: "Read the configuration again",
		about: "What is wrong with it is in the findings of the answer, and the gateway goes on with the one before.",
		in:    reflect.TypeFor[Nothing](), out: reflect.TypeFor[Reloaded](),
		run: given(func(b Backend, r *request, _ *Nothing) (any, error) { return b.Reload(r.Context()) }),
	},
	{
		method: http.MethodPost, path: "/capture/dump", change: "dump-capture", id: "dumpCapture", summary: "Write what the flight recorder has to a file",
		about: "The file is a capture on the machine of the gateway: farcall view shows it. It has names, ids, sizes, times and outcomes, unless the key capture says more.",
		in:    reflect.TypeFor[Nothing](), out: reflect.TypeFor[Dumped](),
		run: given(func(b Backend, r *request, _ *Nothing) (any, error) { return b.Dump(r.Context()) }),
	},
	{
		method: http.MethodGet, path: "/pins", id: "listPins", summary: "What is pinned of each upstream, and what is known to differ from it",
		about: "No upstream is asked.",
		out:   reflect.TypeFor[Pins](),
		run:   func(b Backend, r *request) (any, error) { return b.Pins(r.Context()) },
	},
	{
		method: http.MethodGet, path: "/upstreams/{name}/pins", id: "getPinChanges", summary: "What an upstream says now compared with what is pinned of it",
		about: "The upstream is asked for all that it says about itself and for its lists.",
		out:   reflect.TypeFor[PinChanges](),
		run:   func(b Backend, r *request) (any, error) { return b.PinChanges(r.Context(), r.name) },
	},
	{
		method: http.MethodPost, path: "/upstreams/{name}/pins/accept", change: "accept-pins", id: "acceptPins", summary: "Pin what an upstream says now",
		about: "The digest is that of the changes which were looked at: when the upstream has changed again since, nothing is accepted.",
		in:    reflect.TypeFor[AcceptPins](), out: reflect.TypeFor[PinChanges](),
		run: given(func(b Backend, r *request, o *AcceptPins) (any, error) {
			return b.AcceptPins(r.Context(), r.name, o)
		}),
	},
	{
		method: http.MethodGet, path: "/explain", id: "explainCall", summary: "What the guard makes of a call, and why",
		about: "Nothing is called or counted. A question about another principal needs the permission gateway/admin explain.",
		query: reflect.TypeFor[Question](), out: reflect.TypeFor[Explanation](),
		run: func(b Backend, r *request) (any, error) {
			q, err := r.question()
			if err != nil {
				return nil, err
			}
			return b.Explain(r.Context(), q)
		},
	},
}

// ofName runs a change of what the path names that has no parameters.
func ofName[T any](do func(b Backend, ctx context.Context, name string) (*T, error)) func(b Backend, r *request) (any, error) {
	return given(func(b Backend, r *request, _ *Nothing) (any, error) { return do(b, r.Context(), r.name) })
}

// given runs a change with the parameters of its body.
func given[P any](do func(b Backend, r *request, p *P) (any, error)) func(b Backend, r *request) (any, error) {
	return func(b Backend, r *request) (any, error) {
		p := new(P)
		if err := r.decode(p); err != nil {
			return nil, err
		}
		return do(b, r, p)
	}
}

type object = map[string]any

// describe makes the OpenAPI document of the routes. It panics when a type of the table has no
// schema, which a test finds.
func describe() []byte {
	set := schema.NewSet("#/components/schemas/")
	paths := object{}
	for _, t := range routes {
		at, _ := paths[pathOf(t)].(object)
		if at == nil {
			at = object{}
			paths[pathOf(t)] = at
		}
		at[strings.ToLower(t.method)] = t.operation(set)
	}
	problem := of(set, reflect.TypeFor[Problem]())
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "farcall gateway", "version": "1",
			"description": "What an operator can read and change of a gateway. Reads need a rule of the guard that allows gateway/status, changes one that allows " +
				"gateway/admin CHANGE or gateway/admin UPSTREAM/CHANGE. Without a guard the API is for programs on the machine of the gateway.",
		},
		"servers":  []any{object{"url": base}},
		"security": []any{object{}, object{"bearer": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas":         set.Definitions(),
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
			"responses": object{"problem": object{
				"description": "what is wrong and what to do (RFC 9457)", "content": object{"application/problem+json": object{"schema": problem}},
			}},
		},
	}
	text, err := jsonv2.Append(nil, doc)
	if err != nil {
		panic(fmt.Sprintf("control: the OpenAPI document cannot be written: %v", err)) //nolint:forbidigo // a broken table
	}
	return text
}

func pathOf(t *route) string {
	if t.path == "" {
		return "/"
	}
	return t.path
}

func of(set *schema.Set, t reflect.Type) *schema.Schema {
	s, err := set.Of(t)
	if err != nil {
		panic(fmt.Sprintf("control: %v has no schema: %v", t, err)) //nolint:forbidigo // a broken table
	}
	return s
}

// operation describes a route.
func (t *route) operation(set *schema.Set) object {
	op := object{"operationId": t.id, "summary": t.summary, "tags": []string{"read"}}
	if t.about != "" {
		op["description"] = t.about
	}
	if t.changes() {
		op["tags"] = []string{"change"}
		permission := "gateway/admin " + t.change
		if t.ofUpstream() {
			permission = "gateway/admin UPSTREAM/" + t.change
		}
		op["x-farcall-permission"] = permission
	}
	if params := t.parameters(set); len(params) > 0 {
		op["parameters"] = params
	}
	if t.in != nil {
		op["requestBody"] = object{"content": object{"application/json": object{"schema": of(set, t.in)}}}
	}
	op["responses"] = object{
		strconv.Itoa(http.StatusOK): object{"description": t.summary, "content": object{"application/json": object{"schema": of(set, t.out)}}},
		"default":                   object{"$ref": "#/components/responses/problem"},
	}
	return op
}

// parameters are those of the path and of the query.
func (t *route) parameters(set *schema.Set) (all []any) {
	for part := range strings.SplitSeq(t.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			all = append(all, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	if t.query == nil {
		return all
	}
	fields, err := schema.Fields(t.query)
	if err != nil {
		panic(fmt.Sprintf("control: %v: %v", t.query, err)) //nolint:forbidigo // a broken table
	}
	for _, f := range fields {
		s, err := set.Member(f)
		if err != nil {
			panic(fmt.Sprintf("control: %v: %v", t.query, err)) //nolint:forbidigo // a broken table
		}
		all = append(all, object{"name": f.Name, "in": "query", "required": !f.Optional, "schema": s})
	}
	return all
}
