package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// playTTL is how long clients may keep what the server lists and what is read.
const playTTL = time.Hour

// playPage is how many items a page of a list has, of the server and of the gateway.
const playPage = 6

// watched is the resource that changes.
const watched = "note:///watched"

// signIn is where a user is sent.
const signIn = "https://example.com/sign-in"

// ownError is an error of a server's own.
const ownError jsonrpc.Code = 4711

type (
	playNothing struct{}
	playSum     struct {
		Sum int `json:"sum"`
	}
	playAdd struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	playText struct {
		Text string `json:"text"`
	}
	playName struct {
		Name string `json:"name"`
	}
)

// newPlay returns a server of one revision that has all there is. say learns what
// its handlers see.
func newPlay(revision string, say func(event string)) *mcp.Server {
	s := mcp.NewServer("play", "1.2.3", &mcp.ServerOptions{
		TaskAfter: -1, // the matrix looks at tasks, also of calls that are fast
		Eras:      revision, Instructions: "Read the notes first.", Complete: playComplete,
		PageSize: playPage,
		CacheTTL: playTTL, CacheScope: spec.CachePublic, TaskPoll: 20 * time.Millisecond,
	})
	playTools(s, say)
	playAsking(s, say)
	playTasks(s, say)
	playNotes(s)
	s.Handle("example/trace",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return farcall.TraceFrom(ctx), nil
		}))
	s.Handle("example/double",
		farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
			var p struct {
				N int `json:"n"`
			}
			if err := req.Bind(&p); err != nil {
				return nil, err
			}
			return map[string]int{"n": 2 * p.N}, nil
		}))
	return s
}

// obey changes the server.
func obey(s *mcp.Server, command string) {
	verb, arg, _ := strings.Cut(command, " ")
	switch verb {
	case "change":
		s.AddTool(
			mcp.Tool{Name: "extra", Description: arg, InputSchema: jsonrpc.Raw(`{"type":"object"}`)},
			func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) { return &mcp.ToolResult{}, nil })
		s.AddResource(mcp.Resource{URI: "note:///extra", Name: "extra", Description: arg},
			func(context.Context, string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{Text: arg}}, nil
			})
		s.AddPrompt(mcp.Prompt{Name: "extra", Description: arg},
			func(context.Context, map[string]string) (*mcp.PromptResult, error) {
				return &mcp.PromptResult{}, nil
			})
	case "touch":
		s.ResourceUpdated(arg)
	}
}

func playTools(s *mcp.Server, say func(event string)) {
	mcp.AddTool(s, mcp.Tool{Name: "echo", Description: "Say it again"},
		func(_ context.Context, in playText) (string, error) { return in.Text, nil })
	mcp.AddTool(s, mcp.Tool{
		Name: "add", Description: "Add two numbers",
		Title: "Addition", Annotations: &spec.ToolAnnotations{ReadOnlyHint: true},
		Icons: []spec.Icon{{Src: "https://example.com/plus.png", MIMEType: "image/png"}},
	}, func(_ context.Context, in playAdd) (playSum, error) { return playSum{in.A + in.B}, nil })
	mcp.AddTool(s, mcp.Tool{Name: "scores", Description: "The scores, a list"},
		func(context.Context, playNothing) ([]int, error) { return []int{3, 1, 4}, nil })
	mcp.AddTool(s, mcp.Tool{Name: "media", Description: "Content of every kind"},
		func(context.Context, playNothing) ([]mcp.Content, error) {
			return []mcp.Content{
				mcp.Text("hello"), mcp.Image([]byte("png"), "image/png"),
				mcp.Audio([]byte("sound"), "audio/wav"),
				mcp.Link(mcp.Resource{URI: "note:///1", Name: "the first note"}),
				mcp.Embed(mcp.ResourceContents{URI: "note:///2", MIMEType: "text/plain", Text: "note 2"}),
			}, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "count", Description: "Count to two, and say so"},
		func(ctx context.Context, _ playNothing) (string, error) {
			return "counted", errors.Join(
				mcp.Progress(ctx, 1, 2, "one"), mcp.Log(ctx, spec.LogDebug, "counter", "quiet"),
				mcp.Progress(ctx, 2, 2, "two"), mcp.Log(ctx, spec.LogError, "counter", "loud"))
		})
	mcp.AddTool(s, mcp.Tool{Name: "forever", Description: "Wait until cancelled"},
		func(ctx context.Context, in playText) (string, error) {
			say("begun " + in.Text)
			<-ctx.Done()
			say("gone " + in.Text)
			return "", ctx.Err()
		})
	mcp.AddTool(s, mcp.Tool{Name: "trace", Description: "Say the trace context"},
		func(ctx context.Context, _ playNothing) (string, error) {
			return fmt.Sprint(farcall.TraceFrom(ctx)), nil
		})
	kept := ""
	var keeping sync.Mutex
	mcp.AddTool(s, mcp.Tool{Name: "keep", Description: "Keep a text, and say what was kept before"},
		func(_ context.Context, in playText) (string, error) {
			keeping.Lock()
			defer keeping.Unlock()
			before := kept
			kept = in.Text
			return before, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "fail", Description: "Fail"},
		func(context.Context, playNothing) (string, error) { return "", errors.New("the disk is full") })
	mcp.AddTool(s, mcp.Tool{Name: "refuse", Description: "Answer an error of the server's own"},
		func(context.Context, playNothing) (string, error) {
			return "", &jsonrpc.Error{
				Code: ownError, Message: "not today",
				Data: jsonrpc.Raw(`{"day":"Sunday"}`),
			}
		})
}

