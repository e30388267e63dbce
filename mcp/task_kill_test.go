package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// killedDir tells the test binary to be the server of TestTasksSurviveKill.
const killedDir = "FARCALL_TEST_TASKS_DIR"

// ask and told are the lines on the standard input and output of the server.
type (
	ask struct {
		N              int
		Owner          string
		Method, Params string
	}
	told struct {
		N   int
		Raw string
	}
)

// serveTasks serves the tool "work" and keeps its tasks in a directory.
func serveTasks(dir string) error {
	kept, err := store.Open(dir, nil)
	if err != nil {
		return err
	}
	s := NewServer("s", "1", &ServerOptions{Tasks: kept, TaskAfter: -1, TaskTTL: time.Hour})
	type args struct{ Millis, Size int }
	AddTool(s, Tool{Name: "work", Execution: &spec.ToolExecution{TaskSupport: spec.TaskRequired}},
		func(ctx context.Context, a args) (string, error) {
			select {
			case <-time.After(time.Duration(a.Millis) * time.Millisecond):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			if a.Size%5 == 0 {
				return "", fmt.Errorf("size %d", a.Size)
			}
			return strings.Repeat("é\\u", a.Size), nil
		})
	responder := farcall.NewResponder(s, nil)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	for {
		var a ask
		if err := in.Decode(&a); err != nil {
			return err
		}
		go func() {
			ctx := context.WithValue(context.Background(), owner.ContextKey{},
				owner.Principal("key", "user", "", a.Owner))
			raw := responder.Respond(ctx, nil, frameAlone(canAll, a.Method, a.Params), nil)
			mu.Lock()
			defer mu.Unlock()
			if err := out.Encode(told{a.N, string(raw)}); err != nil { // the other end is gone
				os.Exit(1)
			}
		}()
	}
}

// taskProcess is a server in its own process.
type taskProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan string
	gone    bool
}

func startTaskProcess(t *testing.T, dir string) *taskProcess {
	t.Helper()
	p := &taskProcess{cmd: exec.Command(os.Args[0]), waiting: map[int]chan string{}}
	p.cmd.Env = append(os.Environ(), killedDir+"="+dir)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(json.NewDecoder(out))
	return p
}

// read gives out the answers until the process ends.
func (p *taskProcess) read(d *json.Decoder) {
	for {
		var r told
		if d.Decode(&r) != nil {
			break
		}
		p.mu.Lock()
		p.waiting[r.N] <- r.Raw
		delete(p.waiting, r.N)
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, w := range p.waiting {
		close(w)
	}
}

func (p *taskProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// call sends a request and returns its answer, "" when the process has ended before.
func (p *taskProcess) call(as, method, params string) string {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return ""
	}
	p.last++
	answer := make(chan string, 1)
	p.waiting[p.last] = answer
	line, _ := json.Marshal(ask{p.last, as, method, params}) //nolint:errchkjson // these are texts
	_, _ = p.in.Write(append(line, '\n'))
	p.mu.Unlock()
	return <-answer
}

// seenTask is what clients have seen of a task.
type seenTask struct {
	id, owner string
	end       string // the whole answer that has shown the end
}

// look asks for a task as its owner and reports what must not be: that it is unknown, and that its
// end has changed.
func (k *seenTask) look(t *testing.T, p *taskProcess) (status string) {
	raw := p.call(k.owner, "tasks/get", fmt.Sprintf(`{"taskId":%q}`, k.id))
	if raw == "" {
		return ""
	}
	r := parseReply(t, raw)
	switch {
	case r.Error != nil:
		t.Errorf("task %s of %s: %s", k.id, k.owner, raw)
	case k.end != "" && raw != k.end:
		t.Errorf("task %s has ended with\n%s\nand now is\n%s", k.id, k.end, raw)
	case spec.TaskEnded(r.Result.Status):
		k.end = raw
	}
	return r.Result.Status
}

// TestTasksSurviveKill kills a server at random times, many times, while clients create, cancel and
// look at tasks. Each id that a client got is known from then on, to its owner only; each end that
// a client saw stays; and no task runs that a dead process has begun.
func TestTasksSurviveKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var mu sync.Mutex
	var all []*seenTask
	rounds := 20
	if race.Enabled {
		rounds /= 2
	}
	for round := range rounds + 1 {
		p := startTaskProcess(t, dir)
		p.call("", "server/discover", "{}") // it serves
		ended := 0
		for part := range slices.Chunk(all, max(1, len(all)/8)) {
			for _, k := range part {
				if status := k.look(t, p); !spec.TaskEnded(status) {
					t.Errorf("round %d: task %s of a dead process is %q", round, k.id, status)
				} else if status == spec.TaskCompleted {
					ended++
				}
				if raw := p.call(k.owner+"'s neighbour", "tasks/get",
					fmt.Sprintf(`{"taskId":%q}`, k.id)); parseReply(t, raw).Error == nil {
					t.Errorf("another owner sees %s", raw)
				}
			}
		}
		if round == rounds || t.Failed() {
			p.kill()
			t.Logf("%d tasks of %d processes, %d completed", len(all), round, ended)
			if len(all) < rounds || ended == 0 {
				t.Errorf("%d tasks, %d completed: too few to show something", len(all), ended)
			}
			return
		}
		var clients sync.WaitGroup
		for c := range 6 {
			clients.Go(func() {
				mine := useTasks(t, p, fmt.Sprint("client ", c%3))
				mu.Lock()
				defer mu.Unlock()
				all = append(all, mine...)
			})
		}
		<-time.After(time.Duration(1+rand.IntN(120)) * time.Millisecond)
		p.kill()
		clients.Wait()
	}
}

// useTasks creates, cancels and looks at tasks until the process ends.
func useTasks(t *testing.T, p *taskProcess, as string) (mine []*seenTask) {
	for {
		raw := p.call(as, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"Millis":%d,"Size":%d}}`,
			rand.IntN(8), rand.IntN(2000)))
		if raw == "" {
			return mine
		}
		r := parseReply(t, raw)
		if r.Result.TaskID == "" {
			t.Errorf("no task: %s", raw)
			return mine
		}
		mine = append(mine, &seenTask{id: r.Result.TaskID, owner: as})
		k := mine[rand.IntN(len(mine))]
		if rand.IntN(4) == 0 {
			p.call(as, "tasks/cancel", fmt.Sprintf(`{"taskId":%q}`, k.id))
		}
		k.look(t, p)
	}
}

func parseReply(t *testing.T, raw string) (r wireReply) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		t.Errorf("%v: %s", err, raw)
	}
	return r
}
