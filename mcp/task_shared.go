package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A task that servers share is one record. The server that runs the task and all others change it
// by compare-and-swap only, so it has one end, whichever server writes it:
//
//	        the handler returns, or any server cancels
//	working ──────────────────────────────────────────▶ ended
//	 │ ▲ ▲                                                ▲
//	 │ │ └ another server stores an answer                │ a server that is asked finds that the
//	 │ │   the server that runs it takes it: asks less    │ one that runs it has ended: failed
//	 │ └── that is asked finds the same, and the relay ───┤
//	 │     can resume it: working there                   │
//	 └────────────────────────────────────────────────────┘
//
// A task that goes on at an upstream, which is not reached, is dormant: no server runs it, and the
// next one that is asked resumes it.
//
// The bus carries the ids of tasks that have changed. It only saves time: a server that waits for a
// change reads the record again at each pulse.

const (
	// taskLease is how long a server may be silent before its tasks count as interrupted, and
	// taskPulse how often it says that it runs. No clocks are compared.
	taskLease = 10 * time.Second
	taskPulse = taskLease / 4
	// nodeFor is how long what a server says of itself is kept after the last time.
	nodeFor = 24 * time.Hour
	// noNode stands for the server that runs a dormant task, which none follows. No server has it.
	noNode = "none"
	// listLocks bounds how many lists of tasks are changed at once.
	listLocks = 64
)

// A storedQuestion is what a task asks.
type storedQuestion struct {
	Key    string      `json:"key"`
	Method string      `json:"method"`
	Params jsonrpc.Raw `json:"params"`
}

// A storedAnswer is what the client has answered, or why it has not.
type storedAnswer struct {
	Value jsonrpc.Raw `json:"value,omitzero"`
	Error string      `json:"error,omitzero"`
}

// sharing is what a server has to do with the tasks of others.
type sharing struct {
	srv  *Server
	name string // begins the owners of its records, and is the topic of changes
	node string // names this server

	starting sync.Mutex
	closed   bool
	end      func() // nil: not started
	version  uint64 // of the record that says that it runs
	running  sync.WaitGroup

	listing [listLocks]sync.Mutex // held while a list of tasks is changed, by its owner

	mu      sync.Mutex
	watched map[string]*task // of other servers, for which clients wait here; by id
	seen    map[string]sighting
}

// A sighting is what was last seen of another server: a version of its record, when, and for how
// long it has been the same.
type sighting struct {
	version uint64
	read    time.Time
	silent  time.Duration
}

func newSharing(s *Server) *sharing {
	if s.opts.Shared == nil {
		return nil
	}
	return &sharing{
		srv: s, name: "task\x00" + cmp.Or(s.opts.SharedName, s.info.Name) + "\x00", node: rand.Text(),
		watched: map[string]*task{}, seen: map[string]sighting{},
	}
}

// shares reports whether the tasks of an owner are shared.
func (s *Server) shares(o owner.Key) bool { return s.shared != nil && o.Returns() }

func (t *task) shared() bool { return t.srv.shares(t.owner) }

// start begins to tell and to hear of changes, unless it has.
func (x *sharing) start() error {
	x.starting.Lock()
	defer x.starting.Unlock()
	switch {
	case x.closed:
		return errClosing
	case x.end != nil:
		return nil
	}
	ctx, cancel := storing()
	defer cancel()
	if err := x.beat(ctx); err != nil {
		return err
	}
	stop, err := x.srv.opts.Shared.Subscribe(ctx, x.name, x.receive)
	if err != nil {
		return err
	}
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	x.end = func() { end(); stop(); x.running.Wait() }
	for _, f := range []func(){x.beats, x.readAll} {
		x.running.Go(func() {
			tick := time.NewTicker(taskPulse)
			defer tick.Stop()
			for {
				select {
				case <-run.Done():
					return
				case <-tick.C:
					f()
				}
			}
		})
	}
	return nil
}

func (x *sharing) logged(err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrNotFound) {
		x.srv.logger().Warn("mcp: the store of shared tasks has failed; it is tried again",
			slog.Any("error", err))
	}
}

