package control

import (
	"net/http"
	"reflect"
	"strings"
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
		method: http.MethodGet, path: "/upstreams", id: "listUpstreams", summary: "The upstreams and their states", out: reflect.TypeFor[Upstreams](),
		run: func(b Backend, r *request) (any, error) { return b.Upstreams(r.Context()), nil },
	},
	{
		method: http.MethodGet, path: "/upstreams/{name}", id: "getUpstream", summary: "One upstream and its last lines of standard error",
		out: reflect.TypeFor[UpstreamDetails](),
		run: func(b Backend, r *request) (any, error) { return b.Upstream(r.Context(), r.name) },
	},
}
