package interop

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/farcall-dev/farcall/mcp"
)

type mcpGoCompleter struct{}

func (mcpGoCompleter) CompletePromptArgument(
	_ context.Context, _ string, a mcpgo.CompleteArgument, _ mcpgo.CompleteContext,
) (*mcpgo.Completion, error) {
	return &mcpgo.Completion{Values: completions(a.Value)}, nil
}

// mcpGoServer is the server of mcp-go.
func mcpGoServer() *server.MCPServer {
	s := server.NewMCPServer("mcp-go", "1",
		server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithElicitation(), server.WithRoots(), server.WithLogging(), server.WithCompletions(),
		server.WithPromptCompletionProvider(mcpGoCompleter{}),
		server.WithTaskCapabilities(true, true, true), server.WithPaginationLimit(5),
		server.WithInputSchemaValidation())
	s.EnableSampling()
	mcpGoTool(s, "add", func(
		_ context.Context, req mcpgo.CallToolRequest,
	) (*mcpgo.CallToolResult, error) {
		return mcpgo.NewToolResultJSON(sum{req.GetInt("A", 0) + req.GetInt("B", 0)})
	}, mcpgo.WithNumber("A", mcpgo.Required()), mcpgo.WithNumber("B", mcpgo.Required()))
	mcpGoTool(s, "fail", func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		return mcpgo.NewToolResultError("it went wrong"), nil
	})
	mcpGoTool(s, "count", func(
		ctx context.Context, req mcpgo.CallToolRequest,
	) (*mcpgo.CallToolResult, error) {
		n := req.GetInt("N", 0)
		for i := range n {
			report := map[string]any{
				"progressToken": req.Params.Meta.ProgressToken, "progress": i + 1,
				"total": n,
			}
			if err := s.SendNotificationToClient(ctx, "notifications/progress", report); err != nil {
				return nil, err
			}
			mcpGoSends()
		}
		return mcpgo.NewToolResultText("Counted."), nil
	})
	mcpGoTool(s, "chatter", func(
		ctx context.Context, _ mcpgo.CallToolRequest,
	) (*mcpgo.CallToolResult, error) {
		for level, text := range map[mcpgo.LoggingLevel]string{
			"info":  "not much",
			"error": "something bad",
		} {
			if err := s.SendLogMessageToClient(ctx,
				mcpgo.NewLoggingMessageNotification(level, "mcp-go", text)); err != nil {
				return nil, err
			}
			mcpGoSends()
		}
		return mcpgo.NewToolResultText("Logged."), nil
	})
	w := newWaits()
	mcpGoTool(s, "wait", func(
		ctx context.Context, req mcpgo.CallToolRequest,
	) (*mcpgo.CallToolResult, error) {
		w.wait(ctx, req.GetString("Key", ""))
		return nil, ctx.Err()
	})
	mcpGoTool(s, "cancelled",
		func(_ context.Context, req mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
			return mcpgo.NewToolResultText(w.count(req.GetString("Key", ""))), nil
		})
	mcpGoTool(s, "touch", func(
		ctx context.Context, _ mcpgo.CallToolRequest,
	) (*mcpgo.CallToolResult, error) {
		s.SendNotificationToAllClients("notifications/resources/updated",
			map[string]any{"uri": "note://text"})
		return mcpgo.NewToolResultText("Changed."), nil
	})
	mcpGoTool(s, "change", func(
		context.Context, mcpgo.CallToolRequest,
	) (*mcpgo.CallToolResult, error) {
		mcpGoTool(s, "new", func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
			return nil, nil
		})
		s.DeleteTools("new")
		return mcpgo.NewToolResultText("Changed."), nil
	})
	mcpGoTool(s, "work", func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		return mcpgo.NewToolResultText("Worked."), nil
	}, mcpgo.WithTaskSupport(mcpgo.TaskSupportOptional))
	addMCPGoQuestions(s)
	addMCPGoContents(s)
	return s
}

// mcpGoSends gives mcp-go the time to send a notification: a result does not wait
// for the notifications before it, which then come too late or not at all.
func mcpGoSends() { <-time.After(10 * time.Millisecond) }

func mcpGoTool(
	s *server.MCPServer, name string, f server.ToolHandlerFunc, options ...mcpgo.ToolOption,
) {
	s.AddTool(mcpgo.NewTool(name, options...), f)
}

