package interop

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type none = struct{}

// completions are the names that the prompt "greet" knows.
func completions(prefix string) (names []string) {
	for _, name := range []string{"Ada", "Bea", "Bob"} {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// ours is the server of package mcp.
func ours() *mcp.Server {
	s := mcp.NewServer("farcall", "1", &mcp.ServerOptions{
		PageSize: 5,
		Complete: func(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
			return &spec.CompleteResult{Completion: spec.Completion{Values: completions(p.Argument.Value)}},
				nil
		},
	})
	mcp.AddTool(s, mcp.Tool{Name: "add", Description: "Adds"},
		func(_ context.Context, in addends) (sum, error) { return sum{in.A + in.B}, nil })
	mcp.AddTool(s, mcp.Tool{Name: "fail", Description: "Fails"},
		func(context.Context, none) (string, error) { return "", errors.New("it went wrong") })
	mcp.AddTool(s, mcp.Tool{Name: "panic", Description: "Panics"},
		func(context.Context, none) (string, error) { panic("it must not learn why") })
	mcp.AddTool(s, mcp.Tool{
		Name: "count", Description: "Counts",
		Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	},
		func(ctx context.Context, in counted) (string, error) {
			for i := range in.N {
				if err := mcp.Progress(ctx, float64(i+1), float64(in.N), ""); err != nil {
					return "", err
				}
				<-time.After(time.Duration(in.Pause) * time.Millisecond) // so long does the work take
			}
			return "Counted.", nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "chatter", Description: "Logs"},
		func(ctx context.Context, _ none) (string, error) {
			return "Logged.", errors.Join(mcp.Log(ctx, "info", "ours", "not much"),
				mcp.Log(ctx, "error", "ours", "something bad"))
		})
	addOurQuestions(s)
	w := newWaits()
	mcp.AddTool(s, mcp.Tool{Name: "wait", Description: "Waits until it is cancelled"},
		func(ctx context.Context, in waiting) (string, error) {
			w.wait(ctx, in.Key)
			return "", ctx.Err()
		})
	mcp.AddTool(s, mcp.Tool{Name: "cancelled", Description: "Says how many waits were cancelled"},
		func(_ context.Context, in waiting) (string, error) { return w.count(in.Key), nil })
	mcp.AddTool(s, mcp.Tool{Name: "touch", Description: "Changes the note"},
		func(context.Context, none) (string, error) {
			s.ResourceUpdated("note://text")
			return "Changed.", nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "change", Description: "Changes the list of tools"},
		func(context.Context, none) (string, error) {
			mcp.AddTool(s, mcp.Tool{Name: "new", Description: "Is new"},
				func(context.Context, none) (string, error) {
					return "", nil
				})
			s.RemoveTool("new")
			return "Changed.", nil
		})
	addOurContents(s)
	return s
}

func addOurQuestions(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{Name: "ask", Description: "Asks for a name"},
		func(ctx context.Context, _ none) (string, error) {
			f, err := mcp.Elicit[form](ctx, "What is your name?")
			return "Hello, " + f.Name + "!", err
		})
	mcp.AddTool(s, mcp.Tool{Name: "visit", Description: "Asks to visit a page"},
		func(ctx context.Context, _ none) (string, error) {
			return "Visited.", mcp.ElicitURL(ctx, "Please visit it", "https://example.com/")
		})
	mcp.AddTool(s, mcp.Tool{Name: "think", Description: "Asks the model"},
		func(ctx context.Context, _ none) (string, error) {
			r, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
				Messages: []spec.SamplingMessage{
					{Role: "user", Content: []mcp.Content{mcp.Text("The capital of France?")}},
				}, MaxTokens: 10,
			})
			if err != nil {
				return "", err
			}
			return "It says " + r.Content[0].Text, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "places", Description: "Asks for the roots"},
		func(ctx context.Context, _ none) (string, error) {
			roots, err := mcp.Roots(ctx)
			if err != nil {
				return "", err
			}
			return roots[0].URI, nil
		})
	mcp.AddTool(s, mcp.Tool{
		Name: "work", Description: "Works, as a task if wanted",
		Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	},
		func(ctx context.Context, _ none) (string, error) {
			return "Worked.", nil
		})
}

func addOurContents(s *mcp.Server) {
	note := func(
		c mcp.ResourceContents,
	) func(context.Context, string) ([]mcp.ResourceContents, error) {
		return func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{c}, nil
		}
	}
	s.AddResource(mcp.Resource{URI: "note://text", Name: "text", MIMEType: "text/plain"},
		note(mcp.ResourceContents{Text: "A note."}))
	s.AddResource(mcp.Resource{URI: "note://bytes", Name: "bytes"},
		note(mcp.ResourceContents{Blob: []byte("\x00\x01\xff")}))
	s.AddTemplate(mcp.ResourceTemplate{URITemplate: "note://numbered/{n}", Name: "numbered"},
		func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: "Note " + vars.Get("n") + "."}}, nil
		})
	s.AddPrompt(mcp.Prompt{
		Name: "greet", Arguments: []spec.PromptArgument{{Name: "name", Required: true}},
	},
		func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
			return &mcp.PromptResult{
				Messages: []mcp.PromptMessage{
					{Role: "user", Content: mcp.Text("Please greet " + args["name"] + ".")},
				},
			}, nil
		})
}

