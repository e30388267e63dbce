package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/mcp"
)

// A State says what becomes of a server.
type State string

const (
	// Starting is the state of a server that is being connected with, for the first time or again.
	// Calls wait.
	Starting State = "starting"
	// Ready is the state of a server that is connected and with lists that are known.
	Ready State = "ready"
	// Failed is the state of a server that could not be started, or with a connection that was lost.
	Failed State = "failed"
	// Stopped is the state of a server that is disabled, or was ended by [Host.Apply] or [Host.Close].
	Stopped State = "stopped"
)

// A Status is the state of a server, with its reason.
type Status struct {
	Name  string
	State State
	Since time.Time // of the state
	// Err is why the last start or connection failed, also when the server is ready again; nil: none
	// did. It wraps a *stream.ExitError where a child has ended.
	Err error
	// Failures is how often in a row it has failed, and Retry when it is started again; the
	// zero time: only by [Host.Restart].
	Failures int
	Retry    time.Time
	// Server is what the server says of itself, with the revision that is spoken; nil: it was never
	// ready.
	Server *mcp.ServerInfo
	// Stderr is the end, 4 KiB at most, of what the last child has written to its standard error,
	// fit to be shown.
	Stderr string
}

// steady is how long a server has to be ready for its failures to be forgotten.
const steady = 30 * time.Second

// errRestart is the cause of the end of a life that Restart has ended.
var errRestart = errors.New("host: restarted")

// A member is one server of a host. Its goroutine, run, owns the connection: it makes it, keeps
// the lists of it, and ends it. A life is one round through these states:
//
//	Apply adds it
//	     │
//	     ▼              Restart, or the delay is over
//	  Starting ◄──────────────────────────────────────────┐
//	     │  │                                             │
//	     │  └─ not connected within StartTimeout ──────► Failed
//	     ▼                                                ▲
//	   Ready ── the connection is lost ───────────────────┘
//
// Restart leads from each to Starting, Apply and Close to Stopped, from which nothing leads.
// Only setLocked changes the state. Other goroutines call the server through conn, while the
// state is Ready, and end a life by its cancel function.
type member struct {
	h    *Host
	cfg  *Server
	ctx  context.Context //nolint:containedctx // ends when the member is to be ended
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
	err  tail          // standard error of the last child
	proc atomic.Pointer[os.Process]

	// Under the host's lock.
	state    State
	since    time.Time
	changed  chan struct{} // closed at the next change of the state
	epoch    uint64        // counts lives
	end      context.CancelCauseFunc
	failure  error
	failures int
	retry    time.Time
	info     *mcp.ServerInfo
	conn     *conn // not nil if and only if the state is Ready
	lists    catalog
}

func newMember(h *Host, cfg *Server) *member {
	m := &member{
		h: h, cfg: cfg, state: Stopped, since: time.Now(), changed: make(chan struct{}),
		done: make(chan struct{}),
	}
	m.ctx, m.stop = context.WithCancel(h.ctx)
	return m
}

// run lives until the member is to be ended, and begins after another one has ended.
func (m *member) run(after *member) {
	defer m.over()
	if after != nil {
		<-after.done
	}
	for m.ctx.Err() == nil {
		life, end := context.WithCancelCause(m.ctx)
		m.begin(end)
		c, err := m.live(life)
		delay := m.ended(life, err)
		if c != nil {
			c.close()
		}
		if errors.Is(context.Cause(life), errRestart) {
			delay = 0
		}
		pause(life, delay)
		if errors.Is(context.Cause(life), errRestart) {
			m.forgive()
		}
		end(nil)
	}
}

// over is the end of a member.
func (m *member) over() {
	m.stop()
	h := m.h
	h.mu.Lock()
	defer h.mu.Unlock()
	m.retry = time.Time{}
	m.setLocked(Stopped, nil)
	delete(h.ending, m)
	close(m.done)
}

// begin begins a life.
func (m *member) begin(end context.CancelCauseFunc) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.epoch++
	m.end, m.retry = end, time.Time{}
	if m.state != Starting || m.epoch == 1 {
		m.setLocked(Starting, nil)
	}
}

// live connects and keeps the connection. It returns why the life has ended, and the connection, if
// there was one, which is to be closed.
func (m *member) live(life context.Context) (*conn, error) {
	c, lists, err := m.connect(life)
	if err != nil {
		return nil, err
	}
	m.ready(c, lists)
	return c, m.attend(life, c)
}

func (m *member) ready(c *conn, lists catalog) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.info, m.lists = c.client.Server(), lists
	m.setLocked(Ready, c)
}

