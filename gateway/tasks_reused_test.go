package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// numbering is an upstream of 2025-11-25 that numbers its tasks from 1 on. The result of its tool
// "work" is the arguments of the call.
type numbering struct {
	url     string
	undated bool   // its tasks have no createdAt
	cancels func() // is called for each tasks/cancel, unless nil

	mu     sync.Mutex
	starts int
	tasks  []jsonrpc.Raw // the arguments; the number of a task is its index + 1
	done   bool          // all tasks have ended
	asked  []string      // the methods tasks/… of this start
}

func newNumbering(t *testing.T) *numbering {
	t.Helper()
	s := &numbering{}
	web := httptest.NewServer(s)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	s.url = web.URL + "/mcp"
	return s
}

// restart makes the upstream forget its tasks, and start others with these arguments.
func (s *numbering) restart(tasks ...jsonrpc.Raw) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	s.tasks, s.asked = tasks, nil
}

// finish ends all tasks, also those to come.
func (s *numbering) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
}

// requests returns how many requests of a method, or of several with a common prefix, came since
// the last start.
func (s *numbering) requests(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.asked {
		if strings.HasPrefix(m, method) {
			n++
		}
	}
	return n
}

func (s *numbering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     jsonrpc.Raw `json:"id"`
		Method string      `json:"method"`
		Params struct {
			TaskID    string      `json:"taskId"`
			Arguments jsonrpc.Raw `json:"arguments"`
		} `json:"params"`
	}
	body, err := io.ReadAll(r.Body)
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case err != nil || jsonv2.Unmarshal(body, &m) != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if result := s.answer(m.Method, m.Params.TaskID, m.Params.Arguments); result != "" {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such thing"}}`, m.ID)
}

func (s *numbering) answer(method, id string, arguments jsonrpc.Raw) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(method, "tasks/") {
		s.asked = append(s.asked, method)
	}
	if method == spec.MethodTasksCancel && s.cancels != nil {
		s.cancels()
	}
	number := 0
	_, _ = fmt.Sscan(id, &number)
	switch {
	case method == spec.MethodInitialize:
		return `{"protocolVersion":"2025-11-25","serverInfo":{"name":"numbering","version":"1"},` +
			`"capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}}`
	case method == spec.MethodPing:
		return `{}`
	case method == spec.MethodToolsList:
		return `{"tools":[{"name":"work","inputSchema":{"type":"object"},` +
			`"execution":{"taskSupport":"required"}}]}`
	case method == spec.MethodToolsCall:
		s.tasks = append(s.tasks, append(jsonrpc.Raw(nil), arguments...))
		return `{"task":` + s.state(len(s.tasks)) + `}`
	case number < 1 || number > len(s.tasks):
		return ""
	case method == spec.MethodTasksResult:
		return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, s.tasks[number-1])
	}
	return s.state(number)
}

func (s *numbering) state(number int) string {
	status, created := spec.TaskWorking, ""
	if s.done {
		status = spec.TaskCompleted
	}
	if !s.undated {
		created = fmt.Sprintf(`"createdAt":"2026-01-02T03:%02d:%02dZ",`, s.starts, number)
	}
	return fmt.Sprintf(`{"taskId":"%d","status":%q,%s"ttl":3600000,"pollInterval":50}`, number,
		status, created)
}

// principalsGateway starts a gateway with callers that are named by a header. dial makes a client
// of one of them, and end stops them all and the gateway.
func principalsGateway(t *testing.T, c *Config) (dial func(name string) *mcp.Client, end func()) {
	t.Helper()
	g, err := New(c, &Options{Owner: func(r *http.Request) string { return r.Header.Get("X-User") }})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(g)
	var clients []*mcp.Client
	dial = func(name string) *mcp.Client {
		o := &mcp.ClientOptions{
			Era: "modern", Tasks: true,
			HTTP: &mcphttp.DialOptions{Header: http.Header{"X-User": {name}}},
		}
		client, err := mcp.Dial(t.Context(), front.URL+"/mcp", o)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
		return client
	}
	return dial, sync.OnceFunc(func() {
		for _, client := range clients {
			_ = client.Close()
		}
		shutdownNow(g.Shutdown)
		front.CloseClientConnections()
		front.Close()
	})
}

func startNamed(t *testing.T, client *mcp.Client, name string) (id string) {
	t.Helper()
	made, err := client.StartTask(t.Context(), "work", map[string]string{"of": name}, 0)
	if err != nil || made.TaskID == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	return made.TaskID
}