// close tells the others that this server has ended. A nil sharing has none.
func (x *sharing) close() {
	if x == nil {
		return
	}
	x.starting.Lock()
	end := x.end
	x.closed, x.end = true, nil
	x.starting.Unlock()
	if end != nil {
		end()
		ctx, cancel := storing()
		defer cancel()
		x.logged(x.srv.opts.Shared.Delete(ctx, x.name+"nodes", x.node))
	}
}

func (x *sharing) beats() {
	ctx, cancel := context.WithTimeout(context.Background(), taskPulse) //nolint:forbidigo // as storing
	defer cancel()
	err := x.beat(ctx)
	if err != nil {
		x.mu.Lock()
		clear(x.seen) // the others may be unable to say that they run
		x.mu.Unlock()
	}
	x.logged(err)
}

// beat says that this server runs. Its record is not that of the last beat where that one was
// written with an error, and where the store has lost it.
func (x *sharing) beat(ctx context.Context) error {
	for range swaps {
		version, err := x.srv.opts.Shared.Put(ctx, &store.Record{
			Owner: x.name + "nodes", ID: x.node, Version: x.version, Expires: time.Now().Add(nodeFor),
		})
		if err == nil {
			x.version = version
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		x.version = 0
		r, err := x.srv.opts.Shared.Get(ctx, x.name+"nodes", x.node)
		if err == nil {
			x.version = r.Version
		} else if !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return store.ErrConflict
}

// gone reports whether a server has ended. Time in which the store may have been away does
// not count: between two reads it is two pulses at most, and after an error it begins again.
func (x *sharing) gone(node string) (bool, error) {
	now := time.Now() // this process may be stopped while it reads
	ctx, cancel := storing()
	defer cancel()
	r, err := x.srv.opts.Shared.Get(ctx, x.name+"nodes", node)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrNotFound):
		delete(x.seen, node)
		return true, nil
	case err != nil:
		clear(x.seen)
		return false, err
	}
	last, known := x.seen[node]
	if known && last.version == r.Version {
		last.silent += max(0, min(now.Sub(last.read), 2*taskPulse))
	} else {
		last = sighting{version: r.Version}
		maps.DeleteFunc(x.seen, func(_ string, s sighting) bool { return now.Sub(s.read) > nodeFor })
	}
	last.read = time.Now()
	x.seen[node] = last
	return last.silent >= taskLease, nil
}

// receive hears of a change at another server.
func (x *sharing) receive(m store.Message) {
	node, id, _ := strings.Cut(string(m.Data), " ")
	if m.Gap {
		x.running.Go(x.readAll)
	}
	if t := x.known(id); t != nil && node != x.node {
		x.running.Go(func() { x.logged(t.refresh()) })
	}
}

