package interop

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"

	"github.com/farcall-dev/farcall/mcp/spec"
)

// mcpGo is the client of mcp-go.
type mcpGo struct {
	t      *testing.T
	client *client.Client
	event  chan string

	mu       sync.Mutex
	progress []float64
}

// Elicit implements client.ElicitationHandler.
func (u *mcpGo) Elicit(
	_ context.Context, req mcpgo.ElicitationRequest,
) (*mcpgo.ElicitationResult, error) {
	r := &mcpgo.ElicitationResult{
		ElicitationResponse: mcpgo.ElicitationResponse{Action: mcpgo.ElicitationResponseActionAccept},
	}
	if req.Params.Mode != mcpgo.ElicitationModeURL {
		r.Content = map[string]any{"name": "Ada"}
	}
	return r, nil
}

// CreateMessage implements client.SamplingHandler.
func (u *mcpGo) CreateMessage(
	context.Context, mcpgo.CreateMessageRequest,
) (*mcpgo.CreateMessageResult, error) {
	return &mcpgo.CreateMessageResult{
		SamplingMessage: mcpgo.SamplingMessage{Role: "assistant", Content: mcpgo.NewTextContent("Paris")},
		Model:           "a-model",
	}, nil
}

// ListRoots implements client.RootsHandler.
func (u *mcpGo) ListRoots(context.Context, mcpgo.ListRootsRequest) (*mcpgo.ListRootsResult, error) {
	return &mcpgo.ListRootsResult{Roots: []mcpgo.Root{{URI: root, Name: "home"}}}, nil
}

func (u *mcpGo) notified(n mcpgo.JSONRPCNotification) {
	members := n.Params.AdditionalFields
	switch n.Method {
	case spec.NotificationProgress:
		u.mu.Lock()
		defer u.mu.Unlock()
		value, _ := members["progress"].(float64)
		u.progress = append(u.progress, value)
	case spec.NotificationMessage:
		u.event <- fmt.Sprintf("log %v %v", members["level"], members["data"])
	case spec.NotificationSubscriptionsAcknowledged:
		u.event <- "listening"
	case spec.NotificationToolsListChanged:
		u.event <- "changed tools"
	case spec.NotificationResourcesUpdated:
		u.event <- fmt.Sprintf("updated %v", members["uri"])
	}
}

// useMCPGo connects it in one of the ways that a place has.
func useMCPGo(t *testing.T, p *place, way, revision string) *mcpGo {
	t.Helper()
	u := &mcpGo{t: t, event: make(chan string, 100)}
	var tr transport.Interface
	var err error
	switch way {
	case "http":
		// It cancels its answer to a question when the call has ended. With shared connections one call
		// of thousands failed with "context canceled" that nothing had cancelled.
		apart := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		options := []transport.StreamableHTTPCOption{transport.WithHTTPBasicClient(apart)}
		if revision < "2026-07-28" {
			options = append(options, transport.WithContinuousListening())
		}
		tr, err = transport.NewStreamableHTTP(p.http, options...)
	case "sse":
		tr, err = transport.NewSSE(p.sse)
	case "stdio":
		cmd := p.stdio()
		tr = transport.NewStdio(cmd.Path, cmd.Env, cmd.Args[1:]...)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.client = client.NewClient(tr, client.WithProtocolVersion(revision),
		client.WithElicitationHandler(u), client.WithSamplingHandler(u), client.WithRootsHandler(u),
		client.WithClientCapabilities(
			mcpgo.ClientCapabilities{
				Elicitation: &mcpgo.ElicitationCapability{Form: &none{}, URL: &none{}},
			}))
	u.client.OnNotification(u.notified)
	ctx := t.Context() // not within: the connection's
	if err := u.client.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.client.Close() })
	hello := mcpgo.InitializeRequest{Params: mcpgo.InitializeParams{
		ProtocolVersion: revision, ClientInfo: mcpgo.Implementation{Name: "mcp-go", Version: "1"},
	}}
	if _, err := u.client.Initialize(ctx, hello); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *mcpGo) revision() string { return u.client.ProtocolVersion() }

func (u *mcpGo) lists(
	ctx context.Context,
) (tools, resources, templates, prompts []string, err error) {
	toolList, err := u.client.ListTools(ctx, mcpgo.ListToolsRequest{})
	if err != nil {
		return nil, nil, nil, nil, err
	}
	for _, one := range toolList.Tools {
		tools = append(tools, one.Name)
	}
	resourceList, err := u.client.ListResources(ctx, mcpgo.ListResourcesRequest{})
	if err != nil {
		return nil, nil, nil, nil, err
	}
	for _, one := range resourceList.Resources {
		resources = append(resources, one.URI)
	}
	templateList, err := u.client.ListResourceTemplates(ctx, mcpgo.ListResourceTemplatesRequest{})
	if err != nil {
		return nil, nil, nil, nil, err
	}
	for _, one := range templateList.ResourceTemplates {
		templates = append(templates, one.URITemplate.Raw())
	}
	promptList, err := u.client.ListPrompts(ctx, mcpgo.ListPromptsRequest{})
	if err != nil {
		return nil, nil, nil, nil, err
	}
	for _, one := range promptList.Prompts {
		prompts = append(prompts, one.Name)
	}
	return tools, resources, templates, prompts, nil
}

func mcpGoTextOf(content []mcpgo.Content) (text string) {
	for _, block := range content {
		text += mcpgo.GetTextFromContent(block)
	}
	return text
}

