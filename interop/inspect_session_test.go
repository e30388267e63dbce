package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A browser uses the page of farcall inspect with servers of other people: it connects, lists their
// tools and calls one; go-ethereum's server, which describes none of its methods, is called all the
// same.
func TestInspectSessions(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("kept here"), 0o600); err != nil {
		t.Fatal(err)
	}
	note, err := json.Marshal(map[string]string{"path": filepath.Join(dir, "note.txt")})
	if err != nil {
		t.Fatal(err)
	}
	_, socket := gethServer(t)
	for name, test := range map[string]struct {
		command          []string
		tool, args, want string
	}{
		"geth": {[]string{socket}, "calc_subscribe", `["ticks",3]`, "0x"},
		"everything": {
			npm(t, "server-everything", "stdio").Args, "echo", `{"message":"hello"}`,
			"Echo: hello",
		},
		"filesystem": {
			npm(t, "server-filesystem", dir).Args, "read_text_file", string(note),
			"kept here",
		},
		"memory": {
			npm(t, "server-memory").Args, "create_entities",
			`{"entities":[{"name":"Ada","entityType":"person","observations":["writes"]}]}`, "Ada",
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := "methods"
			if len(test.command) > 1 {
				var err error
				if test.command[1], err = filepath.Abs(filepath.Join("node", test.command[1])); err != nil {
					t.Fatal(err)
				}
				memory := "MEMORY_FILE_PATH=" + filepath.Join(dir, "memory.jsonl")
				kind, test.command = "tools", append([]string{"--", "env", memory}, test.command...)
			}
			page := inspectorOf(t, test.command...)
			out := node(t, nil, "inspect-session.mjs", browser, page, t.TempDir(), kind, test.tool,
				test.args)
			var got struct {
				Ready                  bool
				State, Answer, Traffic string
				Complaints             []string
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if !got.Ready || !strings.Contains(got.Answer, test.want) || got.Traffic == "" ||
				len(got.Complaints) > 0 {
				t.Errorf("%s", out)
			}
		})
	}
}
