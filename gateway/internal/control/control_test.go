package control

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// fake is a gateway with one upstream, a, and an access that lets everything pass and counts.
type fake struct {
	begun, ended, refused int
	err                   error // of the last change
}

func (*fake) Hosts() []string             { return nil }
func (*fake) Read(*http.Request) *Problem { return nil }

func (f *fake) Usage(context.Context, string) (*Usage, error) { return &Usage{}, nil }

func (f *fake) Tools(context.Context, string) (*Tools, error) { return &Tools{}, nil }

func (f *fake) Begin(*http.Request, *Change) (func(error), *Problem) {
	f.begun++
	return func(err error) { f.ended, f.err = f.ended+1, err }, nil
}

func (f *fake) Refuse(*http.Request, *Change, *Problem) { f.refused++ }

func (*fake) Overview(context.Context) *Overview   { return &Overview{} }
func (*fake) Cluster(context.Context) *Cluster     { return &Cluster{Nodes: []Node{}} }
func (*fake) Upstreams(context.Context) *Upstreams { return &Upstreams{} }

func (*fake) Upstream(_ context.Context, name string) (*UpstreamDetails, error) {
	if name != "a" {
		return nil, NewProblem(http.StatusNotFound, "there is no such upstream")
	}
	return &UpstreamDetails{}, nil
}

func (f *fake) Restart(ctx context.Context, name string, _ *Restart) (*Upstream, error) {
	return f.Enable(ctx, name)
}

func (f *fake) Drain(ctx context.Context, name string) (*Upstream, error) {
	return f.Enable(ctx, name)
}

func (f *fake) Disable(ctx context.Context, name string) (*Upstream, error) {
	return f.Enable(ctx, name)
}

func (f *fake) Enable(ctx context.Context, name string) (*Upstream, error) {
	_, err := f.Upstream(ctx, name)
	return &Upstream{}, err
}

func (*fake) Sessions(context.Context) *Sessions                   { return &Sessions{} }
func (*fake) Calls(context.Context) *Calls                         { return &Calls{} }
func (*fake) EndSession(context.Context, string) (*Session, error) { return &Session{}, nil }

func (*fake) SignIns(context.Context) (*SignIns, error) { return &SignIns{}, nil }

func (*fake) EndSignIns(context.Context, *EndSignIns) (*EndedSignIns, error) {
	return &EndedSignIns{}, nil
}

func (*fake) LogLevel(context.Context) (*LogLevel, error) {
	return &LogLevel{}, nil
}
func (*fake) SetLogLevel(_ context.Context, to *LogLevel) (*LogLevel, error) { return to, nil }
func (*fake) Reload(context.Context) (*Reloaded, error) {
	return &Reloaded{}, nil
}

func (*fake) Dump(context.Context) (*Dumped, error)                   { return &Dumped{}, nil }
func (*fake) Pins(context.Context) (*Pins, error)                     { return &Pins{}, nil }
func (*fake) PinChanges(context.Context, string) (*PinChanges, error) { return &PinChanges{}, nil }

func (*fake) AcceptPins(context.Context, string, *AcceptPins) (*PinChanges, error) {
	return &PinChanges{}, nil
}

func (*fake) Explain(context.Context, *Question) (*Explanation, error) {
	return &Explanation{}, nil
}

