package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/store"
)

// simSkew is by how much clocks of a simulated cluster differ, at most.
const simSkew = time.Minute

// chance is random numbers for several goroutines.
type chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *chance) n(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(most)
}

// upTo returns a time below most.
func (c *chance) upTo(most time.Duration) time.Duration {
	return time.Duration(c.n(int(most/time.Millisecond))) * time.Millisecond
}

// A wall holds up what would pass it while it is shut.
type wall struct {
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil: it is open
}

// set shuts the wall, or opens it.
func (w *wall) set(shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case shut && w.shut == nil:
		w.shut = make(chan struct{})
	case !shut && w.shut != nil:
		close(w.shut)
		w.shut = nil
	}
}

// is reports whether the wall is shut; opened is closed when it is not any more.
func (w *wall) is() (shut bool, opened <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shut != nil, w.shut
}

// pass waits until all walls are open, or one of the ends.
func pass(walls []*wall, ends ...<-chan struct{}) {
	never := make(chan struct{})
	for len(ends) < 2 {
		ends = append(ends, never)
	}
	for _, w := range walls {
		if shut, opened := w.is(); shut {
			select {
			case <-opened:
			case <-ends[0]:
				return
			case <-ends[1]:
				return
			}
		}
	}
}

// A simConn is one end of a connection between simulated nodes.
type simConn struct {
	net.Conn
	walls []*wall
	delay func() time.Duration
	done  chan struct{}
	once  sync.Once
}

func (c *simConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	pass(c.walls, c.done) // the end of a connection does not pass a wall either
	return n, err
}

func (c *simConn) Write(p []byte) (int, error) {
	if d := c.delay(); d > 0 {
		select {
		case <-time.After(d):
		case <-c.done:
		}
	}
	pass(c.walls, c.done)
	return c.Conn.Write(p)
}

func (c *simConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// A simListener is where a simulated node listens.
type simListener struct {
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func newSimListener() *simListener {
	return &simListener{accept: make(chan net.Conn), done: make(chan struct{})}
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *simListener) Addr() net.Addr { return &net.TCPAddr{} }

var errRefused = errors.New("connection refused")

// dial connects to the listener through walls, in dialTime.
func (l *simListener) dial(
	ctx context.Context, walls []*wall, delay func() time.Duration,
) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if pass(walls, ctx.Done()); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	here, there := net.Pipe()
	ends := [2]*simConn{}
	for i, c := range []net.Conn{here, there} {
		ends[i] = &simConn{Conn: c, walls: walls, delay: delay, done: make(chan struct{})}
	}
	select {
	case l.accept <- ends[1]:
		return ends[0], nil
	case <-l.done:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A simStore is the way of one process to the shared store. Operations take time, fail, and have
// unknown outcomes: with all of their effect, none, or their effect later.
type simStore struct {
	store.Store
	w    *world
	walk []*wall // on the way
	// alone makes its claims those of this process.
	alone string
	// Operations take no time: tasks wait for some of them with a mutex, and the time of a bubble
	// stands still while a goroutine waits for that.
	prompt bool
	dead   atomic.Bool
	late   sync.WaitGroup

	mu     sync.Mutex
	missed bool // messages, because the way was shut
	told   []func(store.Message)
}

var errNoAnswer = errors.New("no answer in time")

// operate does one operation.
func simOperation[T any](
	ctx context.Context, s *simStore, do func(context.Context) (T, error),
) (v T, err error) {
	var none T
	if s.dead.Load() {
		return none, store.ErrClosed
	}
	if err := s.arrive(ctx); err != nil {
		return none, err
	}
	lost := s.w.lossy.Load() && s.w.chance.n(8) == 0
	switch {
	case s.dead.Load():
		return none, store.ErrClosed
	case lost && s.w.chance.n(2) == 0:
		s.late.Go(func() {
			<-time.After(s.w.chance.upTo(2 * time.Second))
			_, _ = do(context.WithoutCancel(ctx))
		})
		return none, errNoAnswer
	}
	v, err = do(context.WithoutCancel(ctx))
	switch {
	case err == nil && (lost || s.dead.Load()):
		return none, errNoAnswer
	case ctx.Err() != nil:
		return none, ctx.Err()
	}
	return v, err
}

// arrive waits until an operation is at the store.
func (s *simStore) arrive(ctx context.Context) error {
	if !s.prompt {
		select {
		case <-time.After(s.w.chance.upTo(s.w.slowness())):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, wall := range s.walk {
		shut, opened := wall.is()
		switch {
		case !shut:
			continue
		case s.w.chance.n(2) == 0:
			return store.ErrUnavailable
		case s.prompt:
			return errNoAnswer
		}
		wait, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		select {
		case <-opened:
		case <-wait.Done():
			return errNoAnswer
		}
	}
	return nil
}

func (s *simStore) Claim(ctx context.Context, key string, until time.Time) (bool, error) {
	return simOperation(ctx, s, func(ctx context.Context) (bool, error) {
		return s.Store.Claim(ctx, key+s.alone, until.Add(simSkew)) // as the engines do
	})
}

func (s *simStore) Release(ctx context.Context, key string) error {
	_, err := simOperation(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Store.Release(ctx, key+s.alone)
	})
	return err
}

func (s *simStore) Since(ctx context.Context) (time.Time, error) {
	return simOperation(ctx, s, s.Store.Since)
}

func (s *simStore) Put(ctx context.Context, r *store.Record) (uint64, error) {
	kept := *r
	return simOperation(ctx, s, func(ctx context.Context) (uint64, error) {
		return s.Store.Put(ctx, &kept)
	})
}

func (s *simStore) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	return simOperation(ctx, s, func(ctx context.Context) (*store.Record, error) {
		return s.Store.Get(ctx, owner, id)
	})
}

func (s *simStore) Delete(ctx context.Context, owner, id string) error {
	_, err := simOperation(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Store.Delete(ctx, owner, id)
	})
	return err
}

// off reports whether no message passes now.
func (s *simStore) off() bool {
	for _, w := range s.walk {
		if shut, _ := w.is(); shut {
			return true
		}
	}
	return s.dead.Load()
}

func (s *simStore) Publish(ctx context.Context, topic string, data []byte) error {
	if s.off() {
		return store.ErrUnavailable
	}
	return s.Store.Publish(ctx, topic, data)
}

func (s *simStore) Subscribe(
	ctx context.Context, topic string, receive func(store.Message),
) (func(), error) {
	one := func(m store.Message) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.off() {
			s.missed = true
			return
		}
		receive(m)
	}
	s.mu.Lock()
	s.told = append(s.told, receive)
	s.mu.Unlock()
	return s.Store.Subscribe(ctx, topic, one)
}

// heal tells subscribers that they may have missed messages.
func (s *simStore) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missed && !s.dead.Load() {
		s.missed = false
		for _, receive := range s.told {
			receive(store.Message{Gap: true})
		}
	}
}