func addMCPGoQuestions(s *server.MCPServer) {
	question := func(
		name string, ask func(*server.InputRequestBuilder), say func(mcpgo.InputResponses) string,
	) {
		mcpGoTool(s, name, func(
			_ context.Context, req mcpgo.CallToolRequest,
		) (*mcpgo.CallToolResult, error) {
			if len(req.Params.InputResponses) > 0 {
				return mcpgo.NewToolResultText(say(req.Params.InputResponses)), nil
			}
			b := server.NewInputRequestBuilder("")
			ask(b)
			return b.ToolResult(), nil
		})
	}
	question("ask", func(b *server.InputRequestBuilder) {
		b.Elicit("it",
			mcpgo.ElicitationParams{
				Mode: mcpgo.ElicitationModeForm, Message: "What is your name?",
				RequestedSchema: nameSchema,
			})
	}, func(r mcpgo.InputResponses) string {
		content, _ := server.ElicitationResponse(r, "it").Content.(map[string]any)
		name, _ := content["name"].(string)
		return "Hello, " + name + "!"
	})
	question("visit", func(b *server.InputRequestBuilder) {
		b.Elicit("it", mcpgo.ElicitationParams{
			Mode: mcpgo.ElicitationModeURL, Message: "Please visit it",
			URL: "https://example.com/", ElicitationID: "1",
		})
	}, func(r mcpgo.InputResponses) string {
		if action := server.ElicitationResponse(r,
			"it").Action; action != mcpgo.ElicitationResponseActionAccept {
			return string(action)
		}
		return "Visited."
	})
	question("think", func(b *server.InputRequestBuilder) {
		b.Sample("it", mcpgo.CreateMessageParams{MaxTokens: 10, Messages: []mcpgo.SamplingMessage{
			{Role: "user", Content: mcpgo.NewTextContent("The capital of France?")},
		}})
	}, func(r mcpgo.InputResponses) string {
		text, _ := json.Marshal(server.SamplingResponse(r, "it").Content)
		return "It says " + string(text)
	})
	question("places", func(b *server.InputRequestBuilder) {
		b.Roots("it")
	}, func(r mcpgo.InputResponses) string {
		return server.RootsResponse(r, "it").Roots[0].URI
	})
}

func addMCPGoContents(s *server.MCPServer) {
	s.AddResource(mcpgo.NewResource("note://text", "text"),
		func(context.Context, mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
			return []mcpgo.ResourceContents{mcpgo.TextResourceContents{URI: "note://text", Text: "A note."}},
				nil
		})
	s.AddResource(mcpgo.NewResource("note://bytes", "bytes"),
		func(context.Context, mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
			blob := base64.StdEncoding.EncodeToString([]byte("\x00\x01\xff"))
			return []mcpgo.ResourceContents{mcpgo.BlobResourceContents{URI: "note://bytes", Blob: blob}}, nil
		})
	s.AddResourceTemplate(mcpgo.NewResourceTemplate("note://numbered/{n}", "numbered"),
		func(_ context.Context, req mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
			n := strings.TrimPrefix(req.Params.URI, "note://numbered/")
			return []mcpgo.ResourceContents{
				mcpgo.TextResourceContents{URI: req.Params.URI, Text: "Note " + n + "."},
			}, nil
		})
	s.AddPrompt(mcpgo.NewPrompt("greet", mcpgo.WithArgument("name", mcpgo.RequiredArgument())),
		func(_ context.Context, req mcpgo.GetPromptRequest) (*mcpgo.GetPromptResult, error) {
			text := mcpgo.NewTextContent("Please greet " + req.Params.Arguments["name"] + ".")
			return &mcpgo.GetPromptResult{
				Messages: []mcpgo.PromptMessage{mcpgo.NewPromptMessage("user", text)},
			}, nil
		})
}

// serveMCPGo serves it in all ways.
func serveMCPGo(t *testing.T) *place {
	t.Helper()
	s := mcpGoServer()
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	sse := server.NewSSEServer(s, server.WithBaseURL(web.URL))
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	mux.Handle("/sse", sse.SSEHandler())
	mux.Handle("/message", sse.MessageHandler())
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return &place{web.URL + "/mcp", web.URL + "/sse", func() *exec.Cmd { return child(t, "mcp-go") }}
}

func TestMCPGoServer(t *testing.T) {
	p := serveMCPGo(t)
	for name, test := range map[string]struct {
		way, era, wantsRevision string
		lacking                 []string
	}{
		// which it leaves to its users
		"http": {"http", "auto", "2026-07-28", []string{"touch"}},
		// half of it comes on another stream
		"http 2025-11-25":  {"http", "legacy", "2025-11-25", []string{"progress"}},
		"sse":              {"sse", "legacy", "2025-11-25", []string{"ask", "visit", "think", "places"}},
		"stdio":            {"stdio", "auto", "2026-07-28", []string{"touch"}},
		"stdio 2025-11-25": {"stdio", "legacy", "2025-11-25", nil},
	} {
		t.Run(name, func(t *testing.T) {
			u := useAs(t, p, test.way, test.era)
			if got := u.revision(); got != test.wantsRevision {
				t.Errorf("the revision is %s; want %s", got, test.wantsRevision)
			}
			exercise(t, u, test.lacking...)
			if test.wantsRevision < "2026-07-28" { // it has the tasks of that time only
				checkTask(t, u.client)
			}
		})
	}
}

// checkTask runs a tool as a task.
func checkTask(t *testing.T, c *mcp.Client) {
	t.Helper()
	task, err := c.StartTask(within(t), "work", nil, time.Minute)
	if err != nil {
		t.Fatalf("StartTask: %v", err)
	}
	if r, err := c.WaitTask(within(t), task.TaskID); err != nil || r.Content[0].Text != "Worked." {
		t.Errorf("WaitTask: %+v, %v", r, err)
	}
	if all, err := c.Tasks(within(t)); err != nil || len(all) == 0 {
		t.Errorf("Tasks: %v, %v", all, err)
	}
}
