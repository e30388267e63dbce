package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
)

const petsDoc = `openapi: 3.1.0
info: {title: Pets, version: "7"}
paths:
  /pets/{id}:
    get:
      operationId: getPet
      tags: [read]
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    delete:
      operationId: deletePet
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
  /pets:
    post:
      operationId: addPet
      requestBody: {content: {application/json: {schema: {type: object, properties: {name: {type: string}}}}}}
`

// petsAPI is an API that answers with what it was asked.
func petsAPI(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, r.Header.Get("X-Key"), body)
	}))
	t.Cleanup(s.Close)
	return s
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The operations of an HTTP API are tools as any others: named, chosen, guarded, audited and
// pinned, in every revision.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.jsonl")
	doc := writeFile(t, filepath.Join(dir, "pets.yaml"), petsDoc)
	api := petsAPI(t)
	pets := &gateway.Upstream{
		Name: "pets", OpenAPI: &gateway.OpenAPI{Document: doc}, URL: api.URL + "/v1",
		Headers: map[string]string{"X-Key": "k"},
		Tools:   gateway.Filter{Allow: []string{"tag:read", "POST /pets", "deletePet"}},
	}
	c := &gateway.Config{
		Namespace: "always", Upstreams: []*gateway.Upstream{pets, newMock("legacy").tcp(t, "m")},
		Guard: &guard.Config{
			Allow: []guard.Rule{{Calls: []string{"*"}}},
			Deny:  []guard.Rule{{Calls: []string{"tools/call pets/deletePet"}}},
		},
	}
	c.Guard.Anonymous = true
	c.Guard.Audit.File = audit
	l := newLabOf(t, nil, c)
	for _, rev := range era.Revisions() {
		client := l.client(t, mcp.ClientOptions{Era: rev.Name})
		names, missing := toolsOf(t, client)
		if !slices.Contains(names, "pets__getPet") || !slices.Contains(names, "pets__addPet") ||
			slices.Contains(names, "pets__deletePet") || missing != nil {
			t.Errorf("%s: %v, missing %v", rev.Name, names, missing)
		}
		for _, call := range []struct{ tool, args, want string }{
			{"pets__getPet", `{"id":"a b"}`, "GET /v1/pets/a%20b k "},
			{"pets__addPet", `{"name":"Rex"}`, `POST /v1/pets k {"name":"Rex"}`},
		} {
			r, err := client.CallTool(t.Context(), call.tool, jsonrpc.Raw(call.args))
			if err != nil || r.IsError || r.Content[0].Text != call.want {
				t.Errorf("%s: %s: %+v, %v; want %s", rev.Name, call.tool, r, err, call.want)
			}
		}
		if _, err := client.CallTool(t.Context(), "pets__deletePet",
			jsonrpc.Raw(`{"id":"1"}`)); err == nil {
			t.Errorf("%s: what the guard denies was called", rev.Name)
		}
	}
	until(t, "the audit has what was allowed and what was denied", func() bool {
		text, err := os.ReadFile(audit)
		return err == nil && strings.Contains(string(text), "tools/call pets/getPet") &&
			strings.Contains(string(text), "tools/call pets/deletePet")
	})
	if u := l.status(t).Upstreams[0]; !strings.HasPrefix(u.Target, "openapi ") || u.Calls == 0 {
		t.Errorf("the status: %+v", u)
	}
}

// A changed file is another configuration, and the gateway that gets it has its tools.
func TestOpenAPIReload(t *testing.T) {
	dir, api := t.TempDir(), petsAPI(t)
	doc := writeFile(t, filepath.Join(dir, "pets.yaml"), petsDoc)
	file := writeFile(t, filepath.Join(dir, "farcall.yaml"),
		"upstreams:\n  pets: {openapi: pets.yaml, url: "+api.URL+
			", tools: {allow: [GET *, \"GET /pets/**\"]}}\n")
	load := func() *gateway.Config {
		c, err := gateway.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := load()
	if !slices.Contains(before.Files(), doc) {
		t.Errorf("the files are %v", before.Files())
	}
	l := newLabOf(t, nil, before)
	client := l.client(t, mcp.ClientOptions{})
	if names, _ := toolsOf(t, client); strings.Join(names, " ") != "getPet" {
		t.Errorf("the tools are %v", names)
	}
	if changes := load().Changes(before); len(changes) > 0 && changes[0] != "namespace" {
		t.Errorf("without a change: %v", changes)
	}
	writeFile(t, doc, strings.ReplaceAll(petsDoc, "getPet", "readPet"))
	after := load()
	after.Namespace = before.Namespace
	if changes := after.Changes(before); strings.Join(changes, " ") != "~pets (openapi)" {
		t.Errorf("the changes are %v", changes)
	}
	if err := l.Reload(after); err != nil {
		t.Fatal(err)
	}
	until(t, "the tool has its new name", func() bool {
		names, _ := toolsOf(t, client)
		return strings.Join(names, " ") == "readPet"
	})
}

// A document at an address is fetched again: clients see what has changed, and one that is broken
// changes nothing.
func TestOpenAPIRefresh(t *testing.T) {
	var text atomic.Value
	text.Store(petsDoc)
	var fetched atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		io.WriteString(w, text.Load().(string))
	}))
	t.Cleanup(s.Close)
	doc := &gateway.OpenAPI{Document: s.URL + "/pets.yaml", Refresh: 5 * time.Millisecond}
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{
			{
				Name: "pets", OpenAPI: doc, URL: "https://api.example.com",
				Tools: gateway.Filter{Deny: []string{"DELETE *", "DELETE /pets/*"}},
			},
		},
	})
	client := l.client(t, mcp.ClientOptions{})
	tools := func() string {
		names, _ := toolsOf(t, client)
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := tools(); got != "addPet getPet" {
		t.Errorf("the tools are %s", got)
	}
	text.Store(strings.ReplaceAll(petsDoc, "getPet", "readPet"))
	until(t, "the tools change", func() bool { return tools() == "addPet readPet" })
	text.Store("this is no document")
	n := fetched.Load()
	until(t, "it is fetched again", func() bool { return fetched.Load() > n+2 })
	if got := tools(); got != "addPet readPet" {
		t.Errorf("after a broken document the tools are %s", got)
	}
}