// playAsking adds the tools that ask the client.
func playAsking(s *mcp.Server, say func(event string)) {
	mcp.AddTool(s, mcp.Tool{Name: "greet", Description: "Greet the user by name"},
		func(ctx context.Context, in playText) (string, error) {
			who, err := mcp.Elicit[playName](ctx, "Who are you, "+in.Text+"?")
			if err == nil {
				say("met " + who.Name)
			}
			return "Hello, " + who.Name, err
		})
	mcp.AddTool(s, mcp.Tool{Name: "visit", Description: "Sign in on a page"},
		func(ctx context.Context, _ playNothing) (string, error) {
			return "signed in", mcp.ElicitURL(ctx, "Sign in", signIn)
		})
	var unlocked sync.Map
	mcp.AddTool(s, mcp.Tool{Name: "locked", Description: "Refuse until the user has signed in"},
		func(_ context.Context, in playText) (string, error) {
			if _, again := unlocked.LoadOrStore(in.Text, true); again {
				return "signed in", nil
			}
			return "", &jsonrpc.Error{
				Code: spec.URLElicitationRequired, Message: "Sign in first",
				Data: jsonrpc.Raw(
					`{"elicitations":[{"mode":"url","elicitationId":"e1","message":"Sign in","url":"` +
						signIn + `"}]}`),
			}
		})
	mcp.AddTool(s, mcp.Tool{Name: "capital", Description: "Ask the model"},
		func(ctx context.Context, in playText) (string, error) {
			m, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
				Messages: []spec.SamplingMessage{
					{Role: "user", Content: []mcp.Content{mcp.Text("The capital of " + in.Text + "?")}},
				}, MaxTokens: 10,
			})
			if err != nil {
				return "", err
			}
			return m.Content[0].Text, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "where", Description: "List the roots"},
		func(ctx context.Context, _ playNothing) (string, error) {
			roots, err := mcp.Roots(ctx)
			if err != nil {
				return "", err
			}
			return fmt.Sprint(len(roots), " ", roots[0].URI), nil
		})
}

// playTasks adds tools that run as tasks: one may, and one always does.
func playTasks(s *mcp.Server, say func(event string)) {
	for _, tool := range []struct{ name, support string }{
		{"work", spec.TaskOptional},
		{"job", spec.TaskRequired},
	} {
		mcp.AddTool(s, mcp.Tool{
			Name: tool.name, Description: "Work a while",
			Execution: &spec.ToolExecution{TaskSupport: tool.support},
		},
			func(_ context.Context, in playText) (string, error) {
				say("worked " + in.Text)
				return "worked on " + in.Text, nil
			})
	}
	always := &spec.ToolExecution{TaskSupport: spec.TaskRequired}
	mcp.AddTool(s, mcp.Tool{
		Name: "interview", Description: "Ask the user, in a task",
		Execution: always,
	}, func(ctx context.Context, in playText) (string, error) {
		who, err := mcp.Elicit[playName](ctx, "Who are you, "+in.Text+"?")
		return "Hello, " + who.Name, err
	})
	mcp.AddTool(s, mcp.Tool{Name: "endless", Description: "Work until cancelled", Execution: always},
		func(ctx context.Context, in playText) (string, error) {
			say("begun endless " + in.Text)
			<-ctx.Done()
			say("gone endless " + in.Text)
			return "", ctx.Err()
		})
}

func playNotes(s *mcp.Server) {
	text := func(text string) func(context.Context, string) ([]mcp.ResourceContents, error) {
		return func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: text}}, nil
		}
	}
	s.AddResource(mcp.Resource{
		URI: "note:///readme", Name: "readme", Title: "Read me",
		MIMEType: "text/plain",
	}, text("Welcome"))
	s.AddResource(mcp.Resource{URI: watched, Name: "watched"}, text("something"))
	s.AddResource(mcp.Resource{URI: "note:///picture", Name: "picture", MIMEType: "image/png"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Blob: []byte{0, 1, 2}}}, nil
		})
	s.AddTemplate(mcp.ResourceTemplate{
		URITemplate: "note:///{number}", Name: "note",
		MIMEType: "text/plain",
	},
		func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
			if _, err := strconv.Atoi(vars.Get("number")); err != nil {
				return nil, mcp.ErrNotFound
			}
			return []mcp.ResourceContents{{Text: "note " + vars.Get("number")}}, nil
		})
	s.AddPrompt(mcp.Prompt{
		Name: "review", Title: "Code review", Icons: []spec.Icon{{Src: "https://example.com/eye.png"}},
		Arguments: []spec.PromptArgument{{Name: "language", Required: true}},
	}, func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
		return &mcp.PromptResult{
			Messages: []mcp.PromptMessage{
				{Role: "user", Content: mcp.Text("Review this " + args["language"] + " code")},
			},
		}, nil
	})
}

// playComplete completes languages; with a level known it says so.
func playComplete(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
	r := &spec.CompleteResult{Completion: spec.Completion{Values: []string{}}}
	for _, v := range []string{"go", "gleam", "rust"} {
		if strings.HasPrefix(v, p.Argument.Value) {
			if p.Context != nil && p.Context.Arguments["level"] != "" {
				v += " for " + p.Context.Arguments["level"]
			}
			r.Completion.Values = append(r.Completion.Values, v)
		}
	}
	return r, nil
}
