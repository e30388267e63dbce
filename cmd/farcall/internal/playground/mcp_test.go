package playground_test

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/playground"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// revisions are all of them: the playground is the same for each.
var revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

// connectMCP serves the playground over a pipe and returns a client.
func connectMCP(t *testing.T, o mcp.ClientOptions) (*mcp.Client, *farcall.Mux) {
	t.Helper()
	mux := farcall.NewMux()
	service := playground.Register(mux, nil)
	server := service.MCP(mux, farcall.Options{}, nil)
	ours, theirs := farcall.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.WithoutCancel(t.Context()), theirs) }()
	client, err := mcp.Connect(t.Context(), ours, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), <-ended); err != nil {
			t.Error(err)
		}
		service.Close()
	})
	return client, mux
}

// each runs a test in every revision from the given one on.
func each(t *testing.T, from string, f func(t *testing.T, era string)) {
	t.Parallel()
	for _, era := range revisions[slices.Index(revisions, from):] {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f(t, era)
		})
	}
}

// text joins what a result says in text.
func text(r *mcp.ToolResult) string {
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "|")
}

func TestFunctionsAreTools(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		client, mux := connectMCP(t, mcp.ClientOptions{Era: era})
		tools, err := client.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]mcp.Tool{}
		for _, tool := range tools {
			names[tool.Name] = tool
			if len(tool.Description) < 15 || !strings.HasPrefix(string(tool.InputSchema), "{") {
				t.Errorf("%s: %q, %s", tool.Name, tool.Description, tool.InputSchema)
			}
		}
		for _, m := range mux.Methods() {
			_, ok := names[strings.ReplaceAll(m.Name, "/", "_")]
			pushes := m.Name == "callback" || strings.HasPrefix(m.Name, "clock/") ||
				strings.HasPrefix(m.Name, "time/")
			if ok == pushes {
				t.Errorf("%s is a tool: %v", m.Name, ok)
			}
		}
		if got := string(names["math_add"].InputSchema); !strings.Contains(got, "the first number") ||
			!strings.Contains(got, `"required":["a","b"]`) {
			t.Errorf("math_add takes %s", got)
		}
		for _, c := range []struct{ tool, arguments, want string }{
			{"math_add", `{"a":2,"b":3}`, `5`},
			{
				"math_sqrt", `{"x":-9}`,
				`error: Invalid user data (error -32001): {"member":"x","reason":"must not be negative"}`,
			},
			{"math_add", `{"a":2}`, `error: Invalid arguments for the tool math_add`},
			{"sum", `{"numbers":[1,2,4]}`, `7`},
			{"sum", `{"numbers":["one"]}`, `error: Invalid arguments for the tool sum`},
			{"math_add_stream", `{"a":2,"b":1}`, `[0,1,2,3]`},
			{"math_add_stream", `{"a":-2,"b":1}`, `error: Invalid user data`},
			{"text_stream", `{"message":"né"}`, `["n","é"]`},
			{"get_data", `{}`, `["hello",5]`},
			{"getUserProfile", `{"user_id":7}`, `{"user_id":7,"name":"User 7","email":"user7@example.com"}`},
			{"echo", `{"a":[1.0,"\u0041"]}`, `{"a":[1.0,"\u0041"]}`},
			{"update", `{"x":1}`, ``},
			{"fail", `{"kind":"timeout"}`, `error: Request timeout (error -32003): {"kind":"timeout"}`},
			{"fail", `{"kind":"nope"}`, `error: Invalid arguments for the tool fail`},
		} {
			r, err := client.CallTool(t.Context(), c.tool, jsonrpc.Raw(c.arguments))
			if err != nil {
				t.Errorf("%s %s: %v", c.tool, c.arguments, err)
				continue
			}
			got := text(r)
			if r.IsError {
				got = "error: " + got
				got = got[:min(len(got), len(c.want))]
			}
			if got != c.want {
				t.Errorf("%s %s\n got %s\nwant %s", c.tool, c.arguments, got, c.want)
			}
		}
		for _, kind := range []string{"panic", "internal"} {
			_, err := client.CallTool(t.Context(), "fail", map[string]string{"kind": kind})
			if wire := new(jsonrpc.Error); !errors.As(err, &wire) || wire.Code != jsonrpc.InternalError {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}

func TestToolsReportProgress(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		client, _ := connectMCP(t, mcp.ClientOptions{Era: era})
		for tool, c := range map[string]struct {
			arguments string
			want      []float64
			total     float64
		}{
			"math_add_stream": {`{"a":1,"b":2}`, []float64{1, 2, 3, 4}, 0},
			"sleep":           {`{"ms":30}`, []float64{10, 20, 30}, 30},
			"demo_progress":   {`{"steps":3,"ms":0}`, []float64{1, 2, 3}, 3},
		} {
			var got []float64
			ctx := mcp.OnProgress(t.Context(), func(p spec.ProgressNotificationParams) {
				got = append(got, p.Progress)
				if p.Total != nil && *p.Total != c.total {
					t.Errorf("%s: total %v", tool, *p.Total)
				}
			})
			if _, err := client.CallTool(ctx, tool, jsonrpc.Raw(c.arguments)); err != nil {
				t.Error(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s reports %v, want %v", tool, got, c.want)
			}
		}
	})
}

