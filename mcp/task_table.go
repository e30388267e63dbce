package mcp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

var (
	errClosing   = &jsonrpc.Error{Code: jsonrpc.Overloaded, Message: "The server is closing"}
	errManyTasks = &jsonrpc.Error{Code: jsonrpc.Overloaded, Message: "Too many tasks; try again later"}
)

// taskTable holds the tasks of a server: those that run, and those that have ended, until their
// time is over. What they have come to is in the store. A task stays for all of its ttl, so a table
// that is full takes no more. One timer serves all of them.
type taskTable struct {
	mu     sync.Mutex
	byID   map[string]*task
	byEnd  []*task // the one with a time that is over first is first
	held   share.Ledger
	last   uint64 // number
	timer  *time.Timer
	later  sync.Map // the names of tools: see Server.TaskLater
	closed bool
}

// closers is how many tasks are ended at a time when the server is closed.
const closers = 32

func (t *task) expiry() time.Time { return t.created.Add(t.ttl) }

// reserve takes room for a task, and gives it its number.
func (tt *taskTable) reserve(t *task, limit int) error {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.closed {
		return errClosing
	}
	tt.held.SetBounds(share.Bounds{Total: limit, Owner: ownerShare(limit)})
	if !tt.held.Take(t.owner, 1) {
		return errManyTasks
	}
	tt.last++
	t.number = tt.last
	return nil
}

// free gives back what reserve took.
func (tt *taskTable) free(t *task) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.held.Give(t.owner, 1)
}

// add makes a task known that has room. It reports false when the table is closed.
func (tt *taskTable) add(t *task) bool {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.closed {
		tt.held.Give(t.owner, 1)
		return false
	}
	tt.addLocked(t)
	return true
}

// adopt makes a stored task known, whether there is room or not, unless it is known.
func (tt *taskTable) adopt(t *task) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.closed || tt.byID[t.id] != nil {
		return
	}
	tt.held.Add(t.owner, 1)
	tt.last = max(tt.last, t.number)
	tt.addLocked(t)
}

func (tt *taskTable) addLocked(t *task) {
	setEntry(&tt.byID, t.id, t)
	i, _ := slices.BinarySearchFunc(tt.byEnd, t, func(a, b *task) int {
		return a.expiry().Compare(b.expiry())
	})
	tt.byEnd = slices.Insert(tt.byEnd, i, t)
	if i == 0 {
		tt.schedule()
	}
}

// ownerShare is how many of the tasks one owner may have.
func ownerShare(limit int) int { return min(limit, max(limit/10, 16)) }

// schedule sets the timer to the first end.
func (tt *taskTable) schedule() {
	if tt.timer != nil {
		tt.timer.Stop()
	}
	if len(tt.byEnd) > 0 {
		tt.timer = time.AfterFunc(time.Until(tt.byEnd[0].expiry()), tt.expire)
	}
}

// expire forgets the tasks with a time that is over, and ends those that still run.
func (tt *taskTable) expire() {
	now := time.Now()
	tt.mu.Lock()
	n := 0
	for n < len(tt.byEnd) && !tt.byEnd[n].expiry().After(now) {
		tt.forgetLocked(tt.byEnd[n])
		n++
	}
	over := slices.Clone(tt.byEnd[:n])
	tt.byEnd = slices.Delete(tt.byEnd, 0, n)
	if !tt.closed {
		tt.schedule()
	}
	tt.mu.Unlock()
	for _, t := range over {
		t.expire()
	}
}

// expire ends a task with a time that is over.
func (t *task) expire() {
	e := failure(errTaskExpired)
	e.unstored = true // its record expires, too
	_, _ = t.settle(e)
}

func (tt *taskTable) forgetLocked(t *task) {
	delete(tt.byID, t.id)
	tt.held.Give(t.owner, 1)
}

// find returns the task of an owner, or nil.
func (tt *taskTable) find(id string, o owner.Key) *task {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	t := tt.byID[id]
	if t == nil || t.owner != o || !t.expiry().After(time.Now()) {
		return nil
	}
	return t
}

// all returns the tasks that there are.
func (tt *taskTable) all() []*task {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return slices.Clone(tt.byEnd)
}

// after returns the tasks of an owner that are younger than the one of that
// number, the oldest first, and no more than n. An address may be that of several
// callers: what belongs to it is found by its id only.
func (tt *taskTable) after(number uint64, o owner.Key, n int) []*task {
	if !o.Exclusive() {
		return nil
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	var own []*task
	for _, t := range tt.byEnd {
		if t.owner == o && t.number > number {
			own = append(own, t)
		}
	}
	slices.SortFunc(own, func(a, b *task) int { return int(a.number) - int(b.number) })
	return own[:min(n, len(own))]
}

// endOwner ends and forgets the tasks of a session or connection that has ended:
// they cannot be asked for any more.
func (tt *taskTable) endOwner(o owner.Key) {
	if o.Authenticated() || !o.Exclusive() {
		return
	}
	gone := tt.remove(func(t *task) bool { return t.owner == o })
	for _, t := range gone {
		e := cancellation(errTaskCancelled)
		e.unstored = true
		_, _ = t.settle(e)
		t.unstore()
	}
}

// close ends all tasks. There will be no more.
func (tt *taskTable) close() {
	gone := tt.remove(func(*task) bool { return true })
	var ends sync.WaitGroup
	room := make(chan struct{}, closers)
	for _, t := range gone {
		room <- struct{}{}
		ends.Go(func() {
			defer func() { <-room }()
			if t.leave(true) {
				return
			}
			e := cancellation(errTaskClosed)
			if _, err := t.stop(e); err != nil { // the next process finds that it was interrupted
				e.unstored = true
				_, _ = t.settle(e)
			}
		})
	}
	ends.Wait()
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.closed = true
	if tt.timer != nil {
		tt.timer.Stop()
	}
}

// wait waits until the tasks that there are have ended.
func (tt *taskTable) wait(ctx context.Context) error {
	for _, t := range tt.all() {
		for {
			changed, ended := t.watch()
			if ended || t.asleep() {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (tt *taskTable) remove(which func(*task) bool) (gone []*task) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.byEnd = slices.DeleteFunc(tt.byEnd, func(t *task) bool {
		if !which(t) {
			return false
		}
		tt.forgetLocked(t)
		gone = append(gone, t)
		return true
	})
	return gone
}
