package gateway_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

const operationRules = `upstreams:
  pets: {openapi: pets.yaml, url: URL}
  other: {openapi: {document: pets.yaml}, url: URL}
guard:
  anonymous: true
  allow: [{calls: ["tools/call pets/GET *", "tools/call pets/* /pets/*"]}]
  deny: [{calls: ["tools/call */delete /pets/{id}"]}]
  local: ["tools/call other/POST /pets"]
  resource: {url: "http://127.0.0.1/mcp", scopes: {"tools/call pets/POST /pets": [write]}}
  limits: {rates: [{calls: "tools/call pets/GET /pets/*", limit: 1000/s}]}
`

// Patterns that name operations are about the tools of these operations, in every part of a guard,
// and stay as they are.
func TestOperationRules(t *testing.T) {
	dir := t.TempDir()
	api := petsAPI(t)
	writeFile(t, filepath.Join(dir, "pets.yaml"), petsDoc)
	file := writeFile(t, filepath.Join(dir, "farcall.yaml"),
		strings.ReplaceAll(operationRules, "URL", api.URL))
	whole, err := gateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := gateway.LoadGuard(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*gateway.Config{"Load": whole, "LoadGuard": alone} {
		g := c.Guard
		for _, test := range []struct {
			is   []string
			want string
		}{
			{
				g.Allow[0].Calls,
				"tools/call pets/GET *|tools/call pets/* /pets/*|tools/call pets/getPet|tools/call " +
					"pets/deletePet",
			},
			{
				g.Deny[0].Calls,
				"tools/call */delete /pets/{id}|tools/call pets/deletePet|tools/call other/deletePet",
			},
			{g.Local, "tools/call other/POST /pets|tools/call other/addPet"},
			{g.Limits.Rates[0].Calls, "tools/call pets/GET /pets/*|tools/call pets/getPet"},
			{g.Resource.Scopes["tools/call pets/addPet"], "write"},
		} {
			if got := strings.Join(test.is, "|"); got != test.want {
				t.Errorf("%s: %s\nwant %s", name, got, test.want)
			}
		}
		if !slices.Contains(c.Files(), filepath.Join(dir, "pets.yaml")) {
			t.Errorf("%s: the files are %v", name, c.Files())
		}
	}
	whole.Guard.Resource.URL, whole.Guard.Resource.Scopes = "", nil
	l := newLabOf(t, nil, whole)
	client := l.client(t, mcp.ClientOptions{})
	for tool, allowed := range map[string]bool{
		"pets__getPet": true, "pets__deletePet": false,
		"pets__addPet": false, "other__getPet": false,
	} {
		if _, err := client.CallTool(t.Context(), tool, jsonrpc.Raw(`{"id":"1"}`)); (err == nil) !=
			allowed {
			t.Errorf("%s: %v", tool, err)
		}
	}
}

// Names without an operation are reported, and what cannot be known is refused.
func TestOperationRulesCheck(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "pets.yaml"), petsDoc)
	for rule, want := range map[string]string{
		"tools/call pets/PATCH *":  "it names none of the operations that are tools",
		"tools/call dogs/GET *":    "no upstream dogs has openapi",
		"tools/call far/DELETE /*": "not known before its document has been fetched",
	} {
		text := "upstreams:\n  pets: {openapi: pets.yaml, url: https://a.test}\n  far: {openapi: " +
			"https://a.test/pets.yaml}\nguard: {anonymous: true, allow: [{calls: \"*\"}], " +
			"deny: [{calls: \"" + rule + "\"}]}\n"
		c, err := gateway.Parse(filepath.Join(dir, "farcall.yaml"), []byte(text))
		var said strings.Builder
		if err != nil {
			said.WriteString(err.Error())
		} else {
			for _, n := range c.Notices() {
				said.WriteString(n.String() + "\n")
			}
		}
		if !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "4:") {
			t.Errorf("%s: %s\nwant %s", rule, said.String(), want)
		}
	}
}

// A configuration that was made in Go has no tools of operations: such a rule would do nothing, and
// is refused.
func TestOperationRulesInGo(t *testing.T) {
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{{Name: "pets", URL: "https://a.test"}},
		Guard: &guard.Config{
			Allow: []guard.Rule{{Calls: []string{"*"}}},
			Deny:  []guard.Rule{{Calls: []string{"tools/call pets/DELETE *"}}},
		},
	}
	c.Guard.Anonymous = true
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "guard.deny[0].calls[0]: ") ||
		!strings.Contains(err.Error(), "name the tools") {
		t.Errorf("the error is %v", err)
	}
}
