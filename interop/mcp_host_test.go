package interop

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/host"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// entryOf writes a command as a desktop client's file has it.
func entryOf(t *testing.T, cmd *exec.Cmd, variables ...string) map[string]any {
	t.Helper()
	dir, err := filepath.Abs(cmd.Dir)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range cmd.Env {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(variables, name) {
			env[name] = value
		}
	}
	return map[string]any{"command": cmd.Path, "args": cmd.Args[1:], "cwd": dir, "env": env}
}

// hostOf makes a host of the servers of an mcpServers file.
func hostOf(t *testing.T, servers map[string]any, o *host.Options) *host.Host {
	t.Helper()
	data, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := gateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := config.Servers()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New(t.Context(), all, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := h.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
	return h
}

// answers calls a tool of a host. The text must have a part.
func answers(t *testing.T, h *host.Host, part, tool string, args any) {
	t.Helper()
	r, err := h.CallTool(within(t), tool, args)
	if err != nil || r.IsError || !strings.Contains(string(r.AppendJSON(nil)), part) {
		t.Errorf("%s: %+v, %v; want %q", tool, r, err, part)
	}
}

// A host uses the server of go-sdk, as a child and over HTTP, beside one that does not start.
func TestMCPHostGoSDK(t *testing.T) {
	at := serveGoSDK(t, nil)
	h := hostOf(t, map[string]any{
		"child":  entryOf(t, at.stdio(), childVariable),
		"web":    map[string]any{"type": "http", "url": at.http},
		"events": map[string]any{"type": "sse", "url": at.sse},
		"absent": map[string]any{"command": "/no/such/program"},
	}, &host.Options{
		Elicit: func(
			_ context.Context, server string, _ *spec.ElicitRequestParams,
		) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{
				Action:  spec.ElicitAccept,
				Content: jsonrpc.Raw(`{"name":"` + server + `"}`),
			}, nil
		},
	})
	tools := h.Tools()
	if len(tools.Missing) != 1 || tools.Missing[0].Name != "absent" ||
		!errors.Is(tools.Missing[0].Err, os.ErrNotExist) {
		t.Errorf("missing: %+v", tools.Missing)
	}
	for _, server := range []string{"child", "web", "events"} {
		if !slices.ContainsFunc(tools.Items, func(i host.Item[mcp.Tool]) bool {
			return i.Server == server && i.Value.Name == server+"__add"
		}) {
			t.Errorf("%s has no tool add", server)
		}
		answers(t, h, "5", server+"__add", addends{2, 3})
		answers(t, h, "Changed.", server+"__change", nil)
		p, err := h.GetPrompt(within(t), server+"__greet", map[string]string{"name": "Ada"})
		if err != nil || p.Messages[0].Content.Text != "Please greet Ada." {
			t.Errorf("%s: %+v, %v", server, p, err)
		}
		if _, err := h.ReadResource(within(t), server, "note://text"); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
	answers(t, h, "Hello, child!", "child__ask", nil)
	if err := h.Restart(within(t), "child"); err != nil {
		t.Fatal(err)
	}
	answers(t, h, "5", "child__add", addends{2, 3})
}

// A host uses the reference server, which asks all it can ask.
func TestMCPHostEverything(t *testing.T) {
	t.Parallel()
	h := hostOf(t, map[string]any{
		"one": entryOf(t, npm(t, "server-everything", "stdio"), "HOME"),
		"two": entryOf(t, npm(t, "server-everything", "stdio"), "HOME"),
	}, &host.Options{
		Sample: func(
			_ context.Context, server string, _ *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			return &spec.CreateMessageResult{
				Role: "assistant", Model: "m",
				Content: []mcp.Content{mcp.Text("asked by " + server)},
			}, nil
		},
		Roots: func(_ context.Context, server string) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///" + server, Name: server}}, nil
		},
	})
	for late := time.After(waitLimit); ; {
		tools := h.Tools() // the server adds tools once it knows what the client can be asked
		if slices.ContainsFunc(tools.Items, func(i host.Item[mcp.Tool]) bool {
			return i.Value.Name == "two__get-roots-list"
		}) {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatalf("the tools are %+v", tools)
		}
	}
	for _, server := range []string{"one", "two"} {
		answers(t, h, "Echo: "+server, server+"__echo", map[string]string{"message": server})
		answers(t, h, "asked by "+server, server+"__trigger-sampling-request",
			map[string]string{"prompt": "who?"})
		answers(t, h, "file:///"+server, server+"__get-roots-list", nil)
	}
}
