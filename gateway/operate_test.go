package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/observe/levels"
)

// An operation is one of the API, as the OpenAPI document has it.
type operation struct {
	method, path, permission string
	body                     bool // it takes one
}

// operations reads the document of the API.
func (l *lab) operations(t *testing.T, headers ...string) (all []operation) {
	t.Helper()
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			Permission string          `json:"x-farcall-permission"`
			Body       json.RawMessage `json:"requestBody"`
		} `json:"paths"`
	}
	got := l.ask(t, http.MethodGet, "/openapi.json", "", headers...)
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != http.StatusOK ||
		doc.OpenAPI != "3.1.0" {
		t.Fatal(got, err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all = append(all, operation{strings.ToUpper(method), path, op.Permission, op.Body != nil})
		}
	}
	slices.SortFunc(all, func(a, b operation) int {
		return strings.Compare(a.path+a.method, b.path+b.method)
	})
	return all
}

// An answer is that of a request to the API.
type answer struct {
	status int
	kind   string
	body   string
}

// problem reads a problem document.
func (a *answer) problem(t *testing.T) (p struct {
	Type, Title, Detail, Permission string
	Status                          int
	Candidates                      []string
},
) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.kind != "application/problem+json" ||
		p.Status != a.status || p.Detail == "" {
		t.Errorf("no problem document: %+v, %v", a, err)
	}
	return p
}

// ask sends a request to the API. A header Host is that of the request.
func (l *lab) ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, l.url+"/api/v1"+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	got, err := l.web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{got.StatusCode, got.Header.Get("Content-Type"), string(text)}
}

// read reads an answer of the API into what v points to.
func (l *lab) read(t *testing.T, path string, v any, headers ...string) {
	t.Helper()
	got := l.ask(t, http.MethodGet, path, "", headers...)
	if err := json.Unmarshal([]byte(got.body), v); err != nil || got.status != http.StatusOK ||
		got.kind != "application/json" {
		t.Fatal(got, err)
	}
}

// audited are the decisions of an audit about changes, and about requests without credentials, as
// often as they were made. Equal refusals of one caller are counted in one line. Refusals for which
// there was no room at the moment are counted only: unwritten.
func audited(t *testing.T, file string) (calls []string, unwritten int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var d struct {
			Call, Decision, Principal string
			Repeats                   *int
			Unwritten                 int
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		unwritten += d.Unwritten
		if d.Decision != "" &&
			(strings.HasPrefix(d.Call, "gateway/admin ") || strings.HasPrefix(d.Call, "http ")) {
			n := 1
			if d.Repeats != nil {
				n = *d.Repeats
			}
			calls = append(calls,
				slices.Repeat([]string{d.Call + " " + d.Decision + " " + d.Principal}, n)...)
		}
	}
	return calls, unwritten
}

// Operators see the gateway and its upstreams, also those that the configuration disables.
func TestOperatorReads(t *testing.T) {
	off := child("off", "ok")
	off.Disabled = true
	l := newLab(t, nil, child("a", "ok"), off)
	if _, err := l.modern(t.Context(), "tools/call", "a__echo",
		`"name":"a__echo","arguments":{"text":"x"}`); err != nil {
		t.Fatal(err)
	}
	var all struct {
		Upstreams []struct {
			Name, State, Reason string
			Processes, Tools    int
		}
	}
	l.read(t, "/upstreams", &all)
	if len(all.Upstreams) != 2 || all.Upstreams[0].State != "up" || all.Upstreams[0].Processes != 1 ||
		all.Upstreams[0].Tools == 0 ||
		all.Upstreams[1].State != "disabled" ||
		!strings.Contains(all.Upstreams[1].Reason, "configuration") {
		t.Errorf("%+v", all)
	}
	var whole struct {
		Name      string
		Upstreams map[string]int
	}
	l.read(t, "", &whole)
	if whole.Name != "farcall" || whole.Upstreams["up"] != 1 || whole.Upstreams["disabled"] != 1 {
		t.Errorf("%+v", whole)
	}
	var one struct {
		Upstream struct{ Name string }
		Stderr   []string
	}
	l.read(t, "/upstreams/a", &one)
	if one.Upstream.Name != "a" || one.Stderr == nil {
		t.Errorf("%+v", one)
	}
}

