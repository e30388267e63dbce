package interop

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Apps of two published servers are shown through the merged address of a gateway, by a host with
// the modules that hosts have: pages are read by qualified URIs, and one calls a tool by the name
// that its own server has given to it.
func TestMCPAppsGateway(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	f := gatewayOf(t, "",
		runs("budget", npm(t, "server-budget-allocator", "--stdio")),
		runs("cohorts", npm(t, "server-cohort-heatmap", "--stdio")),
	)
	var got struct {
		Revision string
		Apps     []struct {
			Tool, URI, Page, Name, Text string
			Calls                       []struct {
				Name   string
				Failed bool
			}
		}
		Complaints []string
	}
	out := node(t, nil, "apps-gateway.mjs", "http://"+f.address+"/mcp", browser, t.TempDir(),
		t.ArtifactDir(), "budget__get-budget-data", "cohorts__get-cohort-data")
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Apps) != 2 || len(got.Complaints) > 0 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []struct{ uri, text, calls string }{
		{"ui://budget+/budget-allocator/mcp-app.html", "Marketing", ""},
		{"ui://cohorts+/get-cohort-data/mcp-app.html", "Retention", "get-cohort-data"},
	} {
		app := got.Apps[i]
		if app.URI != want.uri || app.Page != want.uri || app.Name == "" ||
			!strings.Contains(app.Text, want.text) {
			t.Errorf("%+v, want %+v", app, want)
		}
		failed := slices.ContainsFunc(app.Calls, func(c struct {
			Name   string
			Failed bool
		},
		) bool {
			return c.Failed || c.Name != want.calls
		})
		if failed || (len(app.Calls) > 0) != (want.calls != "") {
			t.Errorf("the app of %s has called %+v", app.Tool, app.Calls)
		}
	}
}
