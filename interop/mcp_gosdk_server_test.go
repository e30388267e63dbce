package interop

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var nameSchema = map[string]any{
	"type":       "object",
	"properties": map[string]any{"name": map[string]any{"type": "string"}},
	"required":   []string{"name"},
}

// goSDKServer is the server of go-sdk.
func goSDKServer() *gosdk.Server {
	s := gosdk.NewServer(&gosdk.Implementation{Name: "go-sdk", Version: "1"}, &gosdk.ServerOptions{
		PageSize: 5,
		CompletionHandler: func(
			_ context.Context, req *gosdk.CompleteRequest,
		) (*gosdk.CompleteResult, error) {
			return &gosdk.CompleteResult{
				Completion: gosdk.CompletionResultDetails{Values: completions(req.Params.Argument.Value)},
			}, nil
		},
		SubscribeHandler:   func(context.Context, *gosdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *gosdk.UnsubscribeRequest) error { return nil },
	})
	goSDKTool(s, "add", func(
		_ context.Context, _ *gosdk.CallToolRequest, in addends,
	) (*gosdk.CallToolResult, sum, error) {
		return nil, sum{in.A + in.B}, nil
	})
	goSDKTool(s, "fail", func(
		context.Context, *gosdk.CallToolRequest, none,
	) (*gosdk.CallToolResult, any, error) {
		return nil, nil, errors.New("it went wrong")
	})
	goSDKTool(s, "count", func(
		ctx context.Context, req *gosdk.CallToolRequest, in counted,
	) (*gosdk.CallToolResult, any, error) {
		for i := range in.N {
			report := &gosdk.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(),
				Progress:      float64(i + 1), Total: float64(in.N),
			}
			if err := req.Session.NotifyProgress(ctx, report); err != nil {
				return nil, nil, err
			}
		}
		return goSDKText("Counted."), nil, nil
	})
	goSDKTool(s, "chatter", func(
		ctx context.Context, req *gosdk.CallToolRequest, _ none,
	) (*gosdk.CallToolResult, any, error) {
		return goSDKText("Logged."), nil, errors.Join(
			req.Session.Log(ctx, &gosdk.LoggingMessageParams{Level: "info", Data: "not much"}),
			req.Session.Log(ctx, &gosdk.LoggingMessageParams{Level: "error", Data: "something bad"}))
	})
	w := newWaits()
	goSDKTool(s, "wait", func(
		ctx context.Context, _ *gosdk.CallToolRequest, in waiting,
	) (*gosdk.CallToolResult, any, error) {
		w.wait(ctx, in.Key)
		return nil, nil, ctx.Err()
	})
	goSDKTool(s, "cancelled", func(
		_ context.Context, _ *gosdk.CallToolRequest, in waiting,
	) (*gosdk.CallToolResult, any, error) {
		return goSDKText(w.count(in.Key)), nil, nil
	})
	goSDKTool(s, "touch",
		func(ctx context.Context, _ *gosdk.CallToolRequest, _ none) (*gosdk.CallToolResult, any, error) {
			return goSDKText("Changed."), nil,
				s.ResourceUpdated(ctx, &gosdk.ResourceUpdatedNotificationParams{URI: "note://text"})
		})
	goSDKTool(s, "change", func(
		context.Context, *gosdk.CallToolRequest, none,
	) (*gosdk.CallToolResult, any, error) {
		goSDKTool(s, "new", func(
			context.Context, *gosdk.CallToolRequest, none,
		) (*gosdk.CallToolResult, any, error) {
			return nil, nil, nil
		})
		s.RemoveTools("new")
		return goSDKText("Changed."), nil, nil
	})
	addGoSDKQuestions(s)
	addGoSDKContents(s)
	return s
}

func goSDKTool[In, Out any](s *gosdk.Server, name string, f gosdk.ToolHandlerFor[In, Out]) {
	gosdk.AddTool(s, &gosdk.Tool{Name: name}, f)
}

func goSDKText(text string) *gosdk.CallToolResult {
	return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: text}}}
}

// goSDKQuestion adds a tool that asks one thing.
func goSDKQuestion[Response gosdk.InputResponse](
	s *gosdk.Server, name string, ask gosdk.InputRequest, say func(Response) string,
) {
	goSDKTool(s, name, func(
		_ context.Context, req *gosdk.CallToolRequest, _ none,
	) (*gosdk.CallToolResult, any, error) {
		answer, ok := req.Params.InputResponses["it"].(Response)
		if !ok {
			return &gosdk.CallToolResult{InputRequests: gosdk.InputRequestMap{"it": ask}}, nil, nil
		}
		return goSDKText(say(answer)), nil, nil
	})
}

