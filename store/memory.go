package store

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	defaultKeys  = 64 << 20
	defaultLease = 30 * time.Second

	// backlog is how many messages wait for a slow subscriber; more are a gap.
	backlog = 256
)

// A Memory is a [Store] for one process: it ends with the process.
type Memory struct {
	*Local // the records

	began time.Time
	lease time.Duration
	done  chan struct{} // closed by Close
	wait  sync.WaitGroup

	mu      sync.Mutex
	ended   bool
	claims  *keys
	sums    *keys
	queues  map[string]*queue
	queued  int // bytes
	maximum int // of queued
	topics  map[string][]*subscriber
}

var _ Store = (*Memory)(nil)

// NewMemory returns a store for one process. MaxBytes of its options bounds the records, and
// separately the items of queues; claims and counters have 64 MiB each, about 300,000 keys.
func NewMemory(o *Options) *Memory {
	o = cmp.Or(o, &Options{})
	return &Memory{
		Local: New(o), began: time.Now(), lease: cmp.Or(o.Lease, defaultLease),
		done: make(chan struct{}), claims: newKeys(defaultKeys), sums: newKeys(defaultKeys),
		queues: map[string]*queue{}, maximum: cmp.Or(o.MaxBytes, defaultMemory),
		topics: map[string][]*subscriber{},
	}
}

// Close implements [Store].
func (m *Memory) Close() error {
	m.mu.Lock()
	if !m.ended {
		m.ended = true
		close(m.done)
	}
	m.mu.Unlock()
	m.wait.Wait()
	return m.Local.Close()
}

// Claim implements [Once].
func (m *Memory) Claim(_ context.Context, key string, until time.Time) (bool, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		return false, ErrClosed
	case !until.After(now):
		return false, ErrPast
	case m.claims.get(key, now) != nil:
		return false, nil
	case m.claims.add(key, until, now) == nil:
		return false, ErrFull
	}
	return true, nil
}

// Release implements [Once].
func (m *Memory) Release(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return ErrClosed
	}
	m.claims.remove(key)
	return nil
}

// Since implements [Once]: when NewMemory was called.
func (m *Memory) Since(context.Context) (time.Time, error) { return m.began, nil }

// Take implements [Counter].
func (m *Memory) Take(
	_ context.Context, key string, n, limit int64, until time.Time,
) (int64, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		return 0, ErrClosed
	case !until.After(now):
		return 0, ErrPast
	}
	k := m.sums.get(key, now)
	if k == nil {
		k = m.sums.add(key, until, now)
	}
	if k == nil {
		return 0, ErrFull
	}
	granted := max(min(n, limit-k.n), 0)
	k.n += granted
	return granted, nil
}

// Give implements [Counter].
func (m *Memory) Give(_ context.Context, key string, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return ErrClosed
	}
	if k := m.sums.get(key, time.Now()); k != nil {
		k.n = max(k.n-n, 0)
	}
	return nil
}

// subscriber is one Subscribe of a topic.
type subscriber struct {
	topic    string
	messages chan Message
	stop     chan struct{}
	gap      bool // under the lock of its Memory: a message was lost
}

// Publish implements [Bus].
func (m *Memory) Publish(_ context.Context, topic string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return ErrClosed
	}
	data = slices.Clone(data)
	for _, s := range m.topics[topic] {
		s.sendLocked(Message{Data: data})
	}
	return nil
}

// sendLocked queues a message, and the note of a gap before it.
func (s *subscriber) sendLocked(msg Message) {
	if s.gap && len(s.messages) < cap(s.messages)-1 {
		s.messages <- Message{Gap: true}
		s.gap = false
	}
	select {
	case s.messages <- msg:
	default:
		s.gap = true
	}
}

// Subscribe implements [Bus].
func (m *Memory) Subscribe(_ context.Context, topic string, receive func(Message)) (func(), error) {
	s := &subscriber{topic: topic, messages: make(chan Message, backlog), stop: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, ErrClosed
	}
	m.topics[topic] = append(m.topics[topic], s)
	ended := make(chan struct{})
	m.wait.Go(func() {
		defer close(ended)
		m.deliver(s, receive)
	})
	return sync.OnceFunc(func() {
		m.mu.Lock()
		is := func(o *subscriber) bool { return o == s }
		m.topics[topic] = slices.DeleteFunc(m.topics[topic], is)
		if len(m.topics[topic]) == 0 {
			delete(m.topics, topic)
		}
		m.mu.Unlock()
		close(s.stop)
		<-ended
	}), nil
}

// deliver calls receive until the subscription or the store ends. When all that waited is
// delivered, it reports a gap at the end.
func (m *Memory) deliver(s *subscriber, receive func(Message)) {
	for {
		select {
		case <-s.stop:
			return
		case <-m.done:
			return
		case msg := <-s.messages:
			receive(msg)
		}
		m.mu.Lock()
		gap := s.gap && len(s.messages) == 0
		if gap {
			s.gap = false
		}
		m.mu.Unlock()
		if gap {
			receive(Message{Gap: true})
		}
	}
}
