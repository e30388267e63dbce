package interop

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/apps"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// orderSchema has what forms are made from.
const orderSchema = `{
	"type": "object",
	"properties": {
		"to": {"$ref": "#/$defs/person"},
		"size": {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}], "default": "s"},
		"items": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
		"note": {"type": ["string", "null"], "default": "by the door"},
		"pay": {"oneOf": [
			{"title": "Card", "type": "object", "required": ["number"], "properties": {"number": {"type": "string", "pattern": "^[0-9]+$"}}},
			{"title": "Cash", "type": "object", "required": ["coins"], "properties": {"coins": {"type": "integer", "minimum": 1}}}
		]}
	},
	"required": ["to", "size"],
	"$defs": {"person": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 2}, "boss": {"$ref": "#/$defs/person"}}}}
}`

// everyKind serves what the page has to call and to show.
func everyKind(t *testing.T) *mcp.Server {
	t.Helper()
	asset := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("server", "assets", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	s := mcp.NewServer("every-kind", "1.0.0",
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	s.AddTool(mcp.Tool{Name: "order", InputSchema: []byte(orderSchema)},
		func(_ context.Context, args jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text("ordered " + string(args))}}, nil
		})
	content := []mcp.Content{
		mcp.Text("# A heading\n\n- **bold** and `code` <script>window.pwned = 1</script>"),
		mcp.Image(asset("pixel.png"), "image/png"), mcp.Audio(asset("silence.wav"), "audio/wav"),
		mcp.Text(`{"deep":{"er":[1,2]}}`),
		mcp.Embed(
			mcp.ResourceContents{URI: "test://embedded", MIMEType: "text/plain", Text: "embedded text"}),
		mcp.Link(mcp.Resource{URI: "test://linked", Name: "linked"}),
	}
	mcp.AddTool(s, mcp.Tool{Name: "content"}, func(context.Context, none) ([]mcp.Content, error) {
		return content, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "steps"}, func(ctx context.Context, _ none) (string, error) {
		for n := range 5 {
			if err := mcp.Progress(ctx, float64(n+1), 5, "step"); err != nil {
				return "", err
			}
		}
		where, err := mcp.Roots(ctx) // a round, or a question in the same call
		if err != nil || len(where) == 0 {
			return "no roots", err
		}
		return "steps in " + where[0].URI, mcp.Log(ctx, spec.LogWarning, "steps", "all steps are done")
	})
	mcp.AddTool(s, mcp.Tool{Name: "model"}, func(ctx context.Context, _ none) (string, error) {
		answer, err := mcp.Sample(ctx, &spec.CreateMessageRequestParams{
			Messages: []spec.SamplingMessage{
				{Role: spec.RoleUser, Content: []mcp.Content{mcp.Text("Which city?")}},
			},
			MaxTokens: 100,
		})
		if err != nil {
			return "", err
		}
		return "the model says " + answer.Content[0].Text, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "wait"}, func(ctx context.Context, _ none) (string, error) {
		for n := range 3 {
			if err := mcp.Progress(ctx, float64(n+1), 0, ""); err != nil {
				return "", err
			}
		}
		<-ctx.Done()
		return "", ctx.Err()
	})
	apps.AddPage(s, apps.Page{URI: "ui://page/one", Name: "one", HTML: `<p>a page</p><script>
		const send = (method, params = {}) => parent.postMessage({ jsonrpc: '2.0', method, params }, '*');
		addEventListener('message', (e) => {
			if (e.data.method === 'ui/notifications/tool-result') send('ui/notifications/size-changed', { height: 100 + e.data.params.content[0].text.length });
		});
		send('ui/notifications/initialized');
	</script>`})
	mcp.AddTool(s, apps.WithPage(mcp.Tool{Name: "page"}, "ui://page/one"),
		func(context.Context, none) (string, error) { return "has a page", nil })
	type greetArgs struct {
		Name string `json:"name"`
	}
	mcp.AddPrompt(s, mcp.Prompt{Name: "greet"},
		func(_ context.Context, in greetArgs) (*mcp.PromptResult, error) {
			return &mcp.PromptResult{
				Messages: []mcp.PromptMessage{{Role: spec.RoleUser, Content: mcp.Text("Greet " + in.Name)}},
			}, nil
		})
	s.AddTemplate(mcp.ResourceTemplate{URITemplate: "test://note/{id}", Name: "note"},
		func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: "the note " + vars.Get("id")}}, nil
		})
	s.AddResource(mcp.Resource{URI: "test://linked", Name: "linked"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{Text: "the linked text"}}, nil
		})
	return s
}

