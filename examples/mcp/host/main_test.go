package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("EXAMPLE_SERVER"); name != "" { // see TestHost
		if err := serve(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(leak.Main(m))
}

type person struct {
	Name string `json:"name"`
}

func serve(name string) error {
	s := mcp.NewServer(name, "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "greet", Description: "Greet"},
		func(_ context.Context, p person) (string, error) {
			return p.Name + ", says " + name, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "ask", Description: "Ask"},
		func(ctx context.Context, _ struct{}) (string, error) {
			_, err := mcp.Elicit[struct{}](ctx, "really?")
			return "done", err
		})
	return s.ServeStdio(context.Background())
}

// Two servers of a file work, and a third one that does not is named.
func TestHost(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry := func(name string) map[string]any {
		return map[string]any{"command": binary, "env": map[string]string{"EXAMPLE_SERVER": name}}
	}
	data, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"ada": entry("ada"), "bob": entry("bob"), "absent": map[string]any{"command": "/no/such/program"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		in   string
		want []string
	}{
		{nil, "", []string{"ada__greet - Greet", "bob__greet - Greet", "absent is missing: "}},
		{[]string{"bob__greet", `{"name":"Eve"}`}, "", []string{"Eve, says bob\n"}},
		{[]string{"ada__ask"}, "y\n", []string{"ada asks: really?", "done\n"}},
	} {
		var out strings.Builder
		if err := run(t.Context(), strings.NewReader(c.in), &out,
			append([]string{file}, c.args...)); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: %q, want %q", c.args, out.String(), want)
			}
		}
	}
	for _, args := range [][]string{
		{},
		{"no-such-file"},
		{file, "absent__greet"},
		{file, "ada__ask", "x"},
		{file, "greet"},
	} {
		if err := run(t.Context(), strings.NewReader(""), &strings.Builder{}, args); err == nil {
			t.Errorf("%q has succeeded", args)
		}
	}
}
