package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// This is the code of docs/mcp.md: TestDocuments compares them.

type Search struct {
	Query string   `json:"query" doc:"words to look for" pattern:"\\S"`
	Sort  string   `json:"sort" enum:"newest,best" default:"best"`
	Limit int      `json:"limit" min:"1" max:"100" default:"10"`
	Tags  []string `json:"tags,omitempty"`
}

type Found struct {
	Titles []string `json:"titles" doc:"best first"`
}

func addTools(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{
		Name: "search", Title: "Search", Description: "Search the library",
		Annotations: &spec.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, in Search) (Found, error) {
		if in.Query == "nothing" {
			return Found{}, errors.New("nothing found; try other words") // for the model to read
		}
		return Found{Titles: []string{in.Query + ", " + in.Sort}}, nil
	})

	s.AddTool(mcp.Tool{
		Name: "raw",
		InputSchema: jsonrpc.Raw(
			`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
	}, func(_ context.Context, arguments jsonrpc.Raw) (*mcp.ToolResult, error) {
		return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(string(arguments))}}, nil
	})

	mcp.AddTool(s, mcp.Tool{Name: "draw", Description: "Draw something"},
		func(context.Context, struct{}) ([]mcp.Content, error) {
			return []mcp.Content{mcp.Text("a dot"), mcp.Image([]byte("…"), "image/png")}, nil
		})
}

func addResources(s *mcp.Server) {
	s.AddResource(mcp.Resource{URI: "docs:///readme", Name: "readme", MIMEType: "text/markdown"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			text, err := os.ReadFile("README.md") // an fs.ErrNotExist: there is no such resource
			return []mcp.ResourceContents{{Text: string(text)}}, err
		})
	s.AddTemplate(mcp.ResourceTemplate{
		URITemplate: "users:///{id}", Name: "user",
		MIMEType: "application/json",
	},
		func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
			if vars.Get("id") != "7" {
				return nil, mcp.ErrNotFound
			}
			return []mcp.ResourceContents{{Text: `{"id":7}`}}, nil
		})
	s.AddPrompt(mcp.Prompt{
		Name: "review", Arguments: []spec.PromptArgument{{Name: "language", Required: true}},
	},
		func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
			ask := "Review this " + args["language"] + " code"
			return &mcp.PromptResult{Messages: []mcp.PromptMessage{{Role: "user", Content: mcp.Text(ask)}}},
				nil
		})
}

type grading struct {
	Language string `json:"language" doc:"what the code is written in" enum:"go,rust"`
	Style    bool   `json:"style,omitempty" doc:"grade the style, too"`
}

func addGrading(s *mcp.Server) {
	mcp.AddPrompt(s, mcp.Prompt{Name: "grade"},
		func(_ context.Context, in grading) (*mcp.PromptResult, error) {
			ask := fmt.Sprintf("Grade this %s code; with its style: %t", in.Language, in.Style)
			return &mcp.PromptResult{Messages: []mcp.PromptMessage{{Role: "user", Content: mcp.Text(ask)}}},
				nil
		})
}

func serveOwn(s *mcp.Server, mux *http.ServeMux) *mcphttp.Handler {
	h := mcphttp.NewHandler(s, &mcphttp.Options{
		Origins: []string{"https://app.example.com"},
		// set by what stands in front
		Owner: func(r *http.Request) string { return r.Header.Get("X-User") },
	})
	mux.Handle("/mcp", h)
	mux.HandleFunc("/sse", h.ServeSSE)           // clients of 2024-11-05
	mux.HandleFunc("/messages", h.ServeMessages) // clients of 2024-11-05
	return h
}

type Who struct {
	Name string `json:"name" doc:"your name"`
}

func addAsking(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{Name: "summarize", Description: "Summarize the files of the user"},
		func(ctx context.Context, _ struct{}) (string, error) {
			// Both are asked in one round; then the errors are looked at.
			who, err1 := mcp.Elicit[Who](ctx, "Who wants to know?")
			roots, err2 := mcp.Roots(ctx)
			if err := errors.Join(err1, err2); err != nil {
				return "", err
			}
			// This runs once, although the handler runs again after the next question.
			ticket, err := mcp.Once(ctx, "ticket", func() (string, error) { return openTicket(who.Name) })
			if err != nil {
				return "", err
			}
			said, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
				Messages: []spec.SamplingMessage{
					{Role: "user", Content: []mcp.Content{mcp.Text("Summarize " + roots[0].URI)}},
				},
				MaxTokens: 100,
			})
			if err != nil {
				return "", err
			}
			return ticket + ": " + said.Content[0].Text, nil
		})
}

func openTicket(name string) (string, error) {
	fmt.Println("a ticket is opened")
	return "ticket of " + name, nil
}

func addSlow(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{
		Name: "index", Description: "Index the library",
		Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, func(ctx context.Context, _ struct{}) (string, error) {
		for shelf := range 3 {
			if err := mcp.Progress(ctx, float64(shelf+1), 3, "shelves"); err != nil {
				return "", err
			}
			if err := mcp.Log(ctx, "info", "index", map[string]int{"shelf": shelf + 1}); err != nil {
				return "", err
			}
		}
		return "indexed", nil
	})
}

func newClient(ctx context.Context) (*mcp.Client, error) {
	o := &mcp.ClientOptions{
		Name: "reader", Version: "1.0.0",
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			fmt.Println(p.Message)
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"name":"Ada"}`)}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///home/ada"}}, nil
		},
		OnListChanged: func(kind string) { fmt.Println(kind, "have changed") },
	}
	child, err := stream.Command(exec.CommandContext(ctx, "./server"), stream.NDJSON, nil)
	if err != nil {
		return nil, err
	}
	return mcp.Connect(ctx, child, o) // or mcp.Dial(ctx, "https://example.com/mcp", o)
}

