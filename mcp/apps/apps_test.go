package apps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/apps"
)

func server() *mcp.Server {
	s := mcp.NewServer("weather", "1.0.0", nil)
	apps.AddPage(s, apps.Page{
		URI: "ui://weather-server/dashboard-template", Name: "weather_dashboard",
		Description: "Interactive weather dashboard view",
		HTML:        "<!DOCTYPE html><html>...</html>",
		Connect:     []string{"https://api.openweathermap.org"},
		Resources:   []string{"https://cdn.jsdelivr.net"}, Border: new(true),
	})
	tool := mcp.Tool{Name: "refresh_dashboard", Description: "Refresh dashboard data"}
	s.AddTool(apps.WithPage(tool, "ui://weather-server/dashboard-template", apps.App),
		func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(fmt.Sprint(apps.Shown(ctx)))}}, nil
		})
	return s
}

func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	mine, theirs := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), theirs) }()
	c, err := mcp.Connect(t.Context(), mine, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c
}

// What is on the wire is what the specification's examples have (2026-01-26, "Resource Discovery"
// and "UI Resource Format").
func TestAsSpecified(t *testing.T) {
	c := connect(t, server(), nil)
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, tools[0].Meta,
		`{"ui":{"resourceUri":"ui://weather-server/dashboard-template","visibility":["app"]}}`)
	r, err := c.Read(t.Context(), "ui://weather-server/dashboard-template")
	if err != nil {
		t.Fatal(err)
	}
	same(t, r.Contents,
		`[{"uri":"ui://weather-server/dashboard-template","mimeType":"text/html;profile=mcp-app","text":"<!DOCTYPE html><html>...</html>",
		"_meta":{"ui":{"csp":{"connectDomains":["https://api.openweathermap.org"],"resourceDomains":["https://cdn.jsdelivr.net"]},"prefersBorder":true}}}]`)
}

func same(t *testing.T, got any, want string) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(want), &b) != nil ||
		fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%s, want %s", raw, want)
	}
}

func TestShown(t *testing.T) {
	shows := map[string]any{apps.Extension: map[string]any{"mimeTypes": []string{apps.MIMEType}}}
	other := map[string]any{apps.Extension: map[string]any{"mimeTypes": []string{"text/plain"}}}
	for want, extensions := range map[string]map[string]any{
		"true": shows, "false": other,
		"false ": nil,
	} {
		c := connect(t, server(), &mcp.ClientOptions{Extensions: extensions})
		r, err := c.CallTool(t.Context(), "refresh_dashboard", nil)
		if err != nil || r.Content[0].Text != strings.TrimSpace(want) {
			t.Errorf("%v: %+v, %v", extensions, r, err)
		}
	}
	if apps.Shown(t.Context()) {
		t.Error("there is no client")
	}
}

func TestMistakes(t *testing.T) {
	s := mcp.NewServer("s", "1", nil)
	for want, f := range map[string]func(){
		"ui://":      func() { apps.AddPage(s, apps.Page{URI: "http://a", Name: "a", HTML: "x"}) },
		"needs HTML": func() { apps.AddPage(s, apps.Page{URI: "ui://a", Name: "a"}) },
		`"usb"`: func() {
			apps.AddPage(s, apps.Page{URI: "ui://a", Name: "a", HTML: "x", Permissions: []string{"usb"}})
		},
		"must begin with ui:": func() { apps.WithPage(mcp.Tool{Name: "a"}, "https://a") },
		`"user"`:              func() { apps.WithPage(mcp.Tool{Name: "a"}, "ui://a", "user") },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
					t.Errorf("%s: the panic is %s", want, text)
				}
			}()
			f()
		}()
	}
}

func Example() {
	s := mcp.NewServer("weather", "1.0.0", nil)
	apps.AddPage(s, apps.Page{
		URI: "ui://weather/today", Name: "today",
		HTML: "<!DOCTYPE html><html><body>Sunny</body></html>",
	})
	tool := apps.WithPage(mcp.Tool{Name: "today", Description: "The weather of today"},
		"ui://weather/today")
	s.AddTool(tool, func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) {
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("sunny")}}, nil
	})
	fmt.Println(tool.Meta["ui"])
	// Output: map[resourceUri:ui://weather/today]
}
