package control

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

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

//go:embed routes.txt
var routesText string

// routes are all operations: what routes.txt says of each, and what operations do.
var routes = readRoutes()

func readRoutes() (all []*route) {
	for _, block := range strings.Split(routesText, "\n\n")[2:] {
		head, text, _ := strings.Cut(strings.TrimSpace(block), "\n")
		words := append(strings.Fields(head), "")
		t := operations[words[2]]
		t.method, t.path, t.id, t.change = words[0], strings.TrimSuffix(words[1], "/"), words[2], words[3]
		t.summary, t.about, _ = strings.Cut(text, "\n")
		t.about = strings.ReplaceAll(t.about, "\n", " ")
		if !t.changes() {
			t.in = nil
		}
		all = append(all, t)
	}
	return all
}

// operations are what the operations do, and the types of it, by the operationId.
var operations = map[string]*route{
	"getDocument":     {out: reflect.TypeFor[map[string]any]()}, // Handler.serve has it
	"getOverview":     always(Backend.Overview),
	"getCluster":      always(Backend.Cluster),
	"listUpstreams":   always(Backend.Upstreams),
	"getUpstream":     ofName(Backend.Upstream),
	"getUsage":        ofName(Backend.Usage),
	"listTools":       ofName(Backend.Tools),
	"restartUpstream": given(Backend.Restart),
	"drainUpstream":   ofName(Backend.Drain),
	"disableUpstream": ofName(Backend.Disable),
	"enableUpstream":  ofName(Backend.Enable),
	"listSessions":    always(Backend.Sessions),
	"listCalls":       always(Backend.Calls),
	"endSession":      ofName(Backend.EndSession),
	"listSignIns":     ofAll(Backend.SignIns),
	"endSignIns": given(func(
		b Backend, c context.Context, _ string, which *EndSignIns,
	) (*EndedSignIns, error) {
		return b.EndSignIns(c, which)
	}),
	"getLogLevel": ofAll(Backend.LogLevel),
	"setLogLevel": given(func(b Backend, c context.Context, _ string, l *LogLevel) (*LogLevel, error) {
		return b.SetLogLevel(c, l)
	}),
	"reload":        ofAll(Backend.Reload),
	"dumpCapture":   ofAll(Backend.Dump),
	"listPins":      ofAll(Backend.Pins),
	"getPinChanges": ofName(Backend.PinChanges),
	"acceptPins":    given(Backend.AcceptPins),
	"explainCall": {
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

// given runs what has parameters in its body.
func given[P, T any](do func(Backend, context.Context, string, *P) (*T, error)) *route {
	return &route{
		in: reflect.TypeFor[P](), out: reflect.TypeFor[T](),
		run: func(b Backend, r *request) (any, error) {
			p := new(P)
			if err := r.decode(p); err != nil {
				return nil, err
			}
			return do(b, r.Context(), r.name, p)
		},
	}
}

// ofName runs what is about that which the path names, without parameters.
func ofName[T any](do func(Backend, context.Context, string) (*T, error)) *route {
	return given(func(b Backend, c context.Context, name string, _ *Nothing) (*T, error) {
		return do(b, c, name)
	})
}

// ofAll runs what is about the whole gateway.
func ofAll[T any](do func(Backend, context.Context) (*T, error)) *route {
	return ofName(func(b Backend, c context.Context, _ string) (*T, error) { return do(b, c) })
}

// always runs what cannot fail.
func always[T any](do func(Backend, context.Context) *T) *route {
	return ofAll(func(b Backend, c context.Context) (*T, error) { return do(b, c), nil })
}

type object = map[string]any

// describe returns the OpenAPI document of the routes, which is made when it is first asked for:
// few ask. It panics when a type of the table has no schema, which a test finds.
var describe = sync.OnceValue(func() []byte {
	set := schema.NewSet("#/components/schemas/")
	paths := object{}
	for _, t := range routes {
		path := cmp.Or(t.path, "/")
		at, _ := paths[path].(object)
		if at == nil {
			at = object{}
			paths[path] = at
		}
		at[strings.ToLower(t.method)] = t.operation(set)
	}
	problem := must(set.Of(reflect.TypeFor[Problem]()))
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "farcall gateway", "version": "1",
			"description": "What an operator can read and change of a gateway. Reads need a rule of the " +
				"guard that allows gateway/status, changes one that allows " +
				"gateway/admin CHANGE or gateway/admin UPSTREAM/CHANGE. Without a guard the API is for " +
				"programs on the machine of the gateway.",
		},
		"servers":  []any{object{"url": base}},
		"security": []any{object{}, object{"bearer": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas":         set.Definitions(),
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
			"responses": object{"problem": object{
				"description": "what is wrong and what to do (RFC 9457)",
				"content":     object{"application/problem+json": object{"schema": problem}},
			}},
		},
	}
	return must(jsonv2.Append(nil, doc))
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("control: the operations: %v", err)) //nolint:forbidigo // a broken table
	}
	return v
}

// operation describes a route.
func (t *route) operation(set *schema.Set) object {
	op := object{"operationId": t.id, "summary": t.summary, "tags": []string{"read"}}
	if t.about != "" {
		op["description"] = t.about
	}
	if t.changes() {
		op["tags"] = []string{"change"}
		op["x-farcall-permission"] = "gateway/admin " + t.change
		if t.ofUpstream() {
			op["x-farcall-permission"] = "gateway/admin UPSTREAM/" + t.change
		}
	}
	if params := t.parameters(set); len(params) > 0 {
		op["parameters"] = params
	}
	content := func(t reflect.Type) object {
		return object{"application/json": object{"schema": must(set.Of(t))}}
	}
	if t.in != nil {
		op["requestBody"] = object{"content": content(t.in)}
	}
	op["responses"] = object{
		strconv.Itoa(http.StatusOK): object{"description": t.summary, "content": content(t.out)},
		"default":                   object{"$ref": "#/components/responses/problem"},
	}
	return op
}

// parameters are those of the path and of the query.
func (t *route) parameters(set *schema.Set) (all []any) {
	for part := range strings.SplitSeq(t.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			all = append(all, object{
				"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true,
				"schema": object{"type": "string"},
			})
		}
	}
	if t.query == nil {
		return all
	}
	for _, f := range must(schema.Fields(t.query)) {
		s := must(set.Member(f))
		all = append(all, object{"name": f.Name, "in": "query", "required": !f.Optional, "schema": s})
	}
	return all
}