func TestQuestions(t *testing.T) {
	each(t, "2025-11-25", func(t *testing.T, era string) {
		action := spec.ElicitAccept
		client, _ := connectMCP(t, mcp.ClientOptions{
			Era: era,
			Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				r := &spec.ElicitResult{Action: action}
				if p.URL == "" && action == spec.ElicitAccept {
					r.Content = jsonrpc.Raw(`{"name":"Ada","cups":2,"extras":["milk"]}`)
				}
				return r, nil
			},
			Sample: func(
				_ context.Context, p *spec.CreateMessageRequestParams,
			) (*spec.CreateMessageResult, error) {
				return &spec.CreateMessageResult{
					Role: "assistant", Model: "m",
					Content: []mcp.Content{mcp.Text("You asked: " + p.Messages[0].Content[0].Text)},
				}, nil
			},
			Roots: func(context.Context) ([]mcp.Root, error) {
				return []mcp.Root{{URI: "file:///tmp", Name: "tmp"}}, nil
			},
		})
		check := func(tool, arguments, want string) {
			t.Helper()
			r, err := client.CallTool(t.Context(), tool, jsonrpc.Raw(arguments))
			if err != nil {
				t.Errorf("%s: %v", tool, err)
				return
			}
			if text(r) != want || r.IsError {
				t.Errorf("%s: %s\nwant %s", tool, text(r), want)
			}
		}
		check("demo_form", `{}`,
			`{"action":"accept","form":{"name":"Ada","size":"medium","cups":2,"extras":["milk"],`+
				`"outside":false}}`)
		check("demo_url", `{}`, `{"action":"accept"}`)
		check("demo_sampling", `{"question":"why?"}`, `You asked: why?`)
		check("demo_roots", `{}`, `{"roots":[{"uri":"file:///tmp","name":"tmp"}]}`)
		action = spec.ElicitDecline
		check("demo_form", `{}`, `{"action":"decline"}`)
		action = spec.ElicitCancel
		check("demo_url", `{}`, `{"action":"cancel"}`)
	})
}

// A client without abilities gets an error that says so.
func TestQuestionsNobodyAnswers(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		client, _ := connectMCP(t, mcp.ClientOptions{Era: era})
		for _, tool := range []string{"demo_form", "demo_url", "demo_sampling", "demo_roots"} {
			if r, err := client.CallTool(t.Context(), tool, nil); err == nil && !r.IsError {
				t.Errorf("%s: %s", tool, text(r))
			}
		}
	})
}

func TestLogTool(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		levels := make(chan string, 10)
		client, _ := connectMCP(t,
			mcp.ClientOptions{Era: era, OnLog: func(p *spec.LoggingMessageNotificationParams) {
				levels <- p.Level
			}})
		if err := client.SetLogLevel(t.Context(), "warning"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CallTool(t.Context(), "demo_log", nil); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"warning", "error", "critical", "alert", "emergency"} {
			if got := <-levels; got != want {
				t.Errorf("level %s, want %s", got, want)
			}
		}
	})
}

func TestTasks(t *testing.T) {
	each(t, "2025-11-25", func(t *testing.T, era string) {
		client, _ := connectMCP(t, mcp.ClientOptions{Era: era, Tasks: true})
		if _, err := client.Tools(t.Context()); err != nil { // says which of them need to be tasks
			t.Fatal(err)
		}
		for _, tool := range []string{"demo_task", "demo_task_required"} {
			r, err := client.CallTool(t.Context(), tool, jsonrpc.Raw(`{"ms":1}`))
			if err != nil {
				t.Fatalf("%s: %v", tool, err)
			}
			if text(r) != "Worked for 1 ms." {
				t.Errorf("%s: %s", tool, text(r))
			}
			if r, err = client.CallTool(t.Context(), tool,
				jsonrpc.Raw(`{"ms":1,"fail":true}`)); err != nil || !r.IsError {
				t.Errorf("%s fails with %v, %v", tool, r, err)
			}
		}
	})
}

func TestContent(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		client, _ := connectMCP(t, mcp.ClientOptions{Era: era})
		all, err := client.CallTool(t.Context(), "demo_content", nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(all.Content) != 8 {
			t.Errorf("%d contents", len(all.Content))
		}
		one := func(kind string) mcp.Content {
			t.Helper()
			r, err := client.CallTool(t.Context(), "demo_content", map[string]string{"type": kind})
			if err != nil || len(r.Content) != 1 {
				t.Fatal(r, err)
			}
			return r.Content[0]
		}
		if _, err := png.Decode(bytes.NewReader(one("image").Data)); err != nil {
			t.Error(err)
		}
		if pdf := one("pdf").Resource; pdf == nil || !bytes.HasPrefix(pdf.Blob, []byte("%PDF-")) ||
			pdf.MIMEType != "application/pdf" {
			t.Errorf("pdf: %+v", pdf)
		}
		if sound := one("audio"); era != revisions[0] &&
			(sound.MIMEType != "audio/wav" || len(sound.Data) != 2044) {
			t.Errorf("audio: %d bytes of %q", len(sound.Data), sound.MIMEType)
		}
		if link := one("link"); era >= "2025-06-18" && link.URI != "playground://guide" {
			t.Errorf("link: %+v", link)
		}
	})
}