// What is wrong with a request is answered with a problem document that says what to do.
func TestOperatorProblems(t *testing.T) {
	l := newLab(t, nil, child("files", "ok"), child("web", "ok"))
	missing := l.ask(t, http.MethodGet, "/upstreams/flies", "")
	if p := missing.problem(t); p.Status != 404 || len(p.Candidates) != 2 ||
		p.Candidates[0] != "files" || !strings.Contains(p.Detail, `did you mean "files"?`) {
		t.Errorf("%+v", p)
	}
	nowhere := l.ask(t, http.MethodGet, "/nowhere", "")
	if p := nowhere.problem(t); p.Status != 404 ||
		!strings.Contains(p.Detail, "/api/v1/openapi.json") {
		t.Errorf("%+v", p)
	}
	wrong := l.ask(t, http.MethodDelete, "/upstreams", "")
	if p := wrong.problem(t); p.Status != 405 || !slices.Equal(p.Candidates, []string{"GET"}) {
		t.Errorf("%+v", p)
	}
	if got := l.ask(t, http.MethodHead, "/upstreams", ""); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{
		"/upstreams/a%2fb", "/upstreams/%00", "/upstreams/..",
		"/upstreams/%ff",
	} {
		if got := l.ask(t, http.MethodGet, path, ""); got.status < 400 || got.status >= 500 {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// Reads are for those who may see the page, and for no page of another origin.
func TestOperatorReadsGuarded(t *testing.T) {
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{child("a", "ok")},
		Guard:     guarded(allow("ops", "gateway/*"), allow("dev", "gateway/status")),
	}
	c.Guard.Anonymous = true
	c.Guard.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	l := newLabOf(t, &gateway.Options{LogLevels: levels.New(levels.Standard()...)}, c)
	for _, op := range l.operations(t, as("dev")) {
		if op.method != http.MethodGet {
			continue
		}
		path := pathOf(op)
		for headers, want := range map[string]int{
			as("ops"): 200, as("dev"): 200, as("eve"): 403, "X-None: 1": 403,
			as("ops") + "\nOrigin: http://evil.example":      403,
			as("ops") + "\nSec-Fetch-Site: cross-site":       403,
			as("ops") + "\nHost: evil.example":               403,
			as("ops") + "\nOrigin: null":                     403,
			as("ops") + "\nOrigin: http://" + l.host():       200,
			"X-Api-Key: fc_wrong-0123456789abcdef0123456789": 401,
		} {
			got := l.ask(t, op.method, path, "", strings.Split(headers, "\n")...)
			if want == 200 && (got.status == http.StatusBadRequest || strings.Contains(op.path, "pins")) {
				// it lacks its parameters, or a lock file
				continue
			}
			if got.status != want {
				t.Errorf("%s as %q: %+v, want %d", path, headers, got, want)
			}
		}
	}
	got := l.ask(t, http.MethodGet, "/upstreams", "", as("eve"))
	if p := got.problem(t); p.Permission != "gateway/status" {
		t.Errorf("%+v", p)
	}
}

// Without a guard only this machine gets in: what a proxy passes on does not come from there.
func TestOperatorOutside(t *testing.T) {
	l := newLab(t, nil, child("a", "ok"))
	for _, header := range []string{
		"X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1",
		"Via: 1.1 proxy",
	} {
		for _, op := range l.operations(t) {
			got := l.ask(t, op.method, pathOf(op), "", header)
			if p := got.problem(t); p.Status != 403 || !strings.Contains(p.Detail, "configure a guard") {
				t.Errorf("%+v: %+v", op, p)
			}
		}
	}
}

func (l *lab) host() string { return strings.TrimPrefix(l.url, "http://") }

// farcall itself can use the document: its operations are tools of an upstream.
func TestOperatorOpenAPI(t *testing.T) {
	inner := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{child("a", "ok")}, Guard: guarded(allow("ops", "gateway/*")),
	})
	doc := inner.ask(t, http.MethodGet, "/openapi.json", "", as("ops"))
	outer := newLab(t, nil, &gateway.Upstream{
		Name: "ops",
		OpenAPI: &gateway.OpenAPI{
			Document: writeFile(t, filepath.Join(t.TempDir(), "openapi.json"), doc.body),
		}, URL: inner.url + "/api/v1",
		Headers: map[string]string{"X-API-Key": keyed("ops")},
	})
	tools, err := outer.modern(t.Context(), "tools/list", "", "")
	if err != nil || tools.err != nil {
		t.Fatal(tools, err)
	}
	for _, op := range []string{"listUpstreams", "getUpstream", "getOverview"} {
		if !strings.Contains(tools.body, `"`+op+`"`) {
			t.Errorf("there is no tool for %s: %.2000s", op, tools.body)
		}
	}
	got, err := outer.modern(t.Context(), "tools/call", "getUpstream",
		`"name":"getUpstream","arguments":{"name":"a"}`)
	if err != nil || got.err != nil || !strings.Contains(got.body, `\"profile\"`) {
		t.Errorf("%v, %v", got, err)
	}
}

// A sender is a way to send a change, which happens only for admin.
type sender struct {
	name, who string // who is "" when the guard refuses the credentials
	headers   []string
}

var admin = sender{name: "admin", who: "ops", headers: []string{as("ops")}}