// TestTaskIDUsedAgain restarts the gateway while a task of alice runs. Afterwards the id of that
// task names a task of bob at the upstream: alice gets neither its result nor its end.
func TestTaskIDUsedAgain(t *testing.T) {
	t.Parallel()
	const gone = "does not know the task any more"
	for _, test := range []struct {
		name string
		// change is what happens while no gateway runs, and later what happens when alice's task is
		// followed again.
		change, later func(s *numbering, u *Upstream)
		undated       bool
		cancel        bool // alice cancels her task
		own           bool // alice's task still runs
	}{
		{name: "same upstream", change: func(*numbering, *Upstream) {}, own: true},
		{name: "restarted", change: func(s *numbering, _ *Upstream) { s.restart() }},
		{name: "restarted and cancelled", change: func(s *numbering, _ *Upstream) {
			s.restart()
		}, cancel: true},
		{
			name: "restarted later", change: func(*numbering, *Upstream) {},
			later: func(s *numbering, _ *Upstream) {
				s.restart(jsonrpc.Raw(`{"of":"carol"}`)) // as the gateway asks for the task all the time
			},
		},
		{name: "without createdAt", change: func(s *numbering, _ *Upstream) {
			s.restart()
		}, undated: true},
		{name: "other header", change: func(_ *numbering, u *Upstream) {
			u.Headers = map[string]string{"X-Tenant": "2"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newNumbering(t)
			s.undated = test.undated
			u := &Upstream{Name: "u", URL: s.url}
			c := &Config{Upstreams: []*Upstream{u}}
			c.Tasks.Dir = filepath.Join(t.TempDir(), "tasks")
			dial, end := principalsGateway(t, c)
			id := startNamed(t, dial("alice"), "alice")
			end()
			test.change(s, u)

			dial, end = principalsGateway(t, c)
			defer end()
			alice, bob := dial("alice"), dial("bob")
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			if test.later != nil {
				before := s.requests(spec.MethodTasksGet)
				for s.requests(spec.MethodTasksGet) == before {
					if got, err := alice.Task(ctx, id); err != nil || got.Status != spec.TaskWorking {
						t.Fatalf("%+v, %v", got, err)
					}
				}
				test.later(s, u)
			}
			bobs := startNamed(t, bob, "bob")
			if test.cancel {
				if err := alice.CancelTask(ctx, id); err != nil {
					t.Error(err)
				}
			}
			s.finish()
			r, err := alice.WaitTask(ctx, id)
			switch {
			case test.own:
				if err != nil || !strings.Contains(r.Content[0].Text, "alice") {
					t.Errorf("alice: %+v, %v", r, err)
				}
			case err == nil || !test.cancel && !strings.Contains(err.Error(), gone):
				t.Errorf("alice: %+v, %v", r, err)
			}
			if r, err := bob.WaitTask(ctx, bobs); err != nil || !strings.Contains(r.Content[0].Text, "bob") {
				t.Errorf("bob: %+v, %v", r, err)
			}
			end()
			if n := s.requests(spec.MethodTasksCancel); n > 0 {
				t.Errorf("the upstream got %d cancellations", n)
			}
		})
	}
}

// TestTaskOfOtherUpstream resumes tasks at an upstream that has another address than the one that
// they were started at: it gets no request about them.
func TestTaskOfOtherUpstream(t *testing.T) {
	s, other := newNumbering(t), newNumbering(t)
	other.tasks = []jsonrpc.Raw{jsonrpc.Raw(`{"of":"bob"}`), jsonrpc.Raw(`{"of":"bob"}`)}
	other.finish()
	c := &Config{Upstreams: []*Upstream{{Name: "u", URL: s.url}}}
	c.Tasks.Dir = filepath.Join(t.TempDir(), "tasks")
	dial, end := principalsGateway(t, c)
	alice := dial("alice")
	ids := [2]string{startNamed(t, alice, "alice"), startNamed(t, alice, "alice")}
	end()

	c.Upstreams[0].URL = other.url
	dial, end = principalsGateway(t, c)
	defer end()
	alice = dial("alice")
	if r, err := alice.WaitTask(t.Context(), ids[0]); err == nil ||
		!strings.Contains(err.Error(), "does not know the task any more") {
		t.Errorf("%+v, %v", r, err)
	}
	if err := alice.CancelTask(t.Context(), ids[1]); err != nil {
		t.Error(err)
	}
	end()
	if n := other.requests("tasks/"); n > 0 {
		t.Errorf("the other upstream got %d requests about tasks", n)
	}
}
