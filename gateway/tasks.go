package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// The defaults of Config.Tasks.
const (
	taskTTL  = time.Hour
	taskSize = 1 << 30
)

var errTasksFixed = errors.New(
	"gateway: tasks cannot change while the gateway runs: this needs a restart")

// taskStores are the directories in which the tasks of each address are stored. One that is open
// stays open when its upstream leaves: its tasks are known until their time is over.
type taskStores struct {
	dir  string // "": tasks are in memory
	opts store.Options

	mu   sync.Mutex
	open map[string]*store.Local // by the name of the endpoint
}

// prepare opens the directory of an endpoint, unless it is open.
func (t *taskStores) prepare(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir == "" || t.open[name] != nil {
		return nil
	}
	dir := filepath.Join(t.dir, "mcp")
	if name != "" { // the names of upstreams differ in more than case
		dir += "-" + name
	}
	l, err := store.Open(dir, &t.opts)
	switch {
	case errors.Is(err, store.ErrInUse):
		return fmt.Errorf("gateway: tasks: another process uses %s; give each gateway a directory", dir)
	case err != nil:
		return fmt.Errorf("gateway: tasks: %w", err)
	}
	if t.open == nil {
		t.open = map[string]*store.Local{}
	}
	t.open[name] = l
	return nil
}

// of returns the store of an endpoint, nil: its tasks are in memory.
func (t *taskStores) of(name string) store.Records {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.open[name]; l != nil {
		return l
	}
	return nil
}

// used returns the endpoints that have stored tasks.
func (t *taskStores) used() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, l := range t.open {
		if _, records := l.Used(); records > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (t *taskStores) close() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.open {
		err = errors.Join(err, l.Close())
	}
	return err
}

// tasks reads where tasks are stored: a directory, or a map with it.
func (r *reader) tasks(c *Config, n *node, path string) {
	t := &c.Tasks
	if n.kind == scalarNode {
		r.directory(&t.Dir)(n, path)
		return
	}
	r.fields(n, path, map[string]take{
		"dir": r.directory(&t.Dir), "ttl": r.duration(&t.TTL),
		"max_size": r.sizeTo(&t.MaxBytes, 1<<40, "1TiB"),
	})
}

// directory reads a path that is relative to the file, and of a directory, if there is something.
func (r *reader) directory(dst *string) take {
	read := r.path(dst)
	return func(n *node, path string) {
		read(n, path)
		if info, err := os.Stat(*dst); *dst != "" && err == nil && !info.IsDir() {
			r.problemAt(n.at, path, "it is not a directory",
				"name one for tasks alone, which is made if it is not there")
		}
	}
}

// tasks checks where tasks are stored.
func (c *checker) tasks(conf *Config) {
	t := conf.Tasks
	if t.Dir == "" && (t.TTL != 0 || t.MaxBytes != 0) {
		c.problem("tasks", "it has no dir", "name a directory, such as dir: tasks")
	}
	c.notBefore("tasks.ttl", t.TTL)
	if t.MaxBytes < 0 {
		c.problem("tasks.max_size", "it is negative", "give a size, or 0 for the default")
	}
}

// sharedTasks returns where the nodes share their tasks. Nil: each node has its own.
func (g *Gateway) sharedTasks() store.Store {
	if g.node == nil || g.tasks.dir != "" {
		return nil
	}
	return g.opts.Shared
}

// taskStores returns what stores the tasks. Nothing is open yet.
func (g *Gateway) taskStores(c *Config) *taskStores {
	return &taskStores{
		dir: c.Tasks.Dir,
		opts: store.Options{
			MaxBytes: int(min(cmp.Or(c.Tasks.MaxBytes, taskSize), math.MaxInt)),
			Logger:   g.log,
		},
	}
}

var _ relay.Resumer = (*endpoint)(nil)

// cancelTimeout bounds the cancellation of a task that nothing follows.
const cancelTimeout = 5 * time.Second

// A taskState is what the gateway stores of a task of an upstream, with the task of its client. The
// id alone does not name the task: a server that restarts, or another one under the same name, may
// use it again for the task of another caller.
type taskState struct {
	Upstream string `json:"upstream"`
	Home     string `json:"home"` // see Upstream.taskHome
	Task     string `json:"task"`
	Tool     string `json:"tool,omitempty"` // by the upstream's name
	Created  string `json:"created"`        // the createdAt of the task at the upstream
}

// taskHome returns a digest of where the tasks of the caller of ctx are: the address of the
// upstream, and what selects the credentials that the gateway has there. Tokens and keys that are
// renewed do not count; headers do, since the gateway cannot know which of them select an account.
func (c *Upstream) taskHome(ctx context.Context) string {
	a := cmp.Or(c.Auth, &Credentials{})
	headers, _ := headersOf(a.Principals, callerIn(ctx))
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %q %q %q %q",
		c.URL, c.Headers, a.Type, a.ClientID, a.MetadataURL, a.Issuer, a.Audience, a.Store,
		a.AssertionFile, headers))
	return hex.EncodeToString(sum[:])
}

// keptTask is the task that a server may have made of a call.
type keptTask struct {
	at    *server
	tool  string
	known atomic.Bool // it has made one, which is stored
}

// lasts reports whether the tasks of the server can outlive the gateway. A child ends with it.
func (s *server) lasts() bool { return s.target != nil }