func addGoSDKQuestions(s *gosdk.Server) {
	goSDKQuestion(s, "ask", &gosdk.ElicitParams{
		Message:         "What is your name?",
		RequestedSchema: nameSchema,
	}, func(r *gosdk.ElicitResult) string {
		name, _ := r.Content["name"].(string)
		return "Hello, " + name + "!"
	})
	goSDKQuestion(s, "visit", &gosdk.ElicitParams{
		Mode: "url", Message: "Please visit it",
		URL: "https://example.com/", ElicitationID: "1",
	},
		func(r *gosdk.ElicitResult) string {
			if r.Action != "accept" {
				return r.Action
			}
			return "Visited."
		})
	question := &gosdk.CreateMessageParams{
		MaxTokens: 10,
		Messages: []*gosdk.SamplingMessage{
			{Role: "user", Content: &gosdk.TextContent{Text: "The capital of France?"}},
		},
	}
	goSDKQuestion(s, "think", question, func(r *gosdk.CreateMessageWithToolsResult) string {
		return "It says " + r.Content[0].(*gosdk.TextContent).Text
	})
	goSDKQuestion(s, "places", &gosdk.ListRootsParams{}, func(r *gosdk.ListRootsResult) string {
		return r.Roots[0].URI
	})
}

func addGoSDKContents(s *gosdk.Server) {
	note := func(c gosdk.ResourceContents) gosdk.ResourceHandler {
		return func(
			_ context.Context, req *gosdk.ReadResourceRequest,
		) (*gosdk.ReadResourceResult, error) {
			c := c
			if c.URI = req.Params.URI; c.URI == "note://numbered/7" {
				c.Text = "Note 7."
			}
			return &gosdk.ReadResourceResult{Contents: []*gosdk.ResourceContents{&c}}, nil
		}
	}
	s.AddResource(&gosdk.Resource{URI: "note://text", Name: "text"},
		note(gosdk.ResourceContents{Text: "A note."}))
	s.AddResource(&gosdk.Resource{URI: "note://bytes", Name: "bytes"},
		note(gosdk.ResourceContents{Blob: []byte("\x00\x01\xff")}))
	s.AddResourceTemplate(
		&gosdk.ResourceTemplate{URITemplate: "note://numbered/{n}", Name: "numbered"},
		note(gosdk.ResourceContents{}))
	s.AddPrompt(&gosdk.Prompt{
		Name: "greet", Arguments: []*gosdk.PromptArgument{{Name: "name", Required: true}},
	},
		func(_ context.Context, req *gosdk.GetPromptRequest) (*gosdk.GetPromptResult, error) {
			text := "Please greet " + req.Params.Arguments["name"] + "."
			return &gosdk.GetPromptResult{
				Messages: []*gosdk.PromptMessage{{Role: "user", Content: &gosdk.TextContent{Text: text}}},
			}, nil
		})
}

// serveGoSDK serves it in all ways.
func serveGoSDK(t *testing.T, o *gosdk.StreamableHTTPOptions) *place {
	t.Helper()
	s := goSDKServer()
	get := func(*http.Request) *gosdk.Server { return s }
	mux := http.NewServeMux()
	mux.Handle("/mcp", gosdk.NewStreamableHTTPHandler(get, o))
	mux.Handle("/sse", gosdk.NewSSEHandler(get, nil))
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return &place{web.URL + "/mcp", web.URL + "/sse", func() *exec.Cmd { return child(t, "go-sdk") }}
}

func TestMCPGoSDKServer(t *testing.T) {
	stateful := serveGoSDK(t, nil)
	stateless := serveGoSDK(t,
		&gosdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	for name, test := range map[string]struct {
		place                   *place
		way, era, wantsRevision string
		lacking                 []string
	}{
		"http stateless":   {stateless, "http", "auto", "2026-07-28", nil},
		"http stateful":    {stateful, "http", "auto", "2025-11-25", nil},
		"http 2025-06-18":  {stateful, "http", "2025-06-18", "2025-06-18", missingIn("2025-06-18")},
		"http 2025-03-26":  {stateful, "http", "2025-03-26", "2025-03-26", missingIn("2025-03-26")},
		"sse":              {stateful, "sse", "auto", "2025-11-25", nil},
		"stdio":            {stateful, "stdio", "auto", "2026-07-28", nil},
		"stdio 2025-11-25": {stateful, "stdio", "legacy", "2025-11-25", nil},
		"stdio 2024-11-05": {stateful, "stdio", "2024-11-05", "2024-11-05", missingIn("2024-11-05")},
	} {
		t.Run(name, func(t *testing.T) {
			u := useAs(t, test.place, test.way, test.era)
			if got := u.revision(); got != test.wantsRevision {
				t.Errorf("the revision is %s; want %s", got, test.wantsRevision)
			}
			exercise(t, u, test.lacking...)
		})
	}
}