func (u *mcpGo) call(ctx context.Context, tool string, args any) (string, error) {
	if args == nil {
		args = none{}
	}
	params := mcpgo.CallToolParams{Name: tool, Arguments: args}
	if tool == "count" {
		params.Meta = &mcpgo.Meta{ProgressToken: "the token"}
	}
	r, err := u.client.CallTool(ctx, mcpgo.CallToolRequest{Params: params})
	if err != nil {
		return "", err
	}
	if r.IsError {
		return "", &toolFailure{mcpGoTextOf(r.Content)}
	}
	return mcpGoTextOf(r.Content), nil
}

func (u *mcpGo) count(ctx context.Context, n int) (progress []float64, err error) {
	_, err = u.call(ctx, "count", counted{N: n})
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.progress), err
}

func (u *mcpGo) logFrom(ctx context.Context, level string) error {
	return u.client.SetLevel(ctx,
		mcpgo.SetLevelRequest{Params: mcpgo.SetLevelParams{Level: mcpgo.LoggingLevel(level)}})
}

func (u *mcpGo) read(ctx context.Context, uri string) (string, error) {
	r, err := u.client.ReadResource(ctx,
		mcpgo.ReadResourceRequest{Params: mcpgo.ReadResourceParams{URI: uri}})
	if err != nil {
		return "", err
	}
	switch contents := r.Contents[0].(type) {
	case mcpgo.TextResourceContents:
		return contents.Text, nil
	case mcpgo.BlobResourceContents:
		data, err := base64.StdEncoding.DecodeString(contents.Blob)
		return string(data), err
	default:
		return "", fmt.Errorf("the resource has contents of type %T", contents)
	}
}

func (u *mcpGo) prompt(ctx context.Context, name string, args map[string]string) (string, error) {
	r, err := u.client.GetPrompt(ctx,
		mcpgo.GetPromptRequest{Params: mcpgo.GetPromptParams{Name: name, Arguments: args}})
	if err != nil {
		return "", err
	}
	return mcpgo.GetTextFromContent(r.Messages[0].Content), nil
}

func (u *mcpGo) complete(ctx context.Context, prompt, argument, value string) ([]string, error) {
	r, err := u.client.Complete(ctx, mcpgo.CompleteRequest{Params: mcpgo.CompleteParams{
		Ref:      mcpgo.PromptReference{Type: "ref/prompt", Name: prompt},
		Argument: mcpgo.CompleteArgument{Name: argument, Value: value},
	}})
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

func (u *mcpGo) watch(ctx context.Context, uri string) error {
	if u.revision() < "2026-07-28" {
		return u.client.Subscribe(ctx, mcpgo.SubscribeRequest{Params: mcpgo.SubscribeParams{URI: uri}})
	}
	_, err := u.client.ListenAsync(ctx, mcpgo.SubscriptionFilter{
		ToolsListChanged:      true,
		ResourceSubscriptions: []string{uri},
	}, func(err error) {
		if ctx.Err() == nil && !strings.Contains(err.Error(), "cancel") {
			u.event <- fmt.Sprintf("the subscription ended: %v", err)
		}
	})
	await(u.t, u, "listening")
	return err
}

func (u *mcpGo) events() <-chan string { return u.event }

func TestMCPGoClient(t *testing.T) {
	p := serveOurs(t)
	for way, revisions := range map[string][]string{
		"http":  {"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
		"sse":   {"2025-11-25", "2024-11-05"},
		"stdio": {"2026-07-28", "2025-11-25", "2025-03-26", "2024-11-05"},
	} {
		for _, revision := range revisions {
			t.Run(way+" "+revision, func(t *testing.T) {
				u := useMCPGo(t, p, way, revision)
				if got := u.revision(); got != revision {
					t.Errorf("the revision is %s", got)
				}
				lacking := missingIn(revision)
				if way != "stdio" && revision < "2026-07-28" {
					lacking = append(lacking, "cancel") // it does not tell the server
				}
				if way == "sse" {
					lacking = append(lacking, "ask", "visit", "think", "places") // it does not answer
				}
				exercise(t, u, lacking...)
				if revision == "2025-11-25" {
					checkMCPGoTask(t, u.client)
				}
			})
		}
	}
}

// checkMCPGoTask runs a tool as a task. Its CallTool takes no task for an answer,
// all the rest of it does.
func checkMCPGoTask(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := within(t)
	answer, err := c.GetTransport().SendRequest(ctx, transport.JSONRPCRequest{
		JSONRPC: "2.0", ID: mcpgo.NewRequestId("the task"), Method: spec.MethodToolsCall,
		Params: mcpgo.CallToolParams{Name: "work", Arguments: none{}, Task: &mcpgo.TaskParams{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var created mcpgo.CreateTaskResult
	if err := json.Unmarshal(answer.Result, &created); err != nil || created.Task.TaskId == "" {
		t.Fatalf("the answer is %s, %v", answer.Result, err)
	}
	id := created.Task.TaskId
	if r, err := c.WaitForTask(ctx, mcpgo.GetTaskRequest{Params: mcpgo.GetTaskParams{TaskId: id}},
		10*time.Millisecond); err != nil || r.Status != "completed" {
		t.Errorf("WaitForTask: %+v, %v", r, err)
	}
	if r, err := c.TaskResult(ctx,
		mcpgo.TaskResultRequest{Params: mcpgo.TaskResultParams{TaskId: id}}); err != nil ||
		mcpGoTextOf(r.Content) != "Worked." {
		t.Errorf("TaskResult: %+v, %v", r, err)
	}
	if all, err := c.ListTasks(ctx, mcpgo.ListTasksRequest{}); err != nil || len(all.Tasks) == 0 {
		t.Errorf("ListTasks: %+v, %v", all, err)
	}
}
