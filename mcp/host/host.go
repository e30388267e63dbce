package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var (
	// ErrUnknown is wrapped by the failure of a call to a server that is not configured, and to
	// a name without one.
	ErrUnknown = errors.New("host: unknown server")
	// ErrNotReady is wrapped by the failure of a call to a server that is [Failed] or [Stopped],
	// beside the reason.
	ErrNotReady = errors.New("host: the server is not ready")
)

// errClosed is what the methods of a closed host fail with.
var errClosed = fmt.Errorf("%w: the host is closed", ErrNotReady)

// Options adjust a Host. Nil and the zero value mean the defaults. They are copied.
type Options struct {
	// Client adjusts the client of each server: its Name, Version, Era, Timeout, Capabilities,
	// Tasks, LogLevel and so on. What the host does itself is ignored there: all callbacks but
	// OnTask, OnElicitationComplete and OnNotification; Redial, NoCache and HTTP.Header.
	Client *mcp.ClientOptions

	// Elicit, Sample and Roots answer what the named server asks, as those of
	// [mcp.ClientOptions] do. What is nil is not offered to servers.
	Elicit func(
		ctx context.Context, server string, p *spec.ElicitRequestParams,
	) (*spec.ElicitResult, error)
	Sample func(
		ctx context.Context, server string, p *spec.CreateMessageRequestParams,
	) (*spec.CreateMessageResult, error)
	Roots func(ctx context.Context, server string) ([]mcp.Root, error)
	// OnLog gets the messages of the named server's log.
	OnLog func(server string, p *spec.LoggingMessageNotificationParams)

	// OnStatus is called after each change of the state of a server, and OnChange when a merged
	// list may have changed: "tools", "prompts" or "resources", which are also the templates.
	// One goroutine calls both, in order. They may call all methods of the host but Close. While
	// one of them does not return, at most 1,024 statuses wait, and further ones replace the
	// oldest; changes of one list are reported as one.
	OnStatus func(Status)
	OnChange func(kind string)

	// StartTimeout bounds a start: the process, the connection and the first lists. Default 60 s,
	// because npx and uvx fetch a package first.
	StartTimeout time.Duration
	// MinDelay and MaxDelay bound the delay before a server is started again, which doubles with
	// each failure in a row and varies by half. Default 500 ms and 30 s. A server that was ready
	// for 30 s has not failed in a row.
	MinDelay, MaxDelay time.Duration
	// MaxFailures is after how many failures in a row a server is not started again, except by
	// [Host.Restart]. Default 10; negative: no bound.
	MaxFailures int
	// Ping is how often a server over HTTP is pinged. A connection of another kind reports when
	// it ends. Default 30 s; negative: never.
	Ping time.Duration

	// Logger gets what is wrong but fails no call. Default: [slog.Default].
	Logger *slog.Logger
}

// A Host uses many MCP servers. Its methods may be called by any number of goroutines at once.
//
// Each server has a member. Its goroutine alone makes and ends its connections; see there for the
// states. The lock guards the members and what is known of them. It is never held while a server
// is asked or a callback runs.
type Host struct {
	opts  Options
	ctx   context.Context //nolint:containedctx // ends with Close
	stop  context.CancelFunc
	tasks sync.WaitGroup // members, also removed ones
	tell  teller

	mu      sync.Mutex
	closed  bool
	members map[string]*member // by name
	order   []*member          // as configured
	ending  map[*member]struct{}
	merged  merged
}

// New returns a host that has begun to start the servers, and does not wait for them: see
// [Host.Wait]. An error says what is wrong with one of them; then nothing is started. The
// values of the context are in that of each callback; its end does not end the host.
func New(ctx context.Context, servers []Server, o *Options) (*Host, error) {
	h := &Host{members: map[string]*member{}, ending: map[*member]struct{}{}}
	h.opts = *cmp.Or(o, &Options{})
	h.opts.StartTimeout = cmp.Or(h.opts.StartTimeout, time.Minute)
	h.opts.MinDelay = max(cmp.Or(h.opts.MinDelay, 500*time.Millisecond), time.Millisecond)
	h.opts.MaxDelay = max(cmp.Or(h.opts.MaxDelay, 30*time.Second), h.opts.MinDelay)
	h.opts.MaxFailures = cmp.Or(h.opts.MaxFailures, 10)
	h.opts.Ping = cmp.Or(h.opts.Ping, 30*time.Second)
	h.opts.Logger = cmp.Or(h.opts.Logger, slog.Default())
	if err := check(servers); err != nil {
		return nil, err
	}
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.tell.start(h)
	return h, h.Apply(servers)
}