// ended notes the end of a life and returns after which delay the next one begins; negative: only
// when Restart ends this one.
func (m *member) ended(life context.Context, err error) (delay time.Duration) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	if life.Err() != nil {
		if m.ctx.Err() == nil {
			m.setLocked(Starting, nil)
		}
		return 0
	}
	now, o := time.Now(), &m.h.opts
	if m.state == Ready && now.Sub(m.since) >= steady {
		m.failures = 0
	}
	m.failures++
	m.failure = err
	if delay = o.delay(m.failures); delay >= 0 {
		m.retry = now.Add(delay)
	}
	m.setLocked(Failed, nil)
	return delay
}

// delay is how long a server waits that has failed so often in a row; negative: for ever.
func (o *Options) delay(failures int) time.Duration {
	if o.MaxFailures > 0 && failures >= o.MaxFailures {
		return -1
	}
	return backoff.Delay(failures, o.MinDelay, o.MaxDelay)
}

// pause waits, for ever when d is negative, until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d < 0 {
		<-ctx.Done()
		return
	}
	_ = backoff.Sleep(ctx, d) // its caller looks at the context
}

// forgive forgets the failures.
func (m *member) forgive() {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.failures = 0
}

// setLocked changes the state, and what follows from it. c is the connection of Ready.
func (m *member) setLocked(s State, c *conn) {
	was := m.conn
	m.state, m.since, m.conn = s, time.Now(), c
	close(m.changed)
	m.changed = make(chan struct{})
	m.h.tell.status(m.statusLocked)
	m.h.merged.dropLocked(allKinds) // at least what is missing has changed
	if was != nil || c != nil {
		m.h.tell.changed(allKinds)
	}
}

func (m *member) statusLocked() Status {
	return Status{
		Name: m.cfg.Name, State: m.state, Since: m.since, Err: m.failure, Failures: m.failures,
		Retry:  m.retry,
		Server: m.info, Stderr: m.err.String(),
	}
}

// unreadyLocked is why a server cannot be called.
func (m *member) unreadyLocked() error {
	switch {
	case m.h.closed:
		return errClosed
	case m.cfg.Disabled:
		return fmt.Errorf("%w: %s is disabled", ErrNotReady, m.cfg.Name)
	case m.failure == nil:
		return fmt.Errorf("%w: %s is %s", ErrNotReady, m.cfg.Name, m.state)
	case m.state == Failed && m.retry.IsZero():
		return fmt.Errorf("%w: %s has failed %d times in a row and is started again by Restart only: %w",
			ErrNotReady, m.cfg.Name, m.failures, m.failure)
	}
	return fmt.Errorf("%w: %s is %s: %w", ErrNotReady, m.cfg.Name, m.state, m.failure)
}

// kill kills the child, if there is one. Its group follows.
func (m *member) kill() {
	if p := m.proc.Load(); p != nil {
		_ = p.Kill() // an error says that it has ended
	}
}

// maxWaiting bounds the statuses that wait for OnStatus.
const maxWaiting = 1024

// A teller calls OnStatus and OnChange, in its own goroutine so that no server waits for them.
type teller struct {
	onStatus func(Status)
	onChange func(kind string)
	wake     chan struct{} // has one element when there is something to tell
	done     chan struct{}

	mu       sync.Mutex
	over     bool
	statuses []Status
	kinds    kinds
}

func (t *teller) start(h *Host) {
	t.onStatus, t.onChange = h.opts.OnStatus, h.opts.OnChange
	t.wake, t.done = make(chan struct{}, 1), make(chan struct{})
	if t.onStatus == nil && t.onChange == nil {
		close(t.done)
		return
	}
	go t.run()
}

// status reports a status, which is not made without a callback.
func (t *teller) status(of func() Status) {
	if t.onStatus == nil {
		return
	}
	s := of()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.statuses) >= maxWaiting {
		t.statuses = t.statuses[1:]
	}
	t.statuses = append(t.statuses, s)
	t.awake()
}

func (t *teller) changed(k kinds) {
	if t.onChange == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kinds |= k
	t.awake()
}

func (t *teller) awake() { offer(t.wake, struct{}{}) }

// end tells what there still is and waits for it. No more events may follow.
func (t *teller) end() {
	t.mu.Lock()
	t.over = true
	t.awake()
	t.mu.Unlock()
	<-t.done
}

func (t *teller) run() {
	defer close(t.done)
	for {
		t.mu.Lock()
		statuses, k, over := t.statuses, t.kinds, t.over
		t.statuses, t.kinds = nil, 0
		t.mu.Unlock()
		if len(statuses) == 0 && k == 0 {
			if over {
				return
			}
			<-t.wake
			continue
		}
		if t.onStatus != nil {
			for _, s := range statuses {
				t.onStatus(s)
			}
		}
		for _, list := range []string{"tools", "prompts", "resources"} {
			if t.onChange != nil && k&kindsOf(list) != 0 {
				t.onChange(list)
			}
		}
	}
}