func useClient(ctx context.Context, client *mcp.Client) error {
	tools, err := client.Tools(ctx) // all pages, kept for as long as the server says
	if err != nil {
		return err
	}
	fmt.Println(len(tools), "tools of", client.Server().Name)

	found, err := mcp.CallTool[Found](ctx, client, "search", map[string]any{"query": "go"})
	var failure *mcp.ToolError
	switch {
	case errors.As(err, &failure):
		fmt.Println("the tool failed:", failure)
	case err != nil:
		return err // a *jsonrpc.Error when the server refused the call
	}
	fmt.Println(found.Titles)

	ctx = mcp.OnProgress(ctx, func(p spec.ProgressNotificationParams) {
		fmt.Println(p.Progress, p.Message)
	})
	result, err := client.CallTool(ctx, "index", nil)
	if err != nil {
		return err
	}
	fmt.Println(result.Content[0].Text)
	return nil
}

func follow(ctx context.Context, client *mcp.Client) error {
	return client.Listen(ctx, spec.SubscriptionFilter{
		ToolsListChanged: true, ResourceSubscriptions: []string{"docs:///readme"},
	})
}

// saveSession ends the client, but not its session.
func saveSession(client *mcp.Client, path string) error {
	session, err := client.Session()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, session, 0o600), client.Close())
}

func resumeSession(ctx context.Context, url, path string) (*mcp.Client, error) {
	session, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return mcp.Dial(ctx, url, &mcp.ClientOptions{Resume: session}) // without a file: a new session
}

func runTask(ctx context.Context, client *mcp.Client) (string, error) {
	task, err := client.StartTask(ctx, "index", nil, time.Hour)
	if err != nil {
		return "", err
	}
	result := new(mcp.ToolResult)
	if task.TaskID == "" { // the call ended before it became a task
		err = json.Unmarshal(task.Result, result)
	} else {
		result, err = client.WaitTask(ctx, task.TaskID)
	}
	if err != nil {
		return "", err
	}
	return result.Content[0].Text, nil
}

type tokens struct{}

func (tokens) Authorize(_ context.Context, r *http.Request) error {
	r.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
	return nil
}

func (tokens) Challenge(context.Context, *http.Response) (retry bool, err error) {
	return false, nil
}

func dialWithToken(ctx context.Context, url string) (*mcp.Client, error) {
	return mcp.Dial(ctx, url, &mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Authorize: tokens{}}})
}

func library() *mcp.Server {
	s := mcp.NewServer("library", "1.0.0", nil)
	addTools(s)
	addResources(s)
	addGrading(s)
	addSlow(s)
	return s
}

func ExampleClient() {
	client, hangUp := connect(library(), nil)
	defer hangUp()
	if err := useClient(context.Background(), client); err != nil {
		log.Fatal(err)
	}
	user, err := client.Read(context.Background(), "users:///7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(user.Contents[0].Text)
	_, err = client.Read(context.Background(), "users:///8")
	fmt.Println(err)
	// Output:
	// 4 tools of library
	// [go, best]
	// 1 shelves
	// 2 shelves
	// 3 shelves
	// indexed
	// {"id":7}
	// Resource not found (code -32602)
}

func ExampleClient_StartTask() {
	for _, era := range []string{"modern", "legacy"} {
		client, hangUp := connect(library(), &mcp.ClientOptions{Era: era, Tasks: true})
		fmt.Println(runTask(context.Background(), client))
		hangUp()
	}
	// Output:
	// indexed <nil>
	// indexed <nil>
}

func ExampleOnce() {
	s := mcp.NewServer("files", "1.0.0", nil)
	addAsking(s)
	client, hangUp := connect(s, &mcp.ClientOptions{
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			fmt.Println(p.Message)
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"name":"Ada"}`)}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///home/ada"}}, nil
		},
		Sample: func(
			context.Context, *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			return &spec.CreateMessageResult{
				Role:    "assistant",
				Content: []mcp.Content{mcp.Text("many letters")}, Model: "m",
			}, nil
		},
	})
	defer hangUp()
	fmt.Println(mcp.CallTool[string](context.Background(), client, "summarize", nil))
	// Output:
	// Who wants to know?
	// a ticket is opened
	// ticket of Ada: many letters <nil>
}

// What does not run here is only compiled.
var _ = []any{serveOwn, newClient, follow, dialWithToken}
