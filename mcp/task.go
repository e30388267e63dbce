package mcp

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// task is a request that goes on in the background: of both generations, that
// of 2025-11-25 (basic/utilities/tasks) and the extension.
type task struct {
	srv     *Server
	id      string
	number  uint64 // ascending
	tool    string
	owner   owner.Key // to others it does not exist
	created time.Time
	ttl     time.Duration
	asks    bool                    // it begins with the first question of its handler
	cancel  context.CancelCauseFunc // of the handler's context
	// What the layers below note of the call, in the goroutine of its handler; nil: it is not
	// observed. noted is a copy, from when the call became a task or its handler returned.
	seen  *observe.Call
	noted atomic.Pointer[observe.Call]

	mu      sync.Mutex
	live    bool // it is a task now: it is in the table
	over    bool // its handler has returned before: it will be none
	status  string
	message string
	updated time.Time
	changed chan struct{} // closed by the next change
	first   spec.Task     // the state at its beginning
	keys    keys
	pending []*pending
	failed  bool // what completed is a tool's error

	ends        sync.Mutex // held while the beginning or the end is stored
	version     uint64     // of the stored record; guarded by ends
	interrupted bool       // the process that ran it has ended; the task was adopted
	kept        []byte     // what a relay needs to go on with it in another process; guarded by ends
	// it goes on at another server, and nothing here follows it; guarded by ends
	dormant bool
	left    bool   // and nothing here will: the server is closed; guarded by ends
	node    string // the server that runs it, of those that share it; guarded by ends
	remote  bool   // that is another one; guarded by ends

	telling sync.Mutex // listeners hear of the states in order
}

// pending is a question that a task has asked and that has no answer yet.
type pending struct {
	*question
	key    string
	sent   bool // legacy: a request is under way
	answer chan outcome
}

type outcome struct {
	raw jsonrpc.Raw
	err error
}

var (
	errTaskCancelled   = errors.New("the task was cancelled")
	errTaskExpired     = errors.New("the task has run longer than it may")
	errTaskClosed      = errors.New("the server is closing")
	errTaskInterrupted = errors.New(
		"the server was stopped while the task ran; what the task has done by then is not known")
	errTaskTooLarge = errors.New("the result of the task was too large to be kept")
)

// started reports whether clients know of the task. A nil task is none.
func (t *task) started() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// change changes the state by f, which reports whether it did, and tells those
// who wait for it. The state that ends a task is never changed.
func (t *task) change(f func() bool) bool {
	t.mu.Lock()
	before := t.updated
	t.updated = time.Now()
	done := !spec.TaskEnded(t.status) && f()
	if !done {
		t.updated = before
	} else {
		if !spec.TaskEnded(t.status) {
			t.status = spec.TaskWorking
			if len(t.pending) > 0 {
				t.status = spec.TaskInputRequired
			}
		}
		close(t.changed)
		t.changed = make(chan struct{})
	}
	live := t.live
	t.mu.Unlock()
	if done && live {
		t.tell()
	}
	return done
}

// tell tells the listeners of the state.
func (t *task) tell() {
	if !t.srv.listeners.modernOnes() {
		return
	}
	t.telling.Lock()
	defer t.telling.Unlock()
	if params, err := t.notification(); err == nil {
		// all of it is JSON that has been marshalled before
		t.srv.listeners.tell(&events{tasks: []taskUpdate{{t.id, params}}}) // sessions are not told
	}
}

// ask asks the client and waits for its answer.
func (t *task) ask(ctx context.Context, q *question) (jsonrpc.Raw, error) {
	p := &pending{question: q, answer: make(chan outcome, 1)}
	asked := t.change(func() bool {
		p.key = t.keys.next(q)
		t.pending = append(t.pending, p)
		return true
	})
	if !asked {
		return nil, errOver
	}
	t.share()
	select {
	case a := <-p.answer:
		return a.raw, a.err
	case <-ctx.Done():
		t.change(func() bool { return t.drop(p) })
		t.share()
		return nil, ctx.Err()
	}
}

// drop takes a question back. It reports whether there was one.
func (t *task) drop(p *pending) bool {
	i := slices.Index(t.pending, p)
	if i >= 0 {
		t.pending = slices.Delete(t.pending, i, i+1)
	}
	return i >= 0
}

// answer gives the handler an answer.
func (t *task) answer(p *pending, raw jsonrpc.Raw, err error) {
	if t.elsewhere() {
		a := storedAnswer{Value: raw}
		if err != nil {
			a.Error = err.Error()
		}
		if err := t.answerElsewhere(map[string]storedAnswer{p.key: a}); err != nil {
			t.srv.logger().Error("mcp: an answer for a task cannot be stored", slog.Any("error", err))
		}
		return
	}
	defer t.share()
	t.change(func() bool {
		if !t.drop(p) {
			return false
		}
		p.answer <- outcome{raw, err}
		return true
	})
}

// update gives the handler the answers to what it has asked, and passes over
// all other ones (ext-tasks, "Task Update Requests"). When one is not valid none
// is given.
func (t *task) update(responses map[string]jsonrpc.Raw) error {
	var bad error
	elsewhere := t.elsewhere()
	given := map[string]storedAnswer{}
	changed := t.change(func() bool {
		var answered []*pending
		for _, p := range t.pending {
			raw, ok := responses[p.key]
			if !ok {
				continue
			}
			if err := p.check(raw); err != nil {
				bad = badResponse(p.key, err)
				return false
			}
			answered = append(answered, p)
			given[p.key] = storedAnswer{Value: raw}
		}
		if elsewhere {
			return false
		}
		for _, p := range answered {
			t.drop(p)
			p.answer <- outcome{raw: responses[p.key]}
		}
		return len(answered) > 0
	})
	switch {
	case bad == nil && elsewhere && len(given) > 0:
		if err := t.answerElsewhere(given); err != nil {
			return t.unreadable(err)
		}
	case changed:
		t.share()
	}
	return bad
}

// report shows clients how far the handler has come.
func (t *task) report(message string) {
	t.change(func() bool {
		changed := t.message != message
		t.message = message
		return changed
	})
}

// next returns what the one who waits for the result has to do next: to send a
// question, to wait for a change, or nothing more.
func (t *task) next() (p *pending, changed <-chan struct{}, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pending {
		if !p.sent {
			p.sent = true
			return p, nil, false
		}
	}
	return nil, t.changed, spec.TaskEnded(t.status)
}

// watch returns what the next change closes, and whether there will be none.
func (t *task) watch() (changed <-chan struct{}, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed, spec.TaskEnded(t.status)
}
