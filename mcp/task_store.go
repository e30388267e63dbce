package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A task is stored twice: before a client gets its id, and before a client sees its end.
//
//	working ──begin: stored──▶ known to clients ──settle: stored──▶ ended
//	                                │
//	                                ├─ the process dies ─▶ adopted as failed: stored ─▶ ended
//	                                └─ the process dies, and a relay has kept its state ─▶ dormant ─ask─▶ working
//
// See task_shared.go for those that several servers share.
//
// What the task asks and how far it has come belongs to the handler, and ends with the process.

const (
	// storeTimeout is how long a store may take.
	storeTimeout = 10 * time.Second
	// storeRetry and storeRetryMost are the first and the longest pause after an end that could
	// not be stored.
	storeRetry, storeRetryMost = 100 * time.Millisecond, 10 * time.Second
	// maxTaskMessage bounds the message of a failure, which always finds room in a store.
	maxTaskMessage = 1024
)

// taskRecord is the stored form of a task: JSON, and after a newline the bytes of the result.
type taskRecord struct {
	Number   uint64         `json:"number"`
	Tool     string         `json:"tool,omitzero"`
	Created  time.Time      `json:"created"`
	Updated  time.Time      `json:"updated"`
	Lifetime int64          `json:"lifetime"` // nanoseconds
	Status   string         `json:"status"`
	Message  string         `json:"message,omitzero"`
	Failed   bool           `json:"failed,omitzero"` // the result is a tool's error
	Error    *jsonrpc.Error `json:"error,omitzero"`
	Kept     []byte         `json:"kept,omitzero"` // of one that works: see relay.KeepTask

	// Of one that servers share: the server that runs it, what it asks, and the answers that
	// another server was given and that the handler has not got yet, by key.
	Node    string                  `json:"node,omitzero"`
	Asks    []storedQuestion        `json:"asks,omitzero"`
	Answers map[string]storedAnswer `json:"answers,omitzero"`

	result jsonrpc.Raw
}

func (r *taskRecord) append(dst []byte) ([]byte, error) {
	dst, err := jsonv2.Append(dst, r)
	return append(append(dst, '\n'), r.result...), err
}

// readTaskRecord reads the stored form of a task.
func readTaskRecord(value []byte) (*taskRecord, error) {
	head, result, ok := bytes.Cut(value, []byte("\n"))
	r := &taskRecord{}
	if err := jsonv2.Unmarshal(head, r); err != nil || !ok {
		return nil, fmt.Errorf("it does not begin with a line of JSON: %w",
			cmp.Or(err, errors.New("the line does not end")))
	}
	switch r.Status {
	case spec.TaskWorking, spec.TaskInputRequired, spec.TaskCancelled:
	case spec.TaskFailed:
		if r.Error == nil {
			return nil, errors.New("it has failed without an error")
		}
	case spec.TaskCompleted:
		if err := jsonrpc.Valid(result); err != nil {
			return nil, fmt.Errorf("its result is no JSON: %w", err)
		}
		r.result = result
	default:
		return nil, fmt.Errorf("its status is %q", r.Status)
	}
	if r.Lifetime <= 0 {
		return nil, errors.New("it has no lifetime")
	}
	return r, nil
}

// records returns where the tasks of an owner are stored: in memory, when the owner ends with the
// process.
func (s *Server) records(o owner.Key) store.Records {
	switch {
	case s.shares(o):
		return s.opts.Shared
	case s.opts.Tasks != nil && o.Returns():
		return s.opts.Tasks
	}
	return s.memory
}

// storedOwner returns the texts that name an owner, and its group, where its tasks are stored.
func (s *Server) storedOwner(o owner.Key) (name, group string) {
	prefix := ""
	if s.shares(o) {
		prefix = s.shared.name
	}
	if g := o.Group(); g != o {
		group = prefix + g.Text()
	}
	return prefix + o.Text(), group
}

// storing returns the context of what the store is asked to do.
func storing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), storeTimeout) //nolint:forbidigo // a state is stored for all who will ask, whatever becomes of the request
}

// put stores a state of the task, in place of the one before. t.ends is held.
func (t *task) put(r *taskRecord) error {
	value, err := r.append(nil)
	if err != nil {
		return err
	}
	name, group := t.srv.storedOwner(t.owner)
	ctx, cancel := storing()
	defer cancel()
	version, err := t.srv.records(t.owner).Put(ctx, &store.Record{
		Owner: name, Group: group, ID: t.id, Version: t.version, Expires: t.expiry(), Value: value,
	})
	if err != nil {
		return err
	}
	t.version = version
	if t.shared() {
		x := t.srv.shared // which tells the other servers
		x.logged(x.srv.opts.Shared.Publish(ctx, x.name, []byte(x.node+" "+t.id)))
	}
	return nil
}