// sendersOf are an admin, and all that must not get in: foreign says whether the host counts,
// because callers need no credentials.
func sendersOf(anonymous bool) []sender {
	evil, rebound := "Origin: http://evil.example", "Host: evil.example"
	all := []sender{
		admin,
		{"reader", "dev", []string{as("dev")}},
		{"no role", "eve", []string{as("eve")}},
		{"admin, foreign origin", "ops", []string{as("ops"), evil}},
		{"reader, foreign origin", "dev", []string{as("dev"), evil}},
		{"admin, origin that may call tools", "ops", []string{as("ops"), "Origin: https://app.example"}},
		{"admin, origin null", "ops", []string{as("ops"), "Origin: null"}},
		{"admin, another site", "ops", []string{as("ops"), "Sec-Fetch-Site: cross-site"}},
		{"admin, a form", "ops", []string{as("ops"), "Content-Type: application/x-www-form-urlencoded"}},
		{"admin, a form as text", "ops", []string{as("ops"), "Content-Type: text/plain"}},
		{"wrong credentials", "", []string{"X-Api-Key: fc_wrong-0123456789abcdef0123456789"}},
	}
	if !anonymous {
		return append(all, sender{name: "no credentials"},
			sender{"no credentials, rebound host", "", []string{rebound}})
	}
	return append(all, sender{name: "no credentials", who: "anonymous"},
		sender{"no credentials, rebound host", "anonymous", []string{rebound}},
		sender{"admin, rebound host", "ops", []string{as("ops"), rebound}})
}

// For every change and every sender: it happens only for admin, and leaves one record, also when it
// is refused.
func TestOperatorChanges(t *testing.T) {
	for _, anonymous := range []bool{false, true} {
		c := &gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{child("a", "ok"), child("b", "ok")},
			Guard: guarded(allow("ops", "gateway/*"), allow("dev", "gateway/status")),
		}
		c.Guard.Anonymous = anonymous
		c.Guard.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
		reloads := 0
		l := newLabOf(t, &gateway.Options{
			Origins: []string{"https://app.example"}, LogLevels: levels.New(levels.Standard()...),
			Reload: func() ([]string, error) { reloads++; return nil, nil },
		}, c)
		var records []string
		all, changes := sendersOf(anonymous), 0
		for _, op := range l.operations(t, as("dev")) {
			if op.permission == "" {
				continue
			}
			changes++
			for _, s := range all {
				records = append(records, l.change(t, op, &s))
			}
		}
		if reloads != 1 {
			t.Errorf("the configuration was read %d times", reloads)
		}
		if err := l.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, unwritten := audited(t, c.Guard.Audit.File)
		if more, less := minus(got, records), minus(records, got); len(more) > 0 ||
			len(less) != unwritten {
			t.Errorf("the audit has more of %v, and lacks %v; it has counted %d that were not written", more,
				less, unwritten)
		}
		t.Logf("%d changes, %d senders, anonymous %v: %d records", changes, len(all), anonymous,
			len(records))
	}
}

// minus are the texts of one list, as often as they are there, without those of another one.
func minus(a, b []string) []string {
	left := slices.Clone(a)
	for _, text := range b {
		if i := slices.Index(left, text); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	return left
}

// change has a sender send a change, and returns the record that it must leave.
func (l *lab) change(t *testing.T, op operation, s *sender) (record string) {
	t.Helper()
	before, path := l.whole(t), pathOf(op)
	call := strings.ReplaceAll(op.permission, "UPSTREAM", "a")
	got := l.ask(t, op.method, path, bodyOf(op), s.headers...)
	switch {
	case s.name == admin.name:
		if got.status == http.StatusForbidden || got.status == http.StatusUnauthorized {
			t.Errorf("%v by %s: %+v", op, s.name, got)
		}
		return call + " allowed " + s.who
	case got.status < 400 || got.status >= 500:
		t.Errorf("%v by %s: %+v", op, s.name, got)
	}
	if after := l.whole(t); after != before {
		t.Errorf("%v by %s has changed something:\n%s\n%s", op, s.name, before, after)
	}
	if s.who == "" {
		return "http " + op.method + " /api/v1" + path + " refused "
	}
	if p := got.problem(t); p.Permission != call && !strings.Contains(s.name, ",") {
		t.Errorf("%v by %s: the permission is not named: %+v", op, s.name, got)
	}
	return call + " denied " + s.who
}

func pathOf(op operation) string {
	return strings.NewReplacer("{name}", "a", "{id}", "none").Replace(op.path)
}

// bodyOf is the body of a change.
func bodyOf(op operation) string {
	switch {
	case strings.HasSuffix(op.path, "/log-level"):
		return `{"level":"warn"}`
	case strings.HasSuffix(op.path, "/accept"):
		return `{"digest":"0"}`
	}
	return "{}"
}

// whole is what a change may change.
func (l *lab) whole(t *testing.T) string {
	t.Helper()
	got := l.ask(t, http.MethodGet, "/upstreams", "", as("dev"))
	var all struct {
		Upstreams []struct {
			Name, State, Reason string
			Processes           int
		}
	}
	if err := json.Unmarshal([]byte(got.body), &all); err != nil || got.status != http.StatusOK {
		t.Fatal(got, err)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + l.ask(t, http.MethodGet, "/log-level", "", as("dev")).body
}