func TestResources(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		updated := make(chan string, 10)
		listening := make(chan struct{}, 1)
		client, _ := connectMCP(t, mcp.ClientOptions{
			Era: era, OnResourceUpdated: func(uri string) { updated <- uri },
			OnListening: func(spec.SubscriptionFilter) { listening <- struct{}{} },
		})
		all, err := client.Resources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if _, err := client.Read(t.Context(), r.URI); err != nil {
				t.Errorf("%s: %v", r.URI, err)
			}
		}
		read := func(uri string) string {
			t.Helper()
			r, err := client.Read(t.Context(), uri)
			if err != nil || len(r.Contents) != 1 {
				t.Fatal(r, err)
			}
			return r.Contents[0].Text
		}
		if got := read("playground://users/7"); !strings.Contains(got, `"user7@example.com"`) {
			t.Errorf("user 7: %s", got)
		}
		if got := read("playground://methods"); !strings.Contains(got, `"openrpc"`) {
			t.Errorf("methods: %.80s", got)
		}
		for _, uri := range []string{
			"playground://users/x", "playground://users/0",
			"playground://nope",
		} {
			if r, err := client.Read(t.Context(), uri); err == nil {
				t.Errorf("%s: %v", uri, r)
			}
		}

		const events = "playground://events"
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- client.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: []string{events}})
		}()
		<-listening
		if _, err := client.CallTool(t.Context(), "logEvent",
			map[string]string{"message": `a "quoted" one`}); err != nil {
			t.Error(err)
		}
		if got := <-updated; got != events {
			t.Errorf("updated: %s", got)
		}
		if got := read(events); got != `{"count":1,"last":"a \"quoted\" one"}` {
			t.Errorf("events: %s", got)
		}
		stop()
		<-ended
	})
}

func TestPrompts(t *testing.T) {
	each(t, revisions[0], func(t *testing.T, era string) {
		client, _ := connectMCP(t, mcp.ClientOptions{Era: era})
		prompts, err := client.Prompts(t.Context())
		if err != nil || len(prompts) != 3 {
			t.Fatal(prompts, err)
		}
		p, err := client.Prompt(t.Context(), "calculate", map[string]string{"operation": "add", "a": "2"})
		if err != nil || !strings.Contains(p.Messages[0].Content.Text, "math_add with a = 2 and b = 1") {
			t.Error(p, err)
		}
		for _, args := range []map[string]string{nil, {"operation": "divide", "a": "1"}} {
			_, err := client.Prompt(t.Context(), "calculate", args)
			if wire := new(jsonrpc.Error); !errors.As(err, &wire) || wire.Code != jsonrpc.InvalidParams {
				t.Error(err)
			}
		}
		if p, err = client.Prompt(t.Context(), "review_events", nil); err != nil ||
			len(p.Messages) != 2 || p.Messages[1].Content.Resource == nil {
			t.Error(p, err)
		}
		if p, err = client.Prompt(t.Context(), "tour", nil); err != nil || len(p.Messages) != 1 {
			t.Error(p, err)
		}
		for _, c := range []struct {
			ref        spec.CompleteReference
			name, have string
			want       []string
			more       bool
		}{
			{
				spec.CompleteReference{Type: spec.RefPrompt, Name: "calculate"},
				"operation", "",
				[]string{"add", "multiply", "subtract"},
				false,
			},
			{
				spec.CompleteReference{Type: spec.RefPrompt, Name: "calculate"},
				"operation", "m",
				[]string{"multiply"},
				false,
			},
			{spec.CompleteReference{Type: spec.RefPrompt, Name: "calculate"}, "a", "", []string{}, false},
			{
				spec.CompleteReference{Type: spec.RefResource, URI: "playground://users/{user_id}"},
				"user_id",
				"19",
				[]string{"19", "190", "191", "192", "193", "194", "195", "196", "197", "198", "199"},
				false,
			},
			{
				spec.CompleteReference{Type: spec.RefResource, URI: "playground://users/{user_id}"},
				"user_id",
				"", nil, true,
			},
		} {
			r, err := client.Complete(t.Context(),
				&spec.CompleteRequestParams{
					Ref: c.ref, Argument: spec.CompleteArgument{Name: c.name, Value: c.have},
				})
			if err != nil {
				t.Fatal(err)
			}
			if c.want != nil && !slices.Equal(r.Completion.Values, c.want) ||
				r.Completion.HasMore != c.more {
				t.Errorf("%s %q: %v", c.name, c.have, r.Completion)
			}
		}
	})
}

// The service describes itself.
func TestServerInfo(t *testing.T) {
	t.Parallel()
	client, _ := connectMCP(t, mcp.ClientOptions{})
	info := client.Server()
	if info.Name != "farcall-playground" || info.Title != "farcall playground" ||
		!strings.Contains(info.Instructions, "demo_") {
		t.Errorf("%+v", info)
	}
}