// stored returns what is stored of the task.
func (t *task) stored() (*taskRecord, uint64, error) {
	ctx, cancel := storing()
	defer cancel()
	name, _ := t.srv.storedOwner(t.owner)
	r, err := t.srv.records(t.owner).Get(ctx, name, t.id)
	if err != nil {
		return nil, 0, err
	}
	read, err := readTaskRecord(r.Value)
	return read, r.Version, err
}

// unstore removes what is stored of a task that no client can ask for.
func (t *task) unstore() {
	ctx, cancel := storing()
	defer cancel()
	name, _ := t.srv.storedOwner(t.owner)
	if err := t.srv.records(t.owner).Delete(ctx, name, t.id); err != nil {
		t.srv.logger().Error("mcp: a task stays in the store until it expires", slog.Any("error", err))
	}
}

// record returns the stored form of the state. t.mu is not held, and t.ends is.
func (t *task) record(e *taskEnd) *taskRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &taskRecord{
		Number: t.number, Tool: t.tool, Created: t.created, Updated: t.updated, Lifetime: int64(t.ttl),
		Status: t.status,
	}
	if e == nil {
		r.Kept = t.kept
		if t.shared() {
			r.Node, r.Message = t.node, t.message
			for _, p := range t.pending {
				r.Asks = append(r.Asks, storedQuestion{p.key, p.method, p.params})
			}
		}
	} else {
		r.Updated, r.Status, r.Message, r.Failed, r.Error, r.result = time.Now(), e.status, e.message,
			e.failed, e.err, e.result
	}
	return r
}

// taskEnd is how a task ends.
type taskEnd struct {
	status, message string
	result          jsonrpc.Raw    // when it has completed
	failed          bool           // the result is a tool's error
	err             *jsonrpc.Error // when it has failed
	cause           error          // for the context of the handler
	unstored        bool           // the task has expired, or has no owner any more
}

func failure(cause error) *taskEnd {
	return &taskEnd{
		status: spec.TaskFailed, message: cause.Error(), cause: cause,
		err: &jsonrpc.Error{Code: jsonrpc.InternalError, Message: cause.Error()},
	}
}

func cancellation(cause error) *taskEnd {
	return &taskEnd{status: spec.TaskCancelled, message: cause.Error(), cause: cause}
}

