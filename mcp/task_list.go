package mcp

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/store"
)

// maxListed bounds the tasks of one owner that can be listed, so that their list fits into a
// record.
const maxListed = 5000

// A taskList is a record with the tasks of an owner, for tasks/list.
type taskList struct {
	Last  uint64       `json:"last"`
	Tasks []listedTask `json:"tasks"`
}

type listedTask struct {
	Number uint64    `json:"n"`
	ID     string    `json:"id"`
	Until  time.Time `json:"until"`
}

// list reads the list of an owner.
func (x *sharing) list(ctx context.Context, o owner.Key) (l taskList, r *store.Record, err error) {
	name, group := x.srv.storedOwner(o)
	if group == "" {
		group = name
	}
	r, err = x.srv.opts.Shared.Get(ctx, "list\x00"+name, "tasks")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return l, &store.Record{Owner: "list\x00" + name, Group: group, ID: "tasks"}, nil
	case err != nil:
		return l, nil, err
	}
	err = jsonv2.Unmarshal(r.Value, &l)
	now := time.Now()
	l.Tasks = slices.DeleteFunc(l.Tasks, func(e listedTask) bool { return !e.Until.After(now) })
	again := *r
	return l, &again, err
}

// enlist gives a task its number among those of its owner at all servers, and adds it to their
// list. An address, which may be that of several callers, has none. The record of the task is
// written after that: what is listed without one does not exist.
func (t *task) enlist() error {
	if !t.shared() {
		return nil
	}
	if err := t.srv.shared.start(); err != nil || !t.owner.Exclusive() {
		return err
	}
	return t.relist(func(l *taskList) error {
		if len(l.Tasks) >= min(ownerShare(t.srv.opts.MaxTasks), maxListed) {
			return errManyTasks
		}
		l.Last++
		t.number = l.Last
		l.Tasks = append(l.Tasks, listedTask{l.Last, t.id, t.expiry()})
		return nil
	})
}

// delist takes the task from the list again: it could not be stored.
func (t *task) delist() {
	if t.shared() && t.owner.Exclusive() {
		t.srv.shared.logged(t.relist(func(l *taskList) error {
			l.Tasks = slices.DeleteFunc(l.Tasks, func(e listedTask) bool { return e.ID == t.id })
			return nil
		}))
	}
}

// relist changes the list of the task's owner.
func (t *task) relist(change func(*taskList) error) error {
	x := t.srv.shared
	lock := &x.listing[crc32.ChecksumIEEE([]byte(t.owner.Text()))%listLocks]
	lock.Lock()
	defer lock.Unlock()
	ctx, cancel := storing()
	defer cancel()
	for range swaps {
		l, r, err := x.list(ctx, t.owner)
		if err == nil {
			err = change(&l)
		}
		if err != nil {
			return err
		}
		if t.expiry().After(r.Expires) {
			r.Expires = t.expiry()
		}
		if r.Value, err = jsonv2.Append(nil, &l); err == nil {
			_, err = x.srv.opts.Shared.Put(ctx, r)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// after returns the tasks of an owner that are younger than the one of that number, the oldest
// first, and no more than n.
func (x *sharing) after(number uint64, o owner.Key, n int) (own []*task, err error) {
	if !o.Exclusive() {
		return nil, nil
	}
	ctx, cancel := storing()
	defer cancel()
	l, _, err := x.list(ctx, o)
	for _, e := range l.Tasks {
		if err != nil || len(own) == n {
			break
		}
		if e.Number <= number {
			continue
		}
		var t *task
		switch t, err = x.srv.findTask(o, e.ID, false); {
		case errors.Is(err, store.ErrNotFound):
			err = nil
		case t != nil && err == nil:
			own = append(own, t)
		}
	}
	return own, err
}

// discardTasks ends and forgets the shared tasks of a session that its client has ended, at
// whichever server they run.
func (s *Server) discardTasks(o owner.Key) {
	if !s.shares(o) || o.Authenticated() {
		return
	}
	all, err := s.shared.after(0, o, maxListed)
	s.shared.logged(err)
	for _, t := range all {
		if _, err := t.stop(cancellation(errTaskCancelled)); err == nil {
			t.unstore()
		}
	}
}
