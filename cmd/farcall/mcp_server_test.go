package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// mcpServerVar makes the test binary an MCP server on standard input and output.
const mcpServerVar = "FARCALL_TEST_MCP"

func mcpStdioMain() int {
	s := mcpTestServer()
	defer s.Close()
	if err := s.ServeStdio(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mcpTestServer has something of everything.
func mcpTestServer() *mcp.Server {
	s := mcp.NewServer("everything", "1.2.3", &mcp.ServerOptions{
		TaskAfter: -1, // the scripts look at tasks, also of calls that are fast
		Title:     "Everything", Instructions: "For tests.\nNot for work.", PageSize: 3,
		Complete: func(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
			r := &spec.CompleteResult{}
			known := ""
			if p.Context != nil {
				known = p.Context.Arguments["language"]
			}
			for _, v := range []string{"go", "groovy", "rust"} {
				if strings.HasPrefix(v, p.Argument.Value) {
					r.Completion.Values = append(r.Completion.Values, known+v)
				}
			}
			return r, nil
		},
	})
	addTestTools(s)
	addTestQuestions(s)
	s.AddResource(mcp.Resource{
		URI: "test://text", Name: "text", MIMEType: "text/plain",
		Description: "A text",
	}, func(context.Context, string) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{{Text: "the text"}}, nil
	})
	s.AddResource(mcp.Resource{URI: "test://blob", Name: "blob", MIMEType: "image/png"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Blob: []byte("blobby")}}, nil
		})
	s.AddTemplate(mcp.ResourceTemplate{
		URITemplate: "test://item/{id}", Name: "item", Description: "An item by its id",
	}, func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{{Text: "item " + vars.Get("id")}}, nil
	})
	s.AddPrompt(mcp.Prompt{
		Name: "review", Description: "Ask for a review",
		Arguments: []spec.PromptArgument{{Name: "language", Required: true}, {Name: "style"}},
	},
		func(_ context.Context, args map[string]string) (*mcp.PromptResult, error) {
			return &mcp.PromptResult{Messages: []mcp.PromptMessage{
				{Role: "user", Content: mcp.Text("Review this " + args["language"] + ".")},
				{Role: "assistant", Content: mcp.Image([]byte("png"), "image/png")},
			}}, nil
		})
	return s
}

type testPair struct {
	A float64 `json:"a" doc:"the first number"`
	B float64 `json:"b" doc:"the second number"`
}

type testSum struct {
	Sum float64 `json:"sum"`
}