// finish ends the task with what its handler returned. While the store fails the task stays as it
// is, and finish tries again, until the task expires or the server is closed.
func (t *task) finish(o outcome) {
	e := &taskEnd{status: spec.TaskCompleted, result: o.raw}
	if wire := t.srv.taskError(o.err); wire != nil {
		e = &taskEnd{status: spec.TaskFailed, message: wire.Message, err: wire}
	} else {
		e.failed = string(scan.Member(o.raw, "isError")) == "true"
	}
	if t.asleep() || errors.Is(o.err, relay.ErrTaskLeft) && t.leave(false) {
		return
	}
	for wait := storeRetry; ; wait = min(2*wait, storeRetryMost) {
		changed, ended := t.watch()
		if ended {
			t.cancel(nil)
			return
		}
		_, err := t.settle(e)
		switch {
		case err == nil:
			return
		case errors.Is(err, store.ErrFull) &&
			(e.result != nil || len(e.message) > maxTaskMessage || e.err != nil && e.err.Data != nil):
			t.srv.logger().Error("mcp: the result of a task finds no room in the store",
				slog.Int("bytes", len(e.result)))
			e = failure(errTaskTooLarge)
			continue
		}
		t.srv.logger().Error("mcp: the end of a task cannot be stored; it is tried again",
			slog.Any("error", err))
		select {
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// settle ends the task: it stores the end, and shows it then, so that no client sees an end that
// another process, or this one when it starts again, would not know of. It reports whether the task
// had not ended.
func (t *task) settle(e *taskEnd) (done bool, err error) {
	t.ends.Lock()
	defer t.ends.Unlock()
	return t.settleLocked(e)
}

// settleLocked is settle where t.ends is held.
func (t *task) settleLocked(e *taskEnd) (done bool, err error) {
	if _, over := t.watch(); over {
		t.cancel(e.cause)
		return false, nil
	}
	r := t.record(e)
	if !e.unstored {
		if r, err = t.putEnd(r); err != nil {
			return false, err
		}
	}
	t.change(func() bool {
		t.pending = nil
		t.status, t.message, t.failed, t.updated = r.Status, r.Message, r.Failed, r.Updated
		return true
	})
	t.cancel(e.cause)
	if !t.remote || t.interrupted { // the server that runs it notices the end, too
		t.srv.taskEvent(t, r.Status)
	}
	return true, nil
}

// putEnd stores the end of a task, and returns the end that is stored: another one, where it was
// written before with an error, or by another process. The end of a task as one that was
// interrupted gives way to any other state: what has written it runs. t.ends is held.
func (t *task) putEnd(end *taskRecord) (*taskRecord, error) {
	for range swaps {
		err := t.put(end)
		if !errors.Is(err, store.ErrConflict) {
			return end, err
		}
		r, version, failed := t.stored()
		if failed != nil || t.remote && t.interrupted && !spec.TaskEnded(r.Status) {
			return nil, cmp.Or(failed, err)
		}
		if t.version = version; spec.TaskEnded(r.Status) {
			return r, nil
		}
	}
	return nil, store.ErrConflict
}

// stop ends the task from outside, and reports whether it had not ended yet. A handler that goes on
// all the same does so in vain.
func (t *task) stop(e *taskEnd) (bool, error) {
	done, err := t.settle(e)
	if err != nil {
		t.srv.logger().Error("mcp: the end of a task cannot be stored", slog.Any("error", err))
		err = &jsonrpc.Error{
			Code:    jsonrpc.InternalError,
			Message: "The task goes on: its end cannot be stored; try again", Cause: err,
		}
	}
	return done, err
}

// adopt makes the tasks known that the store has of a process that has ended. Those that ran then
// have failed.
func (s *Server) adopt() {
	if s.opts.Tasks == nil {
		return
	}
	var found []*task
	ctx, cancel := storing()
	defer cancel()
	for r, err := range s.opts.Tasks.Adopt(ctx) {
		var t *task
		if err == nil && strings.HasPrefix(r.ID, valuesPrefix) {
			continue // of ServerOptions.Sessions
		}
		if err == nil {
			t, err = s.adopted(r, owner.Stored(r.Owner, r.Group))
		}
		if err != nil {
			s.logger().Error("mcp: passed over a stored task that cannot be read", slog.Any("error", err))
			continue
		}
		found = append(found, t)
	}
	slices.SortFunc(found, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.number, b.number), a.created.Compare(b.created),
			cmp.Compare(a.id, b.id))
	})
	for _, t := range found {
		s.taskTools.Store(true)
		s.tasks.adopt(t)
		if err := t.interrupt(); err != nil {
			s.logger().Error(
				"mcp: the end of an interrupted task cannot be stored; it is tried again when a client asks",
				slog.Any("error", err))
		}
	}
}

// adopted returns the task that a record of an owner has.
func (s *Server) adopted(r *store.Record, o owner.Key) (*task, error) {
	read, err := readTaskRecord(r.Value)
	if err != nil {
		return nil, err
	}
	if o.IsZero() || r.ID == "" {
		return nil, errors.New("its owner is none")
	}
	_, resumes := s.opts.Relay.(relay.Resumer)
	works := !spec.TaskEnded(read.Status)
	dormant := works && resumes && len(read.Kept) > 0
	status := read.Status
	if works {
		status = spec.TaskWorking // its questions have ended with the process
	}
	return &task{
		srv: s, id: r.ID, number: read.Number, tool: read.Tool, owner: o, created: read.Created,
		updated: read.Updated,
		ttl:     time.Duration(read.Lifetime), live: true, status: status, message: read.Message,
		failed:  read.Failed,
		changed: make(chan struct{}), cancel: func(error) {}, version: r.Version, node: read.Node,
		interrupted: works && !dormant, dormant: dormant, kept: read.Kept,
	}, nil
}

// interrupt ends an adopted task that has not ended.
func (t *task) interrupt() error {
	t.ends.Lock()
	defer t.ends.Unlock()
	if !t.interrupted {
		return nil
	}
	_, err := t.settleLocked(failure(errTaskInterrupted))
	return err
}

// TaskEvent says that a task was created, or how it has ended.
type TaskEvent struct {
	ID, Tool string
	Created  time.Time
	// Status is the one that the task has now: "working" says that it was created, and "completed",
	// "failed" and "cancelled" that it has ended. A completed tool may have reported an error:
	// ToolError.
	Status    string
	ToolError bool
	// Interrupted: the task ran in a process that has ended, and this one has found it in the store.
	Interrupted bool
}

func (s *Server) taskEvent(t *task, status string) {
	if s.opts.OnTask != nil {
		s.opts.OnTask(TaskEvent{
			ID: t.id, Tool: t.tool, Created: t.created, Status: status, ToolError: t.failed,
			Interrupted: t.interrupted,
		})
	}
}