// known returns a task that runs here, or that is waited for.
func (x *sharing) known(id string) *task {
	tt := &x.srv.tasks
	tt.mu.Lock()
	t := tt.byID[id]
	tt.mu.Unlock()
	if t != nil {
		return t
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.watched[id]
}

// readAll reads what may have changed without a message.
func (x *sharing) readAll() {
	now := time.Now()
	x.mu.Lock()
	maps.DeleteFunc(x.watched, func(_ string, t *task) bool {
		_, ended := t.watch()
		if !ended && !t.expiry().After(now) {
			ended = true
			x.running.Go(t.expire) // for those who wait for it
		}
		return ended
	})
	all := slices.Collect(maps.Values(x.watched))
	x.mu.Unlock()
	for _, t := range x.srv.tasks.all() {
		t.mu.Lock()
		asks := len(t.pending) > 0
		t.mu.Unlock()
		if asks && t.shared() {
			all = append(all, t)
		}
	}
	for _, t := range all {
		x.logged(t.refresh())
	}
}

// findTask returns a task of an owner, nil: there is none. The state of a shared one is that of the
// store. watch: changes of it are waited for.
func (s *Server) findTask(o owner.Key, id string, watch bool) (*task, error) {
	t := s.tasks.find(id, o)
	switch {
	case !s.shares(o):
		return t, nil
	case t == nil:
		return s.shared.find(o, id, watch)
	}
	return t, t.refresh()
}

// find returns a task that another server runs, or has run.
func (x *sharing) find(o owner.Key, id string, watch bool) (*task, error) {
	x.mu.Lock()
	t := x.watched[id]
	x.mu.Unlock()
	if t == nil || t.owner != o {
		var err error
		if t, err = x.load(o, id); t == nil || err != nil {
			return nil, err
		}
		if _, ended := t.watch(); ended {
			return t, nil
		}
		if watch {
			if err := x.start(); err != nil {
				return nil, err
			}
			x.mu.Lock()
			if w := x.watched[id]; w != nil {
				t = w
			}
			x.watched[id] = t
			x.mu.Unlock()
		}
	}
	return t, t.refresh()
}

// load reads a task; nil: there is none.
func (x *sharing) load(o owner.Key, id string) (*task, error) {
	name, _ := x.srv.storedOwner(o)
	ctx, cancel := storing()
	defer cancel()
	r, err := x.srv.opts.Shared.Get(ctx, name, id)
	if errors.Is(err, store.ErrNotFound) {
		r, err = x.absent(ctx, name, id)
	}
	if err != nil || len(r.Value) == 0 {
		return nil, err // without one: another server makes sure, too
	}
	t, err := x.srv.adopted(r, o)
	if err != nil {
		return nil, err
	}
	t.remote, t.dormant, t.interrupted = true, false, false
	read, err := readTaskRecord(r.Value)
	if err == nil && !spec.TaskEnded(read.Status) {
		t.apply(read)
	}
	return t, err
}

// absent makes sure that there is no task where a read has found none: the engine that has answered
// may have been cut off before the task was stored, and only a write finds that out.
func (x *sharing) absent(ctx context.Context, name, id string) (*store.Record, error) {
	mark := &store.Record{Owner: name, ID: id, Expires: time.Now().Add(storeTimeout)}
	_, err := x.srv.opts.Shared.Put(ctx, mark)
	if errors.Is(err, store.ErrConflict) {
		return x.srv.opts.Shared.Get(ctx, name, id)
	}
	if err == nil {
		x.logged(x.srv.opts.Shared.Delete(ctx, name, id))
	}
	return mark, err
}

// elsewhere reports whether another server runs the task.
func (t *task) elsewhere() bool {
	t.ends.Lock()
	defer t.ends.Unlock()
	return t.remote
}

// refresh brings what is known of a task to what the store has.
func (t *task) refresh() error {
	lost, err := t.reread()
	if lost && err == nil {
		err = t.takeOver()
	}
	return err
}

// reread reads the record, and reports whether the server that runs the task has ended.
func (t *task) reread() (lost bool, err error) {
	t.ends.Lock()
	defer t.ends.Unlock()
	if _, ended := t.watch(); ended {
		return false, nil
	}
	r, version, err := t.stored()
	switch {
	case errors.Is(err, store.ErrNotFound): // its session has ended at another server
		r = &taskRecord{
			Status: spec.TaskCancelled, Message: errTaskCancelled.Error(),
			Updated: time.Now(),
		}
		if t.apply(r); !t.remote {
			err = nil
		}
		return false, err
	case err != nil:
		return false, err
	case version != t.version:
		if t.version = version; t.apply(r) {
			err = t.persistLocked()
		}
	}
	if !t.remote || spec.TaskEnded(r.Status) {
		return false, err
	}
	return t.srv.shared.gone(t.node)
}

// apply takes over what another server has written, and reports whether the handler has got
// answers. t.ends is held.
func (t *task) apply(r *taskRecord) (answered bool) {
	ended := spec.TaskEnded(r.Status)
	if !ended && !t.remote && r.Node != t.node { // it was taken over: this server was silent
		t.remote, t.dormant, t.left = true, true, true
		t.cancel(fmt.Errorf("%w: another server follows it", relay.ErrTaskLeft))
	}
	done := t.change(func() bool {
		switch {
		case ended:
			t.pending = nil
			t.status, t.message, t.failed, t.updated = r.Status, r.Message, r.Failed, r.Updated
		case t.remote:
			t.node, t.kept, t.message, t.updated = r.Node, r.Kept, r.Message, r.Updated
			t.pending = t.questionsLocked(r)
		default:
			answered = len(r.Answers) > 0
			return t.answeredLocked(r)
		}
		return true
	})
	if ended && done {
		t.cancel(errors.New(r.Message))
		if !t.remote {
			t.srv.taskEvent(t, r.Status)
		}
	}
	return answered
}

// questionsLocked returns what a task of another server asks and has no answer yet. What was sent
// to the client stays so.
func (t *task) questionsLocked(r *taskRecord) (asked []*pending) {
	for _, a := range r.Asks {
		if _, answered := r.Answers[a.Key]; answered {
			continue
		}
		i := slices.IndexFunc(t.pending, func(p *pending) bool { return p.key == a.Key })
		if i >= 0 {
			asked = append(asked, t.pending[i])
			continue
		}
		q := &question{method: a.Method, params: a.Params}
		if err := q.read(true); err == nil { // which it was before
			asked = append(asked, &pending{question: q, key: a.Key, answer: make(chan outcome, 1)})
		}
	}
	return asked
}

// answeredLocked gives the handler what another server was answered.
func (t *task) answeredLocked(r *taskRecord) (changed bool) {
	for _, p := range slices.Clone(t.pending) {
		a, ok := r.Answers[p.key]
		o := outcome{raw: a.Value}
		if a.Error != "" {
			o = outcome{err: errors.New(a.Error)}
		}
		if ok && (o.err != nil || p.check(a.Value) == nil) {
			t.drop(p)
			p.answer <- o
			changed = true
		}
	}
	return changed
}

// share stores what a task asks and says of itself, for the other servers.
func (t *task) share() {
	if !t.shared() || !t.started() {
		return
	}
	t.ends.Lock()
	defer t.ends.Unlock()
	if _, ended := t.watch(); ended || t.remote {
		return
	}
	t.srv.shared.logged(t.persistLocked())
}

// persistLocked stores the state of a task that has not ended. t.ends is held.
func (t *task) persistLocked() error {
	for range swaps {
		err := t.put(t.record(nil))
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		r, version, err := t.stored()
		if err != nil {
			return err
		}
		t.version = version
		if t.apply(r); t.remote || spec.TaskEnded(r.Status) {
			return nil
		}
	}
	return store.ErrConflict
}

// answerElsewhere stores answers for the server that runs the task.
func (t *task) answerElsewhere(answers map[string]storedAnswer) error {
	t.ends.Lock()
	defer t.ends.Unlock()
	for range swaps {
		r, version, err := t.stored()
		if err != nil || spec.TaskEnded(r.Status) {
			return err
		}
		t.version = version
		if r.Answers == nil {
			r.Answers = map[string]storedAnswer{}
		}
		maps.Copy(r.Answers, answers)
		if err = t.put(r); err == nil {
			t.apply(r)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// takeOver goes on with a task of a server that has ended, when its owner asks for it, or ends it.
// A conflict says that another server was faster, or that the one that runs it is back.
func (t *task) takeOver() error {
	_, resumes := t.srv.opts.Relay.(relay.Resumer)
	if err := t.srv.shared.start(); err != nil {
		return err
	}
	t.ends.Lock()
	defer t.ends.Unlock()
	if !t.remote {
		return nil // another request has taken it over
	}
	node, x := t.node, t.srv.shared
	var err error
	if !resumes || len(t.kept) == 0 {
		t.interrupted = true
		t.interrupted, err = t.settleLocked(failure(errTaskInterrupted))
	} else {
		t.node = x.node
		if err = t.put(t.record(nil)); err == nil {
			t.remote, t.dormant, t.left = false, true, false
			t.srv.tasks.adopt(t)
			t.change(func() bool { return true }) // a request that waits for it resumes it
			return nil
		}
		t.node = node
	}
	if errors.Is(err, store.ErrConflict) {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.seen, node)
		return nil
	}
	return err
}
