package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/origin"
)

// A Handler serves the API.
type Handler struct {
	backend Backend
	access  Access
}

// New returns a Handler.
func New(b Backend, a Access) *Handler {
	return &Handler{backend: b, access: a}
}

// Has reports whether a path is below that of the API.
func (*Handler) Has(path string) bool { return path == base || strings.HasPrefix(path, base+"/") }

// ServeHTTP serves a path that Has knows.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	protect(header)
	route, name, problem := find(r)
	if problem != nil {
		if problem.Status == http.StatusMethodNotAllowed {
			header.Set("Allow", strings.Join(problem.Candidates, ", "))
		}
		if refused := h.foreign(r); refused != nil {
			problem = refused
		}
		problem.write(w)
		return
	}
	result, err := h.serve(route, &request{Request: r, name: name}, w)
	if err != nil {
		if !errors.As(err, &problem) {
			problem = NewProblem(http.StatusInternalServerError, "the request failed: "+err.Error())
		}
		problem.write(w)
		return
	}
	body, ok := result.([]byte)
	if !ok {
		if body, err = jsonv2.Append(nil, result); err != nil {
			NewProblem(http.StatusInternalServerError,
				"the answer cannot be written as JSON: "+err.Error()).write(w)
			return
		}
	}
	header.Set("Content-Type", "application/json")
	_, _ = w.Write(append(slices.Clip(body), '\n')) // the client may have gone
}

// protect sets the headers that keep an answer from the pages of others.
func protect(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
}

// serve makes the answer of a request.
func (h *Handler) serve(route *route, r *request, w http.ResponseWriter) (result any, err error) {
	if !route.changes() {
		if p := h.foreign(r.Request); p != nil {
			return nil, p
		}
		if p := h.access.Read(r.Request); p != nil {
			return nil, p
		}
		if route.path == document {
			return describe(), nil
		}
		return route.run(h.backend, r)
	}
	c := &Change{Name: route.change, Upstream: r.name}
	if !route.ofUpstream() {
		c.Upstream = ""
	}
	p := h.foreign(r.Request)
	if p == nil {
		p = r.read(w)
	}
	if p != nil {
		h.access.Refuse(r.Request, c, p)
		return nil, p
	}
	c.Params = r.params(route)
	done, p := h.access.Begin(r.Request, c)
	if p != nil {
		return nil, p
	}
	err = errors.New("the handler panicked") // until it returns
	defer func() { done(err) }()
	result, err = route.run(h.backend, r)
	return result, err
}

// foreign returns why a request may come from a web page of another site. Nil: it does not.
func (h *Handler) foreign(r *http.Request) *Problem {
	policy := origin.Policy{Hosts: h.access.Hosts()}
	if err := policy.CheckHost(r); err != nil {
		return NewProblem(http.StatusForbidden, err.Error())
	}
	if err := policy.CheckOrigin(r); err != nil {
		return NewProblem(http.StatusForbidden,
			"a web page of another origin cannot use this API: call it from a program, or from a page of "+
				"this address")
	}
	return nil
}

// read reads the body of a change, which is an object or empty.
func (r *request) read(w http.ResponseWriter) *Problem {
	types := r.Header["Content-Type"]
	kind := ""
	if len(types) == 1 {
		kind, _, _ = mime.ParseMediaType(types[0])
	}
	if kind != "application/json" {
		return NewProblem(http.StatusUnsupportedMediaType,
			"a change needs the header Content-Type: application/json, also without a body")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &tooLarge):
		return NewProblem(http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the body has more than %d bytes", maxBody))
	case err != nil:
		return NewProblem(http.StatusBadRequest, "the body cannot be read: send it whole")
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil
	}
	var object map[string]any
	if err := jsonv2.Unmarshal(body, &object); err != nil || object == nil {
		return NewProblem(http.StatusBadRequest,
			"the body is no JSON object: send one as the OpenAPI document at "+base+document+" says")
	}
	r.body = body
	return nil
}

// params are what the guard sees of a change: its body, or the session that the path names.
func (r *request) params(t *route) []byte {
	if t.ofUpstream() || r.name == "" {
		return r.body
	}
	params, _ := jsonv2.Append(nil, map[string]string{"id": r.name}) // texts can be marshalled
	return params
}

// decode stores the body in what v points to.
func (r *request) decode(v any) error {
	if len(r.body) == 0 {
		return nil
	}
	err := jsonv2.UnmarshalStrict(r.body, v)
	if err == nil {
		return nil
	}
	p := jsonv2.Explain(err)
	reason := "has the wrong type"
	if p.Reason != "" {
		reason = "is " + p.Reason
	}
	return NewProblem(http.StatusUnprocessableEntity,
		fmt.Sprintf("the member %.100q of the body %s: the OpenAPI document at %s has the members",
			p.Pointer, reason, base+document))
}

// question reads the parameters of the query.
func (r *request) question() (*Question, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, NewProblem(http.StatusBadRequest,
			"the query cannot be read: encode its values as in ?call=tools%2Fcall%20files%2Fread")
	}
	for name := range values {
		if !slices.Contains([]string{"call", "as", "role", "arguments", "local"}, name) {
			return nil, NewProblem(http.StatusBadRequest,
				fmt.Sprintf("there is no parameter %.100q: use call, as, role, arguments and local", name))
		}
	}
	q := &Question{
		Call: values.Get("call"), As: values.Get("as"), Roles: values["role"],
		Arguments: values.Get("arguments"), Local: values.Get("local") == "true",
	}
	if q.Call == "" {
		return nil, NewProblem(http.StatusBadRequest,
			"the parameter call is missing, as in ?call=tools%2Fcall%20files%2Fread")
	}
	return q, nil
}