func addTestTools(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{
		Name: "add", Description: "Add two numbers", Title: "Addition",
		Annotations: &spec.ToolAnnotations{ReadOnlyHint: true},
	},
		func(_ context.Context, in testPair) (testSum, error) {
			return testSum{in.A + in.B}, nil
		})
	s.AddTool(mcp.Tool{Name: "echo", Description: "Return the arguments", InputSchema: jsonrpc.Raw(
		`{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"number"},` +
			`"i":{"$ref":"#/$defs/int"},"b":{"type":"boolean"},` +
			`"l":{"type":"array"},"o":{"type":"object"},"x":{},"sn":{"anyOf":[{"type":"string"},` +
			`{"type":"null"}]}},"$defs":{"int":{"type":"integer"}}}`)},
		func(_ context.Context, arguments jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(cmp.Or(string(arguments), "{}"))}}, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "fail", Description: "Fail"},
		func(context.Context, struct{}) (string, error) {
			return "", errors.New("out of\x1b[31m paper")
		})
	mcp.AddTool(s, mcp.Tool{Name: "gallery", Description: "Show content of every type"},
		func(context.Context, struct{}) ([]mcp.Content, error) {
			return []mcp.Content{
				mcp.Text("a\tcaption"), mcp.Image([]byte("pixels"), "image/png"),
				mcp.Audio([]byte("sound"), "audio/wav"),
				mcp.Link(mcp.Resource{URI: "test://text", Name: "text"}),
				mcp.Embed(mcp.ResourceContents{URI: "test://text", Text: "embedded"}),
			}, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "count", Description: "Count with progress and a log"},
		func(ctx context.Context, in struct {
			To int `json:"to"`
		},
		) (string, error) {
			for i := range in.To {
				if err := errors.Join(mcp.Log(ctx, "info", "counter", fmt.Sprint("at ", i+1)),
					mcp.Progress(ctx, float64(i+1), float64(in.To), "counting")); err != nil {
					return "", err
				}
			}
			return "counted", nil
		})
	mcp.AddTool(s, mcp.Tool{
		Name: "job", Description: "Run as a task",
		Execution: &spec.ToolExecution{TaskSupport: "optional"},
	}, func(ctx context.Context, in struct {
		Name string `json:"name,omitempty"`
	},
	) (string, error) {
		if in.Name == "forever" {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "done " + in.Name, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "slow", Description: "Never end"},
		func(ctx context.Context, _ struct{}) (string, error) {
			if err := mcp.Progress(ctx, 1, 0, "begun"); err != nil {
				return "", err
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
}

// testForm has a field of every type.
type testForm struct {
	Name   string   `json:"name" doc:"how you are called"`
	Age    *int     `json:"age" min:"1" max:"150"`
	Mail   *string  `json:"mail" format:"email"`
	Sure   bool     `json:"sure" default:"true"`
	Colour string   `json:"colour" enum:"red,green,blue"`
	Tags   []string `json:"tags,omitempty" enum:"a,b,c"`
}

func addTestQuestions(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{Name: "form", Description: "Ask for everything"},
		func(ctx context.Context, _ struct{}) (string, error) {
			f, err := mcp.Elicit[testForm](ctx, "Who are you?")
			if err != nil {
				return "", err
			}
			age := 0
			if f.Age != nil {
				age = *f.Age
			}
			return fmt.Sprintf("%s %d %v %s %v", f.Name, age, f.Sure, f.Colour, f.Tags), nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "two", Description: "Ask for two things"},
		func(ctx context.Context, _ struct{}) (string, error) {
			type first struct {
				First string `json:"first"`
			}
			type second struct {
				Second int `json:"second"`
			}
			a, errA := mcp.Elicit[first](relay.Named(ctx, "a"), "First?")
			b, errB := mcp.Elicit[second](relay.Named(ctx, "b"), "Second?")
			if err := errors.Join(errA, errB); err != nil {
				return "", err
			}
			return fmt.Sprint(a.First, b.Second), nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "page", Description: "Ask to open a page"},
		func(ctx context.Context, _ struct{}) (string, error) {
			return "opened", mcp.ElicitURL(ctx, "Sign in", "https://example.com/sign-in")
		})
	mcp.AddTool(s, mcp.Tool{Name: "model", Description: "Ask a model"},
		func(ctx context.Context, _ struct{}) (string, error) {
			r, err := mcp.Sample(ctx,
				&spec.CreateMessageRequestParams{
					MaxTokens: 9,
					Messages:  []spec.SamplingMessage{{Role: "user", Content: []spec.Content{mcp.Text("hi")}}},
				})
			if err != nil {
				return "", err
			}
			return "the model says " + r.Content[0].Text, nil
		})
	mcp.AddTool(s, mcp.Tool{Name: "roots", Description: "Ask for the roots"},
		func(ctx context.Context, _ struct{}) (string, error) {
			roots, err := mcp.Roots(ctx)
			if err != nil {
				return "", err
			}
			var all []string
			for _, r := range roots {
				all = append(all, r.URI)
			}
			return strings.Join(all, " "), nil
		})
}

// mcpHosts are the addresses of MCP servers, for scripts.
func mcpHosts(t *testing.T) map[string]string {
	t.Helper()
	s := mcpTestServer()
	ctx, cancel := context.WithCancel(t.Context())
	tcp := ""
	sock := filepath.Join(t.TempDir(), "s")
	var wg sync.WaitGroup
	var listeners []net.Listener
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": sock} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		if network == "tcp" {
			tcp = l.Addr().String()
		}
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { s.Serve(ctx, stream.New(conn, stream.NDJSON, nil)) })
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		for _, l := range listeners {
			l.Close()
		}
		wg.Wait()
		s.Close()
	})
	return map[string]string{
		"MCP": mcpHost(t, s), "MCPTCP": tcp, "MCPSOCK": sock, "BLINK": mcpHost(t, blinkingServer(t)),
		"BARE": mcpHost(t, mcp.NewServer("bare", "0", nil)),
	}
}

// mcpHost serves over HTTP and WebSocket.
func mcpHost(t *testing.T, s *mcp.Server) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := mcphttp.NewHandler(s, nil)
	mux := http.NewServeMux()
	var wg sync.WaitGroup
	ws := wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
		wg.Go(func() { s.Serve(ctx, tr) })
	}, nil)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			ws.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
	mux.HandleFunc("/closed", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusUnauthorized)
	})
	hs := httptest.NewServer(mux)
	t.Cleanup(func() {
		cancel()
		s.Close()
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		hs.Close()
	})
	return hs.Listener.Addr().String()
}

// blinkingServer changes all the time.
func blinkingServer(t *testing.T) *mcp.Server {
	t.Helper()
	s := mcp.NewServer("blink", "1", nil)
	read := func(context.Context, string) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{{Text: "now"}}, nil
	}
	s.AddResource(mcp.Resource{URI: "test://clock", Name: "clock"}, read)
	blink := func() {
		mcp.AddTool(s, mcp.Tool{Name: "blink", Description: "Blink"},
			func(context.Context, struct{}) (string, error) {
				return "", nil
			})
	}
	blink() // the first client is to hear that there are tools
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for on := false; ; on = !on {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			s.ResourceUpdated("test://clock")
			if on {
				blink()
			} else {
				s.RemoveTool("blink")
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		wg.Wait()
	})
	return s
}