// A browser fills in forms made from schemas, answers a model's question, sets roots, sees
// progress, a log, content of every kind and a page of a tool, and copies calls, which run as they
// are.
func TestInspectCalls(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	url := mcptest.Listen(t, everyKind(t))
	var got struct {
		Ready, Rejected, Accepted, Written, Image, Audio, Markdown, Tree, Read, Page, Log, Opened bool

		Fields                            []string
		Order, Model, Steps, Prompt, Note string
		Shell, Curl, Go, TypeScript       string
		Wide                              map[string]int
		Axe                               map[string][]string
		Complaints                        []string
	}
	out := node(t, nil, "inspect-calls.mjs", browser, inspectorOf(t, url, "--era", "2025-11-25"),
		t.TempDir())
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string]bool{
		"the page is ready": got.Ready, "what does not fit is named while it is typed": got.Rejected,
		"what fits is accepted":  got.Accepted,
		"JSON fills in the form": got.Written, "an image is shown": got.Image,
		"a sound can be played":              got.Audio,
		"Markdown is shown without its HTML": got.Markdown, "JSON is a tree": got.Tree,
		"a link is read":              got.Read,
		"the page of a tool is shown": got.Page, "the log has a line": got.Log,
		"the history opens a call with its arguments": got.Opened,
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
	if want := []string{
		"Small (s)", "Large (l)", "Card", "Cash",
		"by the door",
	}; !slices.Equal(got.Fields, want) {
		t.Errorf("the form has %q, want %q", got.Fields, want)
	}
	const args = `{"to":{"name":"Ada"},"size":"l","items":["tea"],"pay":{"coins":3}}`
	for _, test := range []struct{ what, text, want string }{
		{"a form", got.Order, "ordered " + args},
		{"a model", got.Model, "the model says Graz"},
		{"roots and progress", got.Steps, "steps in file:///srv/work"},
		{"a prompt", got.Prompt, "Greet Ada"},
		{"a template", got.Note, "the note 7 8"},
	} {
		if !strings.Contains(test.text, test.want) {
			t.Errorf("%s: the page shows %q, want %q", test.what, test.text, test.want)
		}
	}
	for view, wide := range got.Wide {
		if wide > 0 {
			t.Errorf("%s is %d px too wide", view, wide)
		}
	}
	if len(got.Wide) == 0 || len(got.Axe)+len(got.Complaints) > 0 {
		t.Errorf("axe finds %q; the browser says %q", got.Axe, got.Complaints)
	}
	for _, run := range []struct {
		what string
		cmd  *exec.Cmd
	}{
		{"farcall", shell(t, strings.Replace(got.Shell, "farcall ", farcallPath+" ", 1))},
		{"curl", shell(t, got.Curl)},
		{"Go", goProgram(t, got.Go)},
		{"TypeScript", pasted(t, got.TypeScript)},
	} {
		answer, err := run.cmd.CombinedOutput()
		if text := strings.ReplaceAll(string(answer), `\`, ""); err != nil ||
			!strings.Contains(text, `"name":"Ada"`) || !strings.Contains(text, "ordered") {
			t.Errorf("what is copied as %s: %v, %s", run.what, err, answer)
		}
	}
}

func shell(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil && strings.Contains(line, "curl ") {
		missing(t, "there is no curl")
	}
	return exec.CommandContext(t.Context(), "sh", "-c", line)
}

// goProgram makes a program of statements, which use the module as this one does.
func goProgram(t *testing.T, statements string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(string) string{
		"go.mod": func(s string) string { return strings.Replace(s, "=> ../", "=> "+root, 1) },
		"go.sum": func(s string) string { return s },
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(change(string(data))),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"os\"\n\n" +
		"\t\"github.com/farcall-dev/farcall/jsonrpc\"\n\t\"github.com/farcall-dev/farcall/mcp\"\n)\n\n" +
		"func call(ctx context.Context) error {\n" + statements +
		"fmt.Println(result.Content[0].Text)\nreturn err\n}\n\n" +
		"func main() {\n\tif err := call(context.Background()); err != nil {\n\t\tfmt.Println(err)\n" +
		"\t\tos.Exit(1)\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	return cmd
}

// pasted makes a program of statements that Node.js runs beside its packages.
func pasted(t *testing.T, statements string) *exec.Cmd {
	t.Helper()
	cmd := nodeCommand(t, t.Context(), "--input-type=module")
	cmd.Stdin = strings.NewReader(
		statements + "console.log(result.content[0].text);\nawait client.close();\n")
	return cmd
}
