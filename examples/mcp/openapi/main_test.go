package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// connect connects a client with a server in memory, until the end of the test.
func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	near, far := farcall.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	c, err := mcp.Connect(t.Context(), near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

const document = `{
	"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"},
	"paths": {"/pets/{id}": {
		"get": {
			"operationId": "getPet", "summary": "Get a pet",
			"parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}],
			"responses": {"200": {"description": "A pet", "content": {"application/json": {"schema": {"type": "object"}}}}}
		},
		"delete": {"operationId": "deletePet", "responses": {"204": {"description": "Deleted"}}}
	}}
}`

func TestOpenAPI(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/v1/pets/7" {
			http.Error(w, "no such pet", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"name":"Rex"}`)
	}))
	defer api.Close()
	name := filepath.Join(t.TempDir(), "pets.json")
	if err := os.WriteFile(name, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := newServer(name, api.URL+"/v1", "secret")
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, s, nil)
	tools, err := c.Tools(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Name != "getPet" ||
		!strings.Contains(tools[0].Description, "(GET /pets/{id})") {
		t.Errorf("tools: %+v, %v", tools, err)
	}
	pet, err := mcp.CallTool[map[string]string](t.Context(), c, "getPet", map[string]any{"id": 7})
	if err != nil || pet["name"] != "Rex" {
		t.Errorf("%v, %v", pet, err)
	}
	var failure *mcp.ToolError
	if _, err := mcp.CallTool[map[string]string](t.Context(), c, "getPet",
		map[string]any{"id": 8}); !errors.As(err, &failure) {
		t.Errorf("a pet that is not there: %v", err)
	}
}

func TestNoDocument(t *testing.T) {
	if err := run(t.Context(), []string{
		filepath.Join(t.TempDir(), "none.json"),
		"https://example.com",
	}); err == nil {
		t.Error("a document that is not there was served")
	}
}