// keep returns w.kept, and makes it first if necessary: few calls become tasks.
func (w *calling) keep() *keptTask {
	if w.kept == nil {
		w.kept = &keptTask{at: w.at, tool: w.tool}
	}
	return w.kept
}

// TaskStarted implements relay.TaskObserver.
func (w *calling) TaskStarted(id, created string) error { return w.keep().start(w, id, created) }

// LeavesTask implements relay.TaskObserver.
func (w *calling) LeavesTask() bool { return w.kept.leave() || takenOver(w) }

// takenOver reports whether another node follows the task that is handled, which goes on.
func takenOver(ctx context.Context) bool { return errors.Is(context.Cause(ctx), relay.ErrTaskLeft) }

// atHome returns the error of a task that is resumed at another server than its own, or with other
// credentials: its id may name the task of another caller there.
func (w *calling) atHome() error {
	if w.TaskID == "" || w.at.lasts() && w.home == w.at.cfg.taskHome(w) && w.TaskCreated != "" {
		return nil
	}
	return jsonrpc.Errorf(jsonrpc.InvalidParams,
		"the address or the credentials of the upstream differ from those that the task was started with")
}

// start makes the client's call a task, where the upstream's is one.
func (k *keptTask) start(ctx context.Context, id, created string) error {
	if k.at.lasts() {
		state, err := jsonv2.Append(nil, taskState{
			Upstream: k.at.cfg.Name, Home: k.at.cfg.taskHome(ctx),
			Task: id, Created: created, Tool: k.tool,
		})
		if err == nil {
			err = relay.KeepTask(ctx, state)
		}
		if err != nil {
			return err
		}
	}
	err := mcp.StartTask(ctx)
	k.known.Store(err == nil && k.at.lasts() && relay.TaskOf(ctx) == relay.IsTask)
	return err
}

// leave reports whether the task is to go on at the upstream: the gateway ends, and the next one
// will look for it. A nil keptTask is none.
func (k *keptTask) leave() bool {
	return k != nil && k.known.Load() && k.at.g.draining.Load() &&
		(k.at.g.tasks.dir != "" || k.at.g.sharedTasks() != nil)
}

// left returns the error of a call with a task that may still run at the upstream.
func (k *keptTask) left(err error) error {
	if err != nil && k.leave() {
		return fmt.Errorf("%w: %w", relay.ErrTaskLeft, err)
	}
	return err
}

// ResumeTask implements relay.Resumer.
func (e *endpoint) ResumeTask(
	ctx context.Context, rev *era.Revision, state []byte,
) (jsonrpc.Raw, *era.Revision, error) {
	if e.g.draining.Load() {
		return nil, nil, fmt.Errorf("%w: %w", relay.ErrTaskLeft, errDraining())
	}
	var of taskState
	if err := jsonv2.Unmarshal(state, &of); err != nil {
		return nil, nil, fmt.Errorf("gateway: the stored state of a task cannot be read: %w", err)
	}
	defer farcall.Waiting(ctx)()
	w := e.g.newCalling(ctx)
	w.Method, w.Revision, w.TaskID, w.TaskCreated, w.home = spec.MethodToolsCall, rev, of.Task,
		of.Created, of.Home
	w.bind(e, of.Upstream, of.Tool)
	r, err := e.forward(w, of.Upstream)
	if err == nil {
		r, err = w.after(r, of.Upstream, of.Tool)
	}
	if err == nil || w.at == nil || w.kept != nil && w.kept.known.Load() {
		return r.Raw, r.Revision, w.kept.left(err)
	}
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	switch {
	case takenOver(ctx):
	case ctx.Err() != nil:
		e.cancelTask(w, of)
	case wire != nil && string(scan.Member(wire.Data, "retryable")) == "true":
		e.g.log.Warn("a task cannot be resumed now; it is tried again when its client asks", "upstream",
			of.Upstream, "error", err)
		return nil, nil, fmt.Errorf("%w: %w", relay.ErrTaskLeft, err)
	case wire != nil && wire.Code == jsonrpc.InvalidParams:
		err = jsonrpc.Errorf(jsonrpc.InternalError,
			"the gateway was stopped while the task ran, and the upstream %s does not know the task "+
				"any more: %s", of.Upstream, wire.Message)
	}
	return nil, nil, err
}

// cancelTask cancels a task that was given up before it was followed, if the upstream still has
// that task and no other one of its id.
func (e *endpoint) cancelTask(w *calling, of taskState) {
	s := e.g.plan.Load().byName[of.Upstream]
	if s == nil || s.mcp == nil || of.Home != s.cfg.taskHome(w) || of.Created == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w), cancelTimeout)
	defer cancel()
	params, err := jsonv2.Append(nil, spec.TaskParams{TaskID: of.Task})
	var r upstream.Result
	if err == nil {
		r, err = s.mcp.Call(ctx,
			&upstream.Call{Method: spec.MethodTasksGet, Params: params, Caller: w.Caller})
	}
	if err == nil {
		if created := scan.Member(r.Raw, "createdAt"); len(created) < 2 || created[0] != '"' ||
			string(scan.Unquote(created)) != of.Created {
			return
		}
		_, err = s.mcp.Call(ctx,
			&upstream.Call{Method: spec.MethodTasksCancel, Params: params, Caller: w.Caller})
	}
	if err != nil {
		e.g.log.Warn("a task could not be cancelled", "upstream", of.Upstream, "error", err)
	}
}
