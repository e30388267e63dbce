package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDK is the client of go-sdk.
type goSDK struct {
	session  *gosdk.ClientSession
	level    string // of the log, where each request says it
	event    chan string
	progress chan float64
}

// useGoSDK connects it in one of the ways that a place has.
func useGoSDK(t *testing.T, p *place, way, revision string) *goSDK {
	t.Helper()
	u := &goSDK{event: make(chan string, 100), progress: make(chan float64, 100)}
	client := gosdk.NewClient(&gosdk.Implementation{Name: "go-sdk", Version: "1"},
		&gosdk.ClientOptions{
			Capabilities: &gosdk.ClientCapabilities{
				RootsV2: &gosdk.RootCapabilities{ListChanged: true},
				Elicitation: &gosdk.ElicitationCapabilities{
					Form: &gosdk.FormElicitationCapabilities{},
					URL:  &gosdk.URLElicitationCapabilities{},
				},
			},
			ElicitationHandler: func(
				_ context.Context, req *gosdk.ElicitRequest,
			) (*gosdk.ElicitResult, error) {
				if req.Params.Mode == "url" {
					return &gosdk.ElicitResult{Action: "accept"}, nil
				}
				return &gosdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
			},
			CreateMessageHandler: func(
				context.Context, *gosdk.CreateMessageRequest,
			) (*gosdk.CreateMessageResult, error) {
				return &gosdk.CreateMessageResult{
					Role: "assistant", Model: "a-model",
					Content: &gosdk.TextContent{Text: "Paris"},
				}, nil
			},
			ProgressNotificationHandler: func(
				_ context.Context, req *gosdk.ProgressNotificationClientRequest,
			) {
				u.progress <- req.Params.Progress
			},
			LoggingMessageHandler: func(_ context.Context, req *gosdk.LoggingMessageRequest) {
				u.event <- fmt.Sprintf("log %s %v", req.Params.Level, req.Params.Data)
			},
			ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) {
				u.event <- "changed tools"
			},
			ResourceUpdatedHandler: func(_ context.Context, req *gosdk.ResourceUpdatedNotificationRequest) {
				u.event <- "updated " + req.Params.URI
			},
		})
	client.AddRoots(&gosdk.Root{URI: root, Name: "home"})
	var transport gosdk.Transport
	switch way {
	case "http":
		transport = &gosdk.StreamableClientTransport{Endpoint: p.http}
	case "sse":
		transport = &gosdk.SSEClientTransport{Endpoint: p.sse}
	case "stdio":
		transport = &gosdk.CommandTransport{Command: p.stdio()}
	}
	session, err := client.Connect(t.Context(), transport,
		&gosdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	u.session = session
	return u
}

func (u *goSDK) revision() string { return u.session.InitializeResult().ProtocolVersion }

func (u *goSDK) lists(
	ctx context.Context,
) (tools, resources, templates, prompts []string, err error) {
	for one, err := range u.session.Tools(ctx, nil) {
		if err != nil {
			return nil, nil, nil, nil, err
		}
		tools = append(tools, one.Name)
	}
	for one, err := range u.session.Resources(ctx, nil) {
		if err != nil {
			return nil, nil, nil, nil, err
		}
		resources = append(resources, one.URI)
	}
	for one, err := range u.session.ResourceTemplates(ctx, nil) {
		if err != nil {
			return nil, nil, nil, nil, err
		}
		templates = append(templates, one.URITemplate)
	}
	for one, err := range u.session.Prompts(ctx, nil) {
		if err != nil {
			return nil, nil, nil, nil, err
		}
		prompts = append(prompts, one.Name)
	}
	return tools, resources, templates, prompts, nil
}

func (u *goSDK) call(ctx context.Context, tool string, args any) (string, error) {
	if args == nil {
		args = none{}
	}
	params := &gosdk.CallToolParams{Name: tool, Arguments: args}
	if u.level != "" {
		params.Meta = gosdk.Meta{gosdk.MetaKeyLogLevel: u.level}
	}
	if tool == "count" {
		params.SetProgressToken("the token")
	}
	r, err := u.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, block := range r.Content {
		if block, ok := block.(*gosdk.TextContent); ok {
			text.WriteString(block.Text)
		}
	}
	if r.IsError {
		return "", &toolFailure{text.String()}
	}
	return text.String(), nil
}

// count waits for as many reports as there must be: go-sdk returns without
// waiting for its handlers.
func (u *goSDK) count(ctx context.Context, n int) (progress []float64, err error) {
	if _, err := u.call(ctx, "count", counted{N: n}); err != nil {
		return nil, err
	}
	for range n {
		select {
		case value := <-u.progress:
			progress = append(progress, value)
		case <-ctx.Done():
			return progress, ctx.Err()
		}
	}
	return progress, nil
}

func (u *goSDK) logFrom(ctx context.Context, level string) error {
	if u.revision() == "2026-07-28" {
		u.level = level
		return nil
	}
	return u.session.SetLoggingLevel(ctx,
		&gosdk.SetLoggingLevelParams{Level: gosdk.LoggingLevel(level)})
}

func (u *goSDK) read(ctx context.Context, uri string) (string, error) {
	r, err := u.session.ReadResource(ctx, &gosdk.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return r.Contents[0].Text + string(r.Contents[0].Blob), nil
}

func (u *goSDK) prompt(ctx context.Context, name string, args map[string]string) (string, error) {
	r, err := u.session.GetPrompt(ctx, &gosdk.GetPromptParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	text, ok := r.Messages[0].Content.(*gosdk.TextContent)
	if !ok {
		return "", errors.New("the message is no text")
	}
	return text.Text, nil
}

func (u *goSDK) complete(ctx context.Context, prompt, argument, value string) ([]string, error) {
	r, err := u.session.Complete(ctx, &gosdk.CompleteParams{
		Ref:      &gosdk.CompleteReference{Type: "ref/prompt", Name: prompt},
		Argument: gosdk.CompleteParamsArgument{Name: argument, Value: value},
	})
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

// watch subscribes to the resource; to the lists the client has subscribed
// itself.
func (u *goSDK) watch(ctx context.Context, uri string) error {
	err := u.session.Subscribe(ctx, &gosdk.SubscribeParams{URI: uri})
	if u.revision() == "2026-07-28" {
		<-time.After(200 * time.Millisecond) // it does not wait for the acknowledgement
	}
	return err
}

func (u *goSDK) events() <-chan string { return u.event }

func TestMCPGoSDKClient(t *testing.T) {
	t.Parallel()
	p := serveOurs(t)
	for way, revisions := range map[string][]string{
		"http":  {"", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
		"sse":   {"2025-11-25", "2025-06-18", "2024-11-05"},
		"stdio": {"", "2025-11-25", "2024-11-05"},
	} {
		for _, revision := range revisions {
			t.Run(way+" "+revision, func(t *testing.T) {
				u := useGoSDK(t, p, way, revision)
				if revision == "" {
					revision = "2026-07-28" // the newest
				}
				if got := u.revision(); got != revision {
					t.Errorf("the revision is %s", got)
				}
				exercise(t, u, missingIn(revision)...)
			})
		}
	}
}