// find returns the route of a request and what {name} stands for.
func find(r *http.Request) (found *route, name string, p *Problem) {
	var methods []string
	for _, t := range routes {
		value, ok := t.match(r.URL.EscapedPath())
		if !ok {
			continue
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		if t.method == method {
			return t, value, nil
		}
		methods = append(methods, t.method)
	}
	if len(methods) > 0 {
		p = NewProblem(http.StatusMethodNotAllowed, "this path takes "+strings.Join(methods, " and "))
		p.Candidates = methods
		return nil, "", p
	}
	return nil, "", NewProblem(http.StatusNotFound,
		"nothing is at this path: "+base+document+" describes all that there are")
}

// match reports whether a path is that of the route, and what {name} stands for in it.
func (t *route) match(path string) (name string, ok bool) {
	want, got := strings.Split(base+t.path, "/"), strings.Split(strings.TrimSuffix(path, "/"), "/")
	if len(want) != len(got) {
		return "", false
	}
	for i, part := range want {
		switch {
		case strings.HasPrefix(part, "{"):
			var err error
			if name, err = url.PathUnescape(got[i]); err != nil || name == "" {
				return "", false
			}
		case part != got[i]:
			return "", false
		}
	}
	return name, true
}

const (
	base     = "/api/v1"
	document = "/openapi.json"
	maxBody  = 64 << 10
)

// A Backend is the gateway that the requests are about. An error that is a [*Problem] is the
// answer.
type Backend interface { //nolint:interfacebloat // a method for each operation
	Overview(ctx context.Context) *Overview
	Cluster(ctx context.Context) *Cluster
	Upstreams(ctx context.Context) *Upstreams
	Upstream(ctx context.Context, name string) (*UpstreamDetails, error)
	Usage(ctx context.Context, name string) (*Usage, error)
	Tools(ctx context.Context, name string) (*Tools, error)
	Restart(ctx context.Context, name string, o *Restart) (*Upstream, error)
	Drain(ctx context.Context, name string) (*Upstream, error)
	Disable(ctx context.Context, name string) (*Upstream, error)
	Enable(ctx context.Context, name string) (*Upstream, error)
	Sessions(ctx context.Context) *Sessions
	Calls(ctx context.Context) *Calls
	EndSession(ctx context.Context, id string) (*Session, error)
	SignIns(ctx context.Context) (*SignIns, error)
	EndSignIns(ctx context.Context, which *EndSignIns) (*EndedSignIns, error)
	LogLevel(ctx context.Context) (*LogLevel, error)
	SetLogLevel(ctx context.Context, to *LogLevel) (*LogLevel, error)
	Reload(ctx context.Context) (*Reloaded, error)
	Dump(ctx context.Context) (*Dumped, error)
	Pins(ctx context.Context) (*Pins, error)
	PinChanges(ctx context.Context, name string) (*PinChanges, error)
	AcceptPins(ctx context.Context, name string, o *AcceptPins) (*PinChanges, error)
	Explain(ctx context.Context, q *Question) (*Explanation, error)
}

// An Access decides who may do what.
type Access interface {
	// Hosts are the names of the gateway that a request may ask for.
	Hosts() []string
	// Read returns why a request may read nothing. Nil: it may.
	Read(r *http.Request) *Problem
	// Begin decides about a change and writes the decision down. done is to be called with what came
	// of it.
	Begin(r *http.Request, c *Change) (done func(error), refused *Problem)
	// Refuse writes down that a change is refused.
	Refuse(r *http.Request, c *Change, p *Problem)
}

// A Change is what a request would change.
type Change struct {
	Name     string // of the change: restart, reload
	Upstream string // that it is about; "": it is about the gateway
	Params   []byte // JSON, or nil
}

// A request is one on its way through the handler.
type request struct {
	*http.Request

	name string // what {name} stands for in the path
	body []byte
}

// A Problem is a problem document (RFC 9457): the answer to a request that failed.
type Problem struct { //nolint:errname // the term of the RFC
	Type       string    `json:"type" doc:"the kind of the problem, as urn:farcall:problem:KIND"`
	Title      string    `json:"title"`
	Status     int       `json:"status"`
	Detail     string    `json:"detail" doc:"what is wrong and what to do"`
	Candidates []string  `json:"candidates,omitempty" doc:"names that there are, the likeliest first"`
	Permission string    `json:"permission,omitempty" doc:"the call that a rule of the guard must allow"`
	Findings   []Finding `json:"findings,omitempty" doc:"what is wrong with a configuration"`
}

// A Finding is one problem of a configuration.
type Finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// problems are the kinds of problems by status.
var problems = map[int]string{
	http.StatusBadRequest: "bad-request", http.StatusForbidden: "forbidden",
	http.StatusNotFound:         "not-found",
	http.StatusMethodNotAllowed: "method-not-allowed", http.StatusConflict: "conflict",
	http.StatusRequestEntityTooLarge: "too-large",
	http.StatusUnsupportedMediaType:  "media-type", http.StatusUnprocessableEntity: "invalid",
	http.StatusTooManyRequests:     "too-many-requests",
	http.StatusInternalServerError: "internal", http.StatusNotImplemented: "not-available",
	http.StatusBadGateway:         "upstream",
	http.StatusServiceUnavailable: "unavailable",
}

// NewProblem returns a problem of a status. Detail says what is wrong and what to do.
func NewProblem(status int, detail string) *Problem {
	return &Problem{
		Type: "urn:farcall:problem:" + problems[status], Title: http.StatusText(status),
		Status: status, Detail: detail,
	}
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// write answers a request with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	body, err := jsonv2.Append(nil, p)
	if err != nil {
		body = []byte(`{"type":"about:blank"}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}
