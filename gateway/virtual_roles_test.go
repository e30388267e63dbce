package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// TestVirtualByRole: in one endpoint each role has its own lists, in every revision. What a
// caller's roles do not have is as what does not exist, in lists, calls, searches and suggestions.
func TestVirtualByRole(t *testing.T) {
	t.Parallel()
	conf, err := gateway.Parse("f.yaml", []byte(`
namespace: always
upstreams: {files: {command: a}, tracker: {command: b}}
guard: {anonymous: true}
endpoints:
  team:
    tools: [files/*, tracker/create]
    deny: [files/delete]
    roles:
      reader: {tools: [files/read, files/delete, tracker/list], resources: ["files/files:r*"], prompts: []}
      writer: {tools: [tracker/*], deny: [tracker/list], prompts: [tracker/report]}
      all:
  found:
    tools: [files/*, tracker/create]
    search: true
    roles: {reader: {tools: [files/read]}, all: }
`))
	if err != nil {
		t.Fatal(err)
	}
	conf.Upstreams = officeServers()
	for _, u := range conf.Upstreams {
		for _, name := range []string{"report", "ask"} {
			u.Server.AddPrompt(mcp.Prompt{Name: name},
				func(context.Context, map[string]string) (*mcp.PromptResult, error) {
					return &mcp.PromptResult{
						Messages: []mcp.PromptMessage{{Role: spec.RoleUser, Content: mcp.Text(name)}},
					}, nil
				})
		}
		u.Server.AddTemplate(mcp.ResourceTemplate{URITemplate: u.Name + ":r/{x}", Name: "r"},
			func(_ context.Context, uri string, _ mcp.Vars) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: "r"}}, nil
			})
		u.Server.AddTemplate(mcp.ResourceTemplate{URITemplate: u.Name + ":s/{x}", Name: "s"},
			func(_ context.Context, uri string, _ mcp.Vars) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: "s"}}, nil
			})
	}
	conf.Guard = guarded(guard.Rule{Calls: []string{"**"}})
	who := map[string][]string{
		"ro": {"reader"}, "wr": {"writer", "other"},
		"both": {"reader", "writer"}, "boss": {"all", "reader"}, "none": {"other"},
	}
	for id, roles := range who {
		conf.Guard.Keys = append(conf.Guard.Keys,
			guard.Key{ID: id, Hash: hashOf(keyed(id)), Roles: roles})
	}
	l := newLabOf(t, nil, conf)
	dial := func(path, id, era string) (*mcp.Client, error) {
		h := http.Header{"X-Api-Key": {keyed(id)}}
		return mcp.Dial(t.Context(), l.url+path,
			&mcp.ClientOptions{Era: era, HTTP: &mcphttp.DialOptions{Header: h}})
	}
	for id, want := range map[string]string{
		"ro": "files__read | files+files:readme | files+files:r/{x} | ",
		"wr": "tracker__create | tracker+tracker:readme | tracker+tracker:r/{x} " +
			"tracker+tracker:s/{x} | tracker__report",
		"both": "files__read tracker__create | files+files:readme tracker+tracker:readme | " +
			"files+files:r/{x} tracker+tracker:r/{x} tracker+tracker:s/{x} | tracker__report",
		"boss": "files__read files__list files__create tracker__create | files+files:readme " +
			"tracker+tracker:readme | " +
			"files+files:r/{x} files+files:s/{x} tracker+tracker:r/{x} tracker+tracker:s/{x} | " +
			"files__report files__ask tracker__report tracker__ask",
	} {
		for _, era := range []string{"legacy", "modern"} {
			c, err := dial("/mcp/team", id, era)
			if err != nil {
				t.Fatal(id, err)
			}
			if got := strings.Join(slices.Collect(listsOf(t, c)), " | "); got != want {
				t.Errorf("%s, %s has\n%s, want\n%s", id, era, got, want)
			}
			called, issued := "", map[string]any{"owner": "x", "body": "y"}
			_, none := c.CallTool(t.Context(), "no-such", issued)
			for _, tool := range []string{
				"files__read", "files__list", "files__delete", "files__create",
				"tracker__create", "tracker__list",
			} {
				args := issued
				if !strings.HasSuffix(tool, "create") {
					args = nil
				}
				_, err := c.CallTool(t.Context(), tool, args)
				if hidden := !strings.Contains(" "+want, " "+tool+" "); !hidden && err == nil {
					called += tool
				} else if hidden != (err != nil) ||
					hidden && strings.Replace(err.Error(), tool, "no-such", 1) != none.Error() &&
						!strings.Contains(err.Error(), "did you mean") {
					t.Errorf("%s, %s calls %s: %v; one that does not exist: %v", id, era, tool, err, none)
				} else if _, near, meant := strings.Cut(err.Error(), "did you mean "); meant &&
					!strings.Contains(" "+want, " "+near[:strings.Index(near, "?")]+" ") {
					t.Errorf("%s, %s: %s suggests what is hidden: %v", id, era, tool, err)
				}
			}
			if called == "" {
				t.Errorf("%s, %s calls nothing", id, era)
			}
			for uri, of := range map[string]string{
				"files+files:readme": "ro both boss",
				"files+files:r/1":    "ro both boss", "files+files:s/1": "boss",
				"tracker+tracker:s/1": "wr both boss",
			} {
				if _, err := c.Read(t.Context(), uri); (err == nil) != slices.Contains(strings.Fields(of), id) {
					t.Errorf("%s, %s reads %s: %v", id, era, uri, err)
				}
			}
			for prompt, of := range map[string]string{
				"tracker__report": "wr both boss",
				"files__ask":      "boss",
			} {
				if _, err := c.Prompt(t.Context(), prompt,
					nil); (err == nil) != slices.Contains(strings.Fields(of), id) {
					t.Errorf("%s, %s gets %s: %v", id, era, prompt, err)
				}
			}
			c.Close()
		}
	}
	for id, want := range map[string]string{
		"ro":   "[files__read]",
		"boss": "[files__create files__delete files__list files__read tracker__create]",
	} {
		c, err := dial("/mcp/found", id, "modern")
		if err != nil {
			t.Fatal(err)
		}
		got := found(t, c, "read list create delete")
		slices.Sort(got)
		if fmt.Sprint(got) != want {
			t.Errorf("%s finds %v, want %s", id, got, want)
		}
		if _, err := c.CallTool(t.Context(), "call_tool",
			map[string]any{"name": "files__list"}); (err == nil) != (id == "boss") {
			t.Errorf("%s calls what it cannot find: %v", id, err)
		}
		c.Close()
	}
	_, missing := dial("/mcp/nothing", "none", "modern")
	if _, err := dial("/mcp/team", "none", "modern"); err == nil || missing == nil ||
		strings.Replace(err.Error(), "team", "nothing", 1) != missing.Error() {
		t.Errorf("without a role: %v; no endpoint: %v", err, missing)
	}
}

// listsOf yields the names in each list.
func listsOf(t *testing.T, c *mcp.Client) func(yield func(string) bool) {
	var tools, resources, templates, prompts []string
	all, err := c.Tools(t.Context())
	for _, one := range all {
		tools = append(tools, one.Name)
	}
	some, err2 := c.Resources(t.Context())
	for _, one := range some {
		resources = append(resources, one.URI)
	}
	patterns, err3 := c.Templates(t.Context())
	for _, one := range patterns {
		templates = append(templates, one.URITemplate)
	}
	asks, err4 := c.Prompts(t.Context())
	for _, one := range asks {
		prompts = append(prompts, one.Name)
	}
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return slices.Values([]string{
		strings.Join(tools, " "), strings.Join(resources, " "),
		strings.Join(templates, " "), strings.Join(prompts, " "),
	})
}
