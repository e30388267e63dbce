package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// contract is a server with calls that are recorded, and a version of it that breaks one of them.
type contract struct {
	server  func(t *testing.T) (command, changed []string)
	calls   []string // as farcall shell takes them; DIR is a directory with the file a.txt
	changes []string // what farcall verify reports of the changed version
}

var contracts = map[string]contract{
	"server-everything": {
		npmContract("server-everything", "stdio", "tools/get-sum.js", "a: z.number()", "a: z.string()"),
		[]string{"tools", "prompts", "resources", "echo message=hello", "get-sum a=2 b=3", "get-structured-content location=Chicago"},
		[]string{"tools/call get-sum breaking: tool-error-changed", "breaking: input-type-narrowed result.tools.get-sum.inputSchema.properties.a.type"},
	},
	"server-filesystem": {
		npmContract("server-filesystem", "DIR", "index.js", `registerTool("read_text_file"`,
			`registerTool("read_text"`),
		[]string{"tools", "list_allowed_directories", "list_directory path=DIR", "read_text_file path=DIR/a.txt"},
		[]string{"breaking: tool-removed result.tools.read_text_file"},
	},
	"server-memory": {
		npmContract("server-memory", "", "index.js", `query: z.string()`, `phrase: z.string()`),
		[]string{"tools", `create_entities {"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`, "read_graph", "search_nodes query=Ada"},
		[]string{"breaking: input-property-removed result.tools.search_nodes.inputSchema.properties.query", "breaking: input-required-added result.tools.search_nodes.inputSchema.required"},
	},
	"go-sdk": {
		func(t *testing.T) (command, changed []string) {
			path := child(t, "go-sdk").Path
			return []string{"env", childVariable + "=go-sdk", path},
				[]string{"env", childVariable + "=go-sdk changed", path}
		},
		[]string{"tools", "prompts", "resources", "add A=2 B=3", "count N=2"},
		[]string{"breaking: tool-removed result.tools.chatter", "tools/call add breaking: type-changed result.structuredContent"},
	},
}

// npmContract returns the commands of an npm package, with an argument, and of a copy of it with
// another text in a file.
func npmContract(
	name, argument, file, old, with string,
) func(t *testing.T) (command, changed []string) {
	return func(t *testing.T) (command, changed []string) {
		modules, err := filepath.Abs(filepath.Join("node", "node_modules"))
		if err != nil {
			t.Fatal(err)
		}
		node := nodeCommand(t, context.Background()).Path // it skips the test where there is none
		dist := filepath.Join(modules, "@modelcontextprotocol", name, "dist")
		other := t.TempDir()
		text, err := os.ReadFile(filepath.Join(dist, file))
		if err != nil || strings.Count(string(text), old) != 1 {
			t.Fatalf("%s is %d times in %s: %v", old, strings.Count(string(text), old), file, err)
		}
		if err := os.CopyFS(filepath.Join(other, "dist"), os.DirFS(dist)); err != nil {
			t.Fatal(err)
		}
		for path, content := range map[string]string{
			"package.json":              `{"type":"module"}`,
			filepath.Join("dist", file): strings.Replace(string(text), old, with, 1),
		} {
			if err := os.WriteFile(filepath.Join(other, path), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(modules, filepath.Join(other, "node_modules")); err != nil {
			t.Fatal(err)
		}
		run := []string{"env", "MEMORY_FILE_PATH=DIR/memory.jsonl", node}
		return append(run[:3:3], filepath.Join(dist, "index.js"), argument),
			append(run[:3:3], filepath.Join(other, "dist", "index.js"), argument)
	}
}

// TestVerify: a capture of a server is a contract that the server keeps, and that a changed version
// of it breaks: the report names the change.
func TestVerify(t *testing.T) {
	t.Parallel()
	for name, c := range contracts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command, changed := c.server(t)
			file := filepath.Join(t.TempDir(), "a.jsonl")
			dir := ""
			in := func(words []string) []string {
				// each run of a server has a new directory of the same name
				if dir == "" {
					dir = filepath.Join(t.TempDir(), "dir")
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
					t.Fatal(err)
				}
				out := make([]string, len(words))
				for i, word := range words {
					out[i] = strings.ReplaceAll(word, "DIR", dir)
				}
				return out
			}
			shell := exec.CommandContext(t.Context(), farcallPath,
				append([]string{"shell", "--", farcallPath, "tap", "--raw", "--out", file, "--"},
					in(command)...)...)
			shell.Env = append(os.Environ(), "HOME="+t.TempDir())
			shell.Stdin = strings.NewReader(
				strings.ReplaceAll(strings.Join(c.calls, "\n"), "DIR", dir) + "\n")
			if out, err := shell.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			verify := []string{"verify", file, "--"}
			if out := mustFarcall(t, append(verify, in(command)...)...); !strings.Contains(out,
				" 0 breaking, 0 unclear") {
				t.Errorf("the same server: %s", out)
			}
			out, stderr, code := program(t, append(verify, in(changed)...)...)
			if code != 1 {
				t.Errorf("the changed server: exit status %d\n%s%s", code, out, stderr)
			}
			for _, change := range c.changes {
				if !strings.Contains(out, change) {
					t.Errorf("the changed server: %q is missing in\n%s", change, out)
				}
			}
		})
	}
}
