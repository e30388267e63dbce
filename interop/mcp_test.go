package interop

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// fixture starts the MCP server of ./server and returns its address, host:port.
func fixture(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(fixturePath)
	return "127.0.0.1:" + listening(t, cmd, func(port string) {
		cmd.Args = append(cmd.Args, "--listen", "127.0.0.1:"+port)
	})
}

// listening starts a program that listens on a port of our choice and returns
// the port when it does.
func listening(t *testing.T, cmd *exec.Cmd, choose func(port string)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	choose(port)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s printed:\n%s", cmd, output.String())
		}
	})
	for deadline := time.After(waitLimit); ; {
		conn, err := net.Dial("tcp", "localhost:"+port)
		if err == nil {
			conn.Close()
			return port
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended", cmd)
		case <-deadline:
			t.Fatalf("%s does not listen on port %s", cmd, port)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// within bounds what a test waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// ada answers what servers ask: her name is Ada, and she visits every page.
func ada(era string) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Era: era, Tasks: true,
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			r := &spec.ElicitResult{Action: spec.ElicitAccept}
			switch {
			case p.Mode == spec.ElicitURL:
			case strings.Contains(string(p.RequestedSchema), `"interpretation"`):
				r.Content = []byte(`{"interpretation":"programming"}`)
			default:
				r.Content = []byte(`{"name":"Ada"}`)
			}
			return r, nil
		},
	}
}

func dial(t *testing.T, target string, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	c, err := mcp.Dial(within(t), target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// start returns a client of a program's standard input and output.
func start(t *testing.T, cmd *exec.Cmd, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	transport, err := stream.Command(cmd, stream.NDJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mcp.Connect(within(t), transport, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// names fails the test unless the server has the tools.
func names(t *testing.T, c *mcp.Client, want ...string) {
	t.Helper()
	tools, err := c.Tools(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if !slices.ContainsFunc(tools, func(tool mcp.Tool) bool { return tool.Name == name }) {
			t.Errorf("the server has no tool %q", name)
		}
	}
}

// says fails the test unless the result of a tool has a text with want in it.
func says(t *testing.T, c *mcp.Client, want, tool string, args any) {
	t.Helper()
	r, err := c.CallTool(within(t), tool, args)
	if err != nil {
		t.Errorf("%s: %v", tool, err)
		return
	}
	if has := func(block mcp.Content) bool {
		return strings.Contains(block.Text, want)
	}; r.IsError || !slices.ContainsFunc(r.Content, has) {
		t.Errorf("%s: the result is %s; want %q", tool, r.AppendJSON(nil), want)
	}
}

// Our client and our server, over each transport in each revision.
func TestMCPEras(t *testing.T) {
	address := fixture(t)
	for _, era := range []string{
		"auto", "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26",
		"2024-11-05",
	} {
		for name, connect := range map[string]func(*testing.T, *mcp.ClientOptions) *mcp.Client{
			"http": func(t *testing.T, o *mcp.ClientOptions) *mcp.Client {
				return dial(t, "http://"+address+"/mcp", o)
			},
			"sse": func(t *testing.T, o *mcp.ClientOptions) *mcp.Client {
				return dial(t, "http://"+address+"/sse", o)
			},
			"stdio": func(t *testing.T, o *mcp.ClientOptions) *mcp.Client {
				return start(t, exec.Command(fixturePath, "--stdio"), o)
			},
		} {
			if name == "sse" && era != "2024-11-05" {
				continue
			}
			t.Run(era+"/"+name, func(t *testing.T) {
				c := connect(t, ada(era))
				if got := c.Server().Revision; got != era && era != "auto" ||
					era == "auto" && got != "2026-07-28" {
					t.Errorf("the revision is %s", got)
				}
				names(t, c, "test_simple_text", "greet", "slow_compute")
				says(t, c, "This is a simple text", "test_simple_text", nil)
				says(t, c, "Hello, Bob!", "greet", map[string]string{"name": "Bob"})
				says(t, c, "Computed", "slow_compute", map[string]any{"seconds": 0.05})
				if era >= "2025-06-18" { // which have elicitation; "auto" too
					says(t, c, "Hello, Ada!", "test_input_required_result_elicitation", nil)
				}
				r, err := c.Read(within(t), "test://template/7/data")
				if err != nil || len(r.Contents) != 1 ||
					!strings.Contains(r.Contents[0].Text, "Data for ID: 7") {
					t.Errorf("Read: %+v, %v", r, err)
				}
				p, err := c.Prompt(within(t), "test_prompt_with_arguments",
					map[string]string{"arg1": "a", "arg2": "b"})
				if err != nil || len(p.Messages) != 1 ||
					!strings.Contains(p.Messages[0].Content.Text, "arg2='b'") {
					t.Errorf("Prompt: %+v, %v", p, err)
				}
			})
		}
	}
}

// The states of a task come by subscription, too, which the official suite does
// not check yet.
func TestMCPTaskNotifications(t *testing.T) {
	states := make(chan spec.DetailedTask, 16)
	granted := make(chan spec.SubscriptionFilter, 1)
	o := ada("2026-07-28")
	o.OnTask = func(task *spec.DetailedTask) { states <- *task }
	o.OnListening = func(filter spec.SubscriptionFilter) { granted <- filter }
	c := dial(t, "http://"+fixture(t)+"/mcp", o)
	ctx := within(t)
	task, err := c.StartTask(ctx, "slow_compute", map[string]any{"seconds": 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	listening, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Listen(listening, spec.SubscriptionFilter{TaskIDs: []string{task.TaskID}})
	}()
	if filter := <-granted; !slices.Equal(filter.TaskIDs, []string{task.TaskID}) {
		t.Fatalf("granted: %+v", filter)
	}
	for {
		select {
		case state := <-states:
			if state.TaskID != task.TaskID {
				t.Errorf("a state of the task %q", state.TaskID)
			}
			if !spec.TaskEnded(state.Status) {
				continue
			}
			if state.Status != spec.TaskCompleted || !strings.Contains(string(state.Result), "Computed") {
				t.Errorf("the task ended as %+v", state)
			}
		case <-ctx.Done():
			t.Error("the end of the task was not told")
		}
		break
	}
	stop()
	<-ended
}