// send sends a request to a handler.
func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://localhost/",
		strings.NewReader(body))
	r.URL.Path, r.URL.RawPath, r.Host = path, "", "localhost"
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`
}

// The document has each route, and nothing else.
func TestDocument(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			ID         string         `json:"operationId"`
			Permission string         `json:"x-farcall-permission"`
			Parameters []parameter    `json:"parameters"`
			Body       map[string]any `json:"requestBody"`
			Responses  map[string]any `json:"responses"`
		} `json:"paths"`
	}
	f := &fake{}
	if err := jsonv2.Unmarshal(send(New(f, f), http.MethodGet, base+document, "").Body.Bytes(),
		&doc); err != nil {
		t.Fatal(err)
	}
	documented := 0
	for _, methods := range doc.Paths {
		documented += len(methods)
	}
	if documented != len(routes) {
		t.Errorf("%d operations are documented, there are %d routes", documented, len(routes))
	}
	var ids []string
	for _, r := range routes {
		op := doc.Paths[cmp.Or(r.path, "/")][strings.ToLower(r.method)]
		if op.ID == "" || slices.Contains(ids, op.ID) {
			t.Errorf("%s %s has no unique operationId", r.method, r.path)
		}
		ids = append(ids, op.ID)
		if (op.Permission != "") != r.changes() || (op.Body != nil) != (r.in != nil) ||
			op.Responses["200"] == nil || op.Responses["default"] == nil {
			t.Errorf("%s %s is documented as %+v", r.method, r.path, op)
		}
		if r.changes() == (r.method == http.MethodGet) {
			t.Errorf("%s %s: GET reads, and nothing else does", r.method, r.path)
		}
		if named := strings.Contains(r.path,
			"{"); named != slices.ContainsFunc(op.Parameters, func(p parameter) bool {
			return p.In == "path"
		}) {
			t.Errorf("%s %s: the parameters are %v", r.method, r.path, op.Parameters)
		}
	}
}

// A body beyond the bound is refused, and that is written down.
func TestBodyBound(t *testing.T) {
	for n, want := range map[int]int{
		maxBody:     http.StatusOK,
		maxBody + 1: http.StatusRequestEntityTooLarge,
	} {
		f := &fake{}
		body := "{}" + strings.Repeat(" ", n-2)
		if got := send(New(f, f), http.MethodPost, base+"/reload", body); got.Code != want ||
			f.begun+f.refused != 1 {
			t.Errorf("%d bytes: %d, begun %d, refused %d: %s", n, got.Code, f.begun, f.refused, got.Body)
		}
	}
}

// Whatever is sent, a change is begun and ended once, or refused once, or is none; and what is no
// success is a problem document.
func FuzzHandler(f *testing.F) {
	for _, r := range routes {
		f.Add(r.method, base+strings.ReplaceAll(r.path, "{name}", "a"), "{}", "application/json", "")
	}
	f.Add("POST", base+"/upstreams/a/restart", `{"graceful":1}`, "application/json; charset=utf-8", "")
	f.Add("POST", base+"/upstreams/%2f/restart", `{"a":1,"a":2}`, "text/plain", "http://evil.example")
	f.Add("PUT", base+"/log-level", `[`, "application/x-www-form-urlencoded", "null")
	f.Add("GET", base+"/explain?call=%zz", ``, "", "")
	f.Fuzz(func(t *testing.T, method, path, body, kind, origin string) {
		if !validMethod(method) || strings.ContainsAny(kind+origin, "\r\n\x00") {
			t.Skip()
		}
		x := &fake{}
		headers := []string{"Content-Type: " + kind}
		if origin != "" {
			headers = append(headers, "Origin: "+origin)
		}
		got := send(New(x, x), method, path, body, headers...)
		if x.begun != x.ended || x.begun+x.refused > 1 {
			t.Errorf("begun %d, ended %d, refused %d", x.begun, x.ended, x.refused)
		}
		if x.begun == 1 && (kind == "" || origin != "" && origin != "http://localhost" &&
			origin != "https://localhost") && !strings.EqualFold(origin, "http://localhost") {
			t.Errorf("a change has begun: %q from %q", kind, origin)
		}
		if got.Code != http.StatusOK {
			var p Problem
			if err := jsonv2.Unmarshal(got.Body.Bytes(), &p); err != nil || p.Status != got.Code ||
				p.Detail == "" {
				t.Errorf("%d: %s", got.Code, got.Body)
			}
		} else if method != http.MethodGet && method != http.MethodHead && x.err != nil {
			t.Errorf("answered with success: %v", x.err)
		}
	})
}

func validMethod(m string) bool {
	return slices.Contains(
		[]string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"}, m)
}
