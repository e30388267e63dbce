package store

import (
	"context"
	"slices"
	"time"
)

// queue is one queue of a Memory, under its lock.
//
//	waiting ──Pull──> leased ──Done──> removed
//	   ^                │
//	   └─ Return, or the lease ends
type queue struct {
	waiting []*item
	leased  []*item
	changed chan struct{} // closed, and replaced, when an item begins to wait
}

type item struct {
	m     *Memory
	queue *queue
	data  []byte
	// attempt and until are those of the latest lease.
	attempt int
	until   time.Time
}

// lease is one lease of an item.
type lease struct {
	*item
	attempt int
}

// queueLocked returns a queue, which it makes.
func (m *Memory) queueLocked(name string) *queue {
	q := m.queues[name]
	if q == nil {
		q = &queue{changed: make(chan struct{})}
		m.queues[name] = q
	}
	return q
}

// Push implements [Queue].
func (m *Memory) Push(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		return ErrClosed
	case len(data)+keyCost > m.maximum-m.queued:
		return ErrFull
	}
	m.queued += len(data) + keyCost
	q := m.queueLocked(name)
	q.waiting = append(q.waiting, &item{m: m, queue: q, data: slices.Clone(data)})
	q.wakeLocked()
	return nil
}

func (q *queue) wakeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Pull implements [Queue].
func (m *Memory) Pull(ctx context.Context, name string) (Item, error) {
	for {
		m.mu.Lock()
		if m.ended {
			m.mu.Unlock()
			return nil, ErrClosed
		}
		q := m.queueLocked(name)
		now := time.Now()
		next := q.lapseLocked(now)
		if len(q.waiting) > 0 {
			i := q.waiting[0]
			q.waiting[0] = nil
			q.waiting = q.waiting[1:]
			q.leased = append(q.leased, i)
			i.attempt++
			i.until = now.Add(m.lease)
			l := &lease{item: i, attempt: i.attempt}
			m.mu.Unlock()
			return l, nil
		}
		changed := q.changed
		m.mu.Unlock()
		var lapse <-chan time.Time
		var timer *time.Timer
		if !next.IsZero() {
			timer = time.NewTimer(next.Sub(now))
			lapse = timer.C
		}
		err := error(nil)
		select {
		case <-changed:
		case <-lapse:
		case <-m.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if timer != nil {
			timer.Stop()
		}
		if err != nil {
			return nil, err
		}
	}
}

// lapseLocked lets items wait again when their leases have ended, and returns when the next one
// ends.
func (q *queue) lapseLocked(now time.Time) (next time.Time) {
	var lapsed []*item
	q.leased = slices.DeleteFunc(q.leased, func(i *item) bool {
		if !i.until.After(now) {
			lapsed = append(lapsed, i)
			return true
		}
		if next.IsZero() || i.until.Before(next) {
			next = i.until
		}
		return false
	})
	q.waiting = append(lapsed, q.waiting...)
	return next
}

// Data implements [Item].
func (l *lease) Data() []byte { return l.data }

// Attempt implements [Item].
func (l *lease) Attempt() int { return l.attempt }

// Done implements [Item]. It removes the item also when the lease has ended: the work is done.
func (l *lease) Done(context.Context) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.ended {
		return ErrClosed
	}
	is := func(i *item) bool { return i == l.item }
	before := len(l.queue.waiting) + len(l.queue.leased)
	l.queue.waiting = slices.DeleteFunc(l.queue.waiting, is)
	l.queue.leased = slices.DeleteFunc(l.queue.leased, is)
	if before > len(l.queue.waiting)+len(l.queue.leased) {
		l.m.queued -= len(l.data) + keyCost
	}
	return nil
}

// Extend implements [Item].
func (l *lease) Extend(context.Context) error {
	return l.change(func() { l.until = time.Now().Add(l.m.lease) })
}

// Return implements [Item].
func (l *lease) Return(context.Context) error {
	return l.change(func() {
		l.until = time.Time{}
		l.queue.wakeLocked()
	})
}

// change changes the lease, unless it has ended.
func (l *lease) change(do func()) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	switch {
	case l.m.ended:
		return ErrClosed
	case l.item.attempt != l.attempt || !slices.Contains(l.queue.leased, l.item):
		return ErrNotFound
	}
	do()
	return nil
}