// check refuses servers that are not valid, and those that have one name.
func check(servers []Server) error {
	first := map[string]string{}
	for i := range servers {
		s := &servers[i]
		if field, err := s.check(); err != nil {
			return fmt.Errorf("host: server %q: %w", strings.TrimSuffix(s.Name+"."+field, "."), err)
		}
		key := strings.ToLower(s.Name)
		if other, twice := first[key]; twice {
			return fmt.Errorf("host: two servers are named %q and %q: names differ in more than case",
				other, s.Name)
		}
		first[key] = s.Name
	}
	return nil
}

// Apply makes the host use these servers and no others. Those that are unchanged are not
// touched. Those that are gone, or configured in another way, are ended: their calls in flight
// fail. It does not wait: one that takes the place of another is started when that has ended. An
// error says what is wrong; then nothing has changed.
func (h *Host) Apply(servers []Server) error {
	if err := check(servers); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	old := h.members
	h.members, h.order = make(map[string]*member, len(servers)), make([]*member, 0, len(servers))
	for i := range servers {
		cfg := servers[i].clone()
		m := old[cfg.Name]
		delete(old, cfg.Name)
		if m == nil || !m.cfg.same(cfg) {
			m = h.addLocked(cfg, m)
		}
		h.members[cfg.Name] = m
		h.order = append(h.order, m)
	}
	for _, m := range old {
		h.endLocked(m)
	}
	h.merged.dropLocked(allKinds)
	h.tell.changed(allKinds)
	return nil
}

// addLocked makes a member, which begins when the one with the place that it takes has ended.
func (h *Host) addLocked(cfg *Server, instead *member) *member {
	m := newMember(h, cfg)
	if instead != nil {
		h.endLocked(instead)
	}
	if cfg.Disabled {
		close(m.done)
		return m
	}
	m.state = Starting
	h.tasks.Go(func() { m.run(instead) })
	return m
}

// endLocked ends a member that is not one of the host any more.
func (h *Host) endLocked(m *member) {
	m.stop()
	select {
	case <-m.done:
	default:
		h.ending[m] = struct{}{}
	}
}

// Restart ends the connection of a server, with its calls in flight, and starts it again at
// once, whatever its state. It returns when the server is ready, or the reason why it is not. A
// server that had failed too often is started again as if it had not.
func (h *Host) Restart(ctx context.Context, server string) error {
	h.mu.Lock()
	m := h.members[server]
	if m == nil {
		h.mu.Unlock()
		return unknown(server)
	}
	if m.cfg.Disabled || h.closed {
		err := m.unreadyLocked()
		h.mu.Unlock()
		return err
	}
	epoch := m.epoch
	if m.end != nil {
		m.end(errRestart)
	}
	for m.epoch == epoch || m.state == Starting {
		if m.state == Stopped {
			break
		}
		changed := m.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("host: restart %s: %w", server, ctx.Err())
		}
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	if m.state == Ready {
		return nil
	}
	return m.unreadyLocked()
}

// Wait returns when no server is [Starting], which says that each is ready, has failed or is
// disabled, or with the error of the context.
func (h *Host) Wait(ctx context.Context) error {
	for {
		changed := h.starting()
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("host: wait: %w", ctx.Err())
		}
	}
}

// starting returns what is closed when the state of a server that starts changes; nil: none starts.
func (h *Host) starting() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.order {
		if m.state == Starting {
			return m.changed
		}
	}
	return nil
}

// Status returns the state of each server, in the order in which they were configured.
func (h *Host) Status() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]Status, len(h.order))
	for i, m := range h.order {
		all[i] = m.statusLocked()
	}
	return all
}

// Close ends all connections, child processes and calls in flight, and waits for them and for
// callbacks that are under way. When the context ends before, it kills the children that are
// left, waits a second at most, and returns the context's error if something still runs: a
// callback that ignores its context.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.tasks.Wait()
		h.tell.end()
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	h.kill()
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-over:
		return nil
	case <-late.C:
		return fmt.Errorf("host: close: %w", ctx.Err())
	}
}

// kill kills the children that are left.
func (h *Host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.order {
		m.kill()
	}
	for m := range h.ending {
		m.kill()
	}
}

func unknown(server string) error {
	return fmt.Errorf("%w: no server is named %.100q", ErrUnknown, server)
}