// serveOurs serves it in all ways.
func serveOurs(t *testing.T) *place {
	t.Helper()
	s := ours()
	h := mcphttp.NewHandler(s, nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/messages", h.ServeMessages)
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		web.Close()
	})
	return &place{web.URL + "/mcp", web.URL + "/sse", func() *exec.Cmd { return child(t, "farcall") }}
}

// our is the client of package mcp.
type our struct {
	t      *testing.T
	client *mcp.Client
	event  chan string
}

// useAs connects it in one of the ways that a place has.
func useAs(t *testing.T, p *place, way, era string) *our {
	t.Helper()
	u := &our{t: t, event: make(chan string, 100)}
	o := ada(era)
	o.Sample = func(
		context.Context, *spec.CreateMessageRequestParams,
	) (*spec.CreateMessageResult, error) {
		return &spec.CreateMessageResult{
			Role: "assistant", Model: "a-model",
			Content: []mcp.Content{mcp.Text("Paris")},
		}, nil
	}
	o.Roots = func(context.Context) ([]mcp.Root, error) {
		return []mcp.Root{{URI: root, Name: "home"}}, nil
	}
	o.OnLog = func(p *spec.LoggingMessageNotificationParams) {
		u.event <- "log " + p.Level + " " + string(p.Data)
	}
	o.OnListChanged = func(kind string) { u.event <- "changed " + kind }
	o.OnResourceUpdated = func(uri string) { u.event <- "updated " + uri }
	o.OnListening = func(granted spec.SubscriptionFilter) { u.event <- "listening" }
	o.OnWarning = func(err error) { t.Logf("warning: %v", err) }
	switch way {
	case "http":
		u.client = dial(t, p.http, o)
	case "sse":
		u.client = dial(t, p.sse, o)
	case "stdio":
		u.client = start(t, p.stdio(), o)
	}
	return u
}

func (u *our) revision() string { return u.client.Server().Revision }

func (u *our) lists(
	ctx context.Context,
) (tools, resources, templates, prompts []string, err error) {
	toolList, err1 := u.client.Tools(ctx)
	for _, one := range toolList {
		tools = append(tools, one.Name)
	}
	resourceList, err2 := u.client.Resources(ctx)
	for _, one := range resourceList {
		resources = append(resources, one.URI)
	}
	templateList, err3 := u.client.Templates(ctx)
	for _, one := range templateList {
		templates = append(templates, one.URITemplate)
	}
	promptList, err4 := u.client.Prompts(ctx)
	for _, one := range promptList {
		prompts = append(prompts, one.Name)
	}
	return tools, resources, templates, prompts, errors.Join(err1, err2, err3, err4)
}

func (u *our) call(ctx context.Context, tool string, args any) (string, error) {
	r, err := u.client.CallTool(ctx, tool, args)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, block := range r.Content {
		text.WriteString(block.Text)
	}
	if r.IsError {
		return "", &toolFailure{text.String()}
	}
	return text.String(), nil
}

func (u *our) count(ctx context.Context, n int) (progress []float64, err error) {
	ctx = mcp.OnProgress(ctx, func(p spec.ProgressNotificationParams) {
		progress = append(progress, p.Progress)
	})
	_, err = u.call(ctx, "count", counted{N: n})
	return progress, err
}

func (u *our) logFrom(ctx context.Context, level string) error {
	return u.client.SetLogLevel(ctx, level)
}

func (u *our) read(ctx context.Context, uri string) (string, error) {
	r, err := u.client.Read(ctx, uri)
	if err != nil {
		return "", err
	}
	return r.Contents[0].Text + string(r.Contents[0].Blob), nil
}

func (u *our) prompt(ctx context.Context, name string, args map[string]string) (string, error) {
	r, err := u.client.Prompt(ctx, name, args)
	if err != nil {
		return "", err
	}
	return r.Messages[0].Content.Text, nil
}

func (u *our) complete(ctx context.Context, prompt, argument, value string) ([]string, error) {
	r, err := u.client.Complete(ctx, &spec.CompleteRequestParams{
		Ref:      spec.CompleteReference{Type: "ref/prompt", Name: prompt},
		Argument: spec.CompleteArgument{Name: argument, Value: value},
	})
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

func (u *our) watch(ctx context.Context, uri string) error {
	go u.client.Listen(ctx,
		spec.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{uri}})
	await(u.t, u, "listening")
	return nil
}

func (u *our) events() <-chan string { return u.event }

// Our client and our server, over each transport in each revision.
func TestMCPOurs(t *testing.T) {
	p := serveOurs(t)
	for way, eras := range map[string][]string{
		"http":  {"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
		"stdio": {"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
		"sse":   {"2024-11-05"},
	} {
		for _, era := range eras {
			t.Run(way+" "+era, func(t *testing.T) {
				u := useAs(t, p, way, era)
				if u.revision() != era {
					t.Errorf("the revision is %s", u.revision())
				}
				exercise(t, u, missingIn(era)...)
			})
		}
	}
}

// missingIn returns what a revision does not have.
func missingIn(revision string) []string {
	switch {
	case revision < "2025-06-18":
		return []string{"ask", "visit"}
	case revision < "2025-11-25":
		return []string{"visit"}
	}
	return nil
}
