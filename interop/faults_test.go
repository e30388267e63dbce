package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// faultWait is how long a call may take; no fault delays a frame for as long.
const faultWait = 4 * time.Second

// A twice makes two calls over one connection through a command, and says what became of each:
// "answer", "wrong answer", "error" or "nothing".
type twice func(t *testing.T, command *exec.Cmd) [2]string

// became says what became of a call.
func became(text string, err error, want int) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing"
	case err != nil:
		return "error"
	case !strings.Contains(text, fmt.Sprint(want)):
		return "wrong answer"
	}
	return "answer"
}

// calling makes both calls of a tool that adds a and 3.
func calling(t *testing.T, add func(ctx context.Context, a int) (string, error)) (did [2]string) {
	for i, a := range []int{2, 4} {
		ctx, cancel := context.WithTimeout(t.Context(), faultWait)
		text, err := add(ctx, a)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		did[i] = became(text, err, a+3)
		cancel()
	}
	return did
}

func stdioOf(command *exec.Cmd) *place { return &place{stdio: func() *exec.Cmd { return command }} }

// faultClients are clients of the playground.
var faultClients = map[string]twice{
	"farcall": func(t *testing.T, command *exec.Cmd) [2]string {
		return farcallTwice(t, command, "math_add", "a", "b")
	},
	"go-sdk": func(t *testing.T, command *exec.Cmd) [2]string {
		u := useGoSDK(t, stdioOf(command), "stdio", "2025-11-25")
		return calling(t, func(ctx context.Context, a int) (string, error) {
			r, err := u.session.CallTool(ctx,
				&gosdk.CallToolParams{Name: "math_add", Arguments: map[string]int{"a": a, "b": 3}})
			if err != nil || len(r.Content) == 0 {
				return "", err
			}
			text, _ := r.Content[0].(*gosdk.TextContent)
			return text.Text, nil
		})
	},
	"mcp-go": func(t *testing.T, command *exec.Cmd) [2]string {
		u := useMCPGo(t, stdioOf(command), "stdio", "2025-11-25")
		return calling(t, func(ctx context.Context, a int) (string, error) {
			r, err := u.client.CallTool(ctx,
				mcpgo.CallToolRequest{
					Params: mcpgo.CallToolParams{Name: "math_add", Arguments: map[string]int{"a": a, "b": 3}},
				})
			if err != nil || len(r.Content) == 0 {
				return "", err
			}
			return fmt.Sprint(r.Content[0]), nil
		})
	},
	"TypeScript SDK": func(t *testing.T, command *exec.Cmd) [2]string {
		first, second, _ := strings.Cut(
			strings.TrimSpace(
				string(node(t, nil, append([]string{"fault-client.mjs"}, command.Args...)...))), "\n")
		return [2]string{first, second}
	},
}

// farcallTwice is our client, which calls a tool that adds.
func farcallTwice(t *testing.T, command *exec.Cmd, tool, a, b string) [2]string {
	u := useAs(t, stdioOf(command), "stdio", "2025-11-25")
	return calling(t, func(ctx context.Context, n int) (string, error) {
		r, err := u.client.CallTool(ctx, tool, map[string]int{a: n, b: 3})
		if err != nil || len(r.Content) == 0 {
			return "", err
		}
		return r.Content[0].Text, nil
	})
}

// faultServers are servers with a tool that adds, which our client calls.
var faultServers = map[string]struct {
	command func(t *testing.T) *exec.Cmd
	add     [3]string
}{
	"farcall": {func(t *testing.T) *exec.Cmd {
		return child(t, "farcall")
	}, [3]string{"add", "A", "B"}},
	"go-sdk": {func(t *testing.T) *exec.Cmd {
		return child(t, "go-sdk")
	}, [3]string{"add", "A", "B"}},
	"mcp-go": {func(t *testing.T) *exec.Cmd {
		return child(t, "mcp-go")
	}, [3]string{"add", "A", "B"}},
	"TypeScript SDK": {func(t *testing.T) *exec.Cmd {
		return npm(t, "server-everything", "stdio")
	}, [3]string{"get-sum", "a", "b"}},
}

// TestFaults prints what becomes of the clients and servers of four makers when farcall fault
// applies a fault to the first of two calls: the table of docs/bench.md. FARCALL_FAULTS=1 runs it.
// What it requires in any case: our client never takes a wrong answer for the right one.
func TestFaults(t *testing.T) {
	t.Parallel()
	faults := strings.Fields(
		"delay late drop silence reorder duplicate duplicate-id wrong-id duplicate-member error huge " +
			"garbage bad-utf8 split slow half close reset")
	if os.Getenv("FARCALL_FAULTS") == "" {
		faults = []string{"duplicate", "garbage", "close"}
	}
	through := func(rule string, server *exec.Cmd) *exec.Cmd {
		cmd := exec.Command(farcallPath,
			append([]string{"fault", "-q", "--seed", "7", "--fault", rule, "--"}, server.Args...)...)
		cmd.Dir, cmd.Env = server.Dir, server.Env
		return cmd
	}
	for _, fault := range faults {
		rule := fault + ":method=tools/call,times=1"
		switch fault {
		case "delay", "late", "reorder", "slow":
			rule += ",delay=300ms"
		case "duplicate-id": // it needs a message before
			rule += ",to=server"
		}
		for name, use := range faultClients {
			t.Run("client "+fault+" "+name, func(t *testing.T) {
				did := use(t, through(rule, exec.Command(farcallPath, "serve", "--stdio", "--log", "off")))
				t.Logf("ROW | %s | client | %s | %s | %s |", fault, name, did[0], did[1])
				if name == "farcall" && (did[0] == "wrong answer" || did[1] == "wrong answer") {
					t.Errorf("%v", did)
				}
			})
		}
		if fault == "error" || fault == "huge" {
			continue // answers alone have it
		}
		for name, s := range faultServers {
			t.Run("server "+fault+" "+name, func(t *testing.T) {
				did := farcallTwice(t, through(rule+",to=server,of=request", s.command(t)), s.add[0], s.add[1],
					s.add[2])
				t.Logf("ROW | %s | server | %s | %s | %s |", fault, name, did[0], did[1])
			})
		}
	}
}
