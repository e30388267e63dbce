package interop

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/apps"
	"github.com/farcall-dev/farcall/mcp/mcptest"
)

// A host with the library that hosts have reads tools and a page of mcp/apps, and shows the page in
// a browser: the page gets the input and the result of its tool, and calls a tool that only pages
// may call.
func TestMCPAppsHost(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	page, err := os.ReadFile("../mcp/apps/testdata/weather.html")
	if err != nil {
		t.Fatal(err)
	}
	const uri = "ui://weather/today"
	s := mcp.NewServer("weather", "1.0.0", nil)
	apps.AddPage(s, apps.Page{
		URI: uri, Name: "today", HTML: string(page), Connect: []string{"https://api.example.com"},
		Resources:   []string{"https://cdn.example.com"},
		Permissions: []string{"geolocation"}, Border: new(true),
	})
	type in struct {
		City string `json:"city,omitempty"`
	}
	today := func(ctx context.Context, p in) (string, error) {
		if !apps.Shown(ctx) {
			return "the client shows no pages", nil
		}
		return "Sunny in " + p.City, nil
	}
	again := func(context.Context, struct{}) (string, error) { return "Still sunny", nil }
	mcp.AddTool(s, apps.WithPage(mcp.Tool{Name: "today"}, uri), today)
	mcp.AddTool(s, apps.WithPage(mcp.Tool{Name: "again"}, uri, apps.App), again)
	mcp.AddTool(s, apps.WithPage(mcp.Tool{Name: "tomorrow"}, uri, apps.Model), today)
	mcp.AddTool(s, mcp.Tool{Name: "plain"}, today)

	var got struct {
		Revision string
		Tools    map[string]struct {
			Page                      string
			Valid, AppOnly, ModelOnly bool
		}
		IsPage, Border  bool
		CSP             map[string][]string
		Allow, App      string
		Log, Complaints []string
	}
	if err := json.Unmarshal(node(t, nil, "apps-host.mjs", mcptest.Listen(t, s), browser, t.TempDir()),
		&got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][3]bool{
		"today": {true, false, false},
		"again": {true, true, false}, "tomorrow": {true, false, true}, "plain": {false, false, false},
	} {
		if tool := got.Tools[name]; !tool.Valid || (tool.Page == uri) != want[0] ||
			tool.AppOnly != want[1] || tool.ModelOnly != want[2] {
			t.Errorf("%s: %+v, want %v", name, tool, want)
		}
	}
	if !got.IsPage || !got.Border || got.Allow != "geolocation" || len(got.CSP) != 2 ||
		!slices.Equal(got.CSP["connectDomains"], []string{"https://api.example.com"}) ||
		!slices.Equal(got.CSP["resourceDomains"], []string{"https://cdn.example.com"}) {
		t.Errorf("the page is %+v", got)
	}
	if len(got.Log) != 3 || !strings.Contains(got.Log[0], "Brno") ||
		!strings.Contains(got.Log[0], "Sunny in Brno") || !strings.Contains(got.Log[1], "Still sunny") {
		t.Errorf("the page has shown %q", got.Log)
	}
	if got.App != "weather" || len(got.Complaints) > 0 {
		t.Errorf("the app is %q; the browser says %q", got.App, got.Complaints)
	}
}

// findBrowser returns Chromium.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "there is no Chromium on this machine")
	return ""
}