func TestOpenAPICheck(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "pets.yaml"), petsDoc)
	writeFile(t, filepath.Join(dir, "none.yaml"), "upstreams: {}\n")
	var many strings.Builder
	many.WriteString("openapi: 3.1.0\ninfo: {title: Many}\nservers: [{url: " +
		"https://api.example.com}]\npaths:\n")
	for i := range 201 {
		fmt.Fprintf(&many, "  /p%d: {get: {operationId: op%d}}\n", i, i)
	}
	writeFile(t, filepath.Join(dir, "many.yaml"), many.String())
	for _, test := range []struct{ is, want string }{
		{"{openapi: gone.yaml, url: https://a.test}", "no such file"},
		{"{openapi: none.yaml, url: https://a.test}", `no member "openapi"`},
		{"{openapi: pets.yaml}", "set url"},
		{"{openapi: pets.yaml, headers: {x-key: k}}", "the document would choose who gets it"},
		{"{openapi: pets.yaml, url: tcp://a.test:1}", "an HTTP API has another address"},
		{"{openapi: pets.yaml, url: https://a.test, command: x}", "an HTTP API has none"},
		{"{openapi: pets.yaml, url: https://a.test, profile: raw}", "tools of MCP"},
		{"{openapi: pets.yaml, url: https://a.test, forward_headers: [x-id]}", "an HTTP API has none"},
		{"{openapi: http://a.test/pets.yaml, url: https://a.test}", "cannot be fetched"},
		{
			"{openapi: {document: pets.yaml, slim: much}, url: https://a.test}",
			`there is no kind of schemas "much"`,
		},
		{"{openapi: {documents: pets.yaml}, url: https://a.test}", "did you mean document?"},
		{"{openapi: {read_only: true}, url: https://a.test}", "there is no document"},
		{
			"{openapi: many.yaml}",
			"choose some with tools.allow and tools.deny, those that read with openapi.read_only, or " +
				"raise openapi.max_tools",
		},
		{"{openapi: pets.yaml, url: https://a.test, auth: {type: passthrough}}", "lifetime: principal"},
	} {
		_, err := gateway.Parse(filepath.Join(dir, "farcall.yaml"),
			[]byte("upstreams:\n  pets: "+test.is+"\n"))
		if bad, ok := errors.AsType[*gateway.ConfigError](err); !ok ||
			!strings.Contains(err.Error(), test.want) || bad.Problems[0].Line != 2 {
			t.Errorf("%s:\n%v\nwant %s", test.is, err, test.want)
		}
	}
	c, err := gateway.Parse(filepath.Join(dir, "farcall.yaml"),
		[]byte("upstreams:\n  pets: {openapi: pets.yaml, url: https://a.test, tools: {allow: [/pets, "+
			"getPet], deny: [\"tag:x\"]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notices()) != 2 ||
		!strings.Contains(c.Notices()[0].Message,
			`the pattern of tools.allow "/pets" matches none of the 3 operations`) {
		t.Errorf("%v, %v", err, c.Notices())
	}
	c, err = gateway.Parse(filepath.Join(dir, "farcall.yaml"),
		[]byte("upstreams:\n  many: {openapi: {document: many.yaml, max_tools: 201}}\n"))
	if err != nil || len(c.Notices()) != 1 ||
		!strings.Contains(c.Notices()[0].Message,
			"there are 201 tools, with a list of about 11100 tokens: most models choose better among "+
				"fewer; choose some with tools.allow") {
		t.Errorf("%v, %v", err, c.Notices())
	}
}