// A Server says how one MCP server is reached: by exactly one of Command, URL, InProcess and Dial.
type Server struct {
	// Name stands before the names of its tools and prompts. It has 1 to 64 letters, digits, -
	// and _, begins with a letter or digit, does not contain "__" and does not end with "_".
	// No other server has the same name, also when upper and lower case are not distinguished.
	Name string

	// Command is a program and its arguments, which run without a shell and speak MCP over
	// standard input and output.
	Command []string
	// Env is added to the environment of the command, which is otherwise what programs need to
	// run and to reach the network (PATH, HOME, proxies, caches …), without what looks like a
	// secret, and the variables that InheritEnv names; a * there stands for any text.
	Env        map[string]string
	InheritEnv []string
	// Dir is where the command runs. Default: the current directory.
	Dir string

	// URL is an address as [mcp.Dial] takes it.
	URL string
	// Headers are sent with each request to an address of http, https, ws or wss.
	Headers map[string]string
	// SSE says that an address of http or https speaks the transport of 2024-11-05.
	SSE bool
	// Authorizer gives requests to an address of http or https their credentials. Default none.
	// [Host.Apply] takes a server with one with a type that cannot be compared for changed.
	Authorizer mcphttp.Authorizer

	// InProcess is a server of this process.
	InProcess *mcp.Server
	// Dial connects with a server over a transport of the caller's choice, which the host closes.
	// [Host.Apply] cannot compare functions and takes a server with one for changed.
	Dial func(ctx context.Context) (farcall.Transport, error)

	// Disabled servers are not started. Their state is [Stopped].
	Disabled bool
	// Timeout bounds how long a request may be without an answer. Default: that of
	// Options.Client.
	Timeout time.Duration
	// AllowTools and DenyTools choose the tools that are listed and may be called, by the names
	// that the server gives them, in patterns with * and ?. Default: all that are not denied.
	AllowTools, DenyTools []string
}

const (
	separator = "__"
	maxName   = 64
)

var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// check returns what is wrong, and at which field.
func (s *Server) check() (field string, err error) {
	ways := 0
	for _, has := range []bool{len(s.Command) > 0, s.URL != "", s.InProcess != nil, s.Dial != nil} {
		if has {
			ways++
		}
	}
	switch {
	case len(s.Name) > maxName || !serverName.MatchString(s.Name):
		return "",
			fmt.Errorf(
				"invalid name %.80q: use 1 to %d letters, digits, - and _, beginning with a letter or digit",
				s.Name, maxName)
	case strings.Contains(s.Name, separator) || strings.HasSuffix(s.Name, "_"):
		return "",
			fmt.Errorf("invalid name %q: it must neither contain %q nor end with _, because %[2]q stands "+
				"between a server and its tool", s.Name, separator)
	case s.Disabled:
		return "", nil // it may be incomplete
	case ways == 0:
		return "", errors.New("no command and no url is given")
	case ways > 1:
		return "", errors.New(
			"more than one of command, url, InProcess and Dial is given: use a server for each")
	case len(s.Command) > 0 && s.Command[0] == "":
		return "command", errors.New("the program has no name")
	case s.Timeout < 0:
		return "timeout", fmt.Errorf("must not be negative (got %v)", s.Timeout)
	}
	if s.URL != "" {
		if _, err := target.Parse(s.URL); err != nil {
			return "url", err
		}
	}
	return "", nil
}

// same reports whether a connection made for s serves for t, too.
func (s *Server) same(t *Server) bool {
	return s.Name == t.Name && slices.Equal(s.Command, t.Command) && maps.Equal(s.Env, t.Env) &&
		slices.Equal(s.InheritEnv, t.InheritEnv) &&
		s.Dir == t.Dir && s.URL == t.URL && maps.Equal(s.Headers, t.Headers) && s.SSE == t.SSE &&
		sameAuthorizer(s.Authorizer, t.Authorizer) &&
		s.InProcess == t.InProcess && s.Dial == nil && t.Dial == nil && s.Disabled == t.Disabled &&
		s.Timeout == t.Timeout &&
		slices.Equal(s.AllowTools, t.AllowTools) && slices.Equal(s.DenyTools, t.DenyTools)
}

// sameAuthorizer compares two authorizers. Those with a type that cannot be compared differ.
func sameAuthorizer(a, b mcphttp.Authorizer) bool {
	return reflect.ValueOf(&a).Elem().Comparable() && reflect.ValueOf(&b).Elem().Comparable() && a == b
}

// clone returns a copy that shares no mutable state.
func (s *Server) clone() *Server {
	c := *s
	c.Command, c.InheritEnv = slices.Clone(s.Command), slices.Clone(s.InheritEnv)
	c.AllowTools, c.DenyTools = slices.Clone(s.AllowTools), slices.Clone(s.DenyTools)
	c.Env, c.Headers = maps.Clone(s.Env), maps.Clone(s.Headers)
	return &c
}

// offers reports whether a tool is listed and may be called.
func (s *Server) offers(tool string) bool {
	matches := func(pattern string) bool { return glob.Match(pattern, tool) }
	return (len(s.AllowTools) == 0 || slices.ContainsFunc(s.AllowTools, matches)) &&
		!slices.ContainsFunc(s.DenyTools, matches)
}
