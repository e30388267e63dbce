package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/raw"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/gateway/internal/supervise"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/budget"
	probes "github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/stream"
)

// The profiles.
const (
	profileAuto = "auto"
	profileMCP  = "mcp"
	profileRaw  = "raw"
)

// server is one server behind the gateway. It stays when a new configuration has
// it unchanged.
type server struct {
	g   *Gateway
	cfg *Upstream
	// private are the files that its children cannot read.
	private []string
	// held says that it takes no calls. Nil: it takes them.
	held *held
	// budget has the memory for what comes from it, whichever connection that is.
	budget *farcall.Budget

	target   *target.Target        // nil: it is a command
	children *supervise.Supervisor // nil: it is at an address
	mcp      *upstream.Upstream    // nil: it is no MCP server
	raw      *raw.Upstream         // nil: it is nothing but an MCP server
	results  *results              // nil: none is kept
	api      *api                  // nil: it is no HTTP API
	alone    *route.View           // what it offers, by its own names
	auth     mcphttp.Authorizer    // nil: headers are all it needs
	signIn   *signin.Upstream      // nil: principals do not sign in to it
	http     *http.Client          // nil: that of the transport
	tls      *tls.Config           // nil: that of the transport

	post, stream, ws http.Handler    // of raw
	checks           *probes.Service // of the health of raw
	calls            farcall.Handler // of raw, one by one

	serving sync.WaitGroup // connections to a server of this process
	telling pace           // clients of its lists
	health  health

	slow atomic.Bool // it did not say in time what it offers

	blocking sync.Mutex
	blocked  map[blockedItem]pin.Change // what is not as it was pinned
}

// newServer puts a server together. Nothing runs yet.
func (g *Gateway) newServer(c *Upstream, private []string, size int, h *held) (*server, error) {
	s := &server{
		g: g, cfg: c, private: private, held: h, results: newResults(c),
		budget: budget.Named(g.budget(), "upstream "+c.Name),
	}
	s.telling.do = func(kind string) { g.tellListChanged(c.Name, kind) }
	log := g.component("upstream").With("upstream", c.Name)
	if len(c.Command) > 0 {
		command, err := c.confined(g.opts.Sandbox, private, nil)
		if err != nil {
			return nil, err
		}
		late := func() []string {
			line, _ := c.confined(g.opts.Sandbox, private, g.opts.Never) // it was right before
			return line[1:]
		}
		s.children = supervise.New(supervise.Command{
			Path: command[0], Late: late, Name: filepath.Base(c.Command[0]), Env: c.Environ(os.Environ()),
			Dir:     c.Cwd,
			Framing: c.framing(), MaxMessage: int(c.MaxMessage), FrameTimeout: c.FrameTimeout,
			Budget: s.budget,
		}, &supervise.Options{
			Name: c.Name, Logger: g.component("child").With("upstream", c.Name), Guard: g.guard,
			MinDelay: c.Restart.Min, MaxDelay: c.Restart.Max, Never: c.Restart.Never, OnRestart: s.restarted,
		})
	}
	var err error
	if c.URL != "" {
		if s.target, err = target.Parse(c.URL); err != nil {
			return nil, fmt.Errorf("gateway: upstream %s: %w", c.Name, err)
		}
		s.target.Framing = c.framing()
	}
	if err = s.network(log); err != nil {
		return nil, err
	}
	if s.auth, err = c.authorizer(log); err != nil {
		return nil, err
	}
	if err = s.newSignIn(); err != nil {
		return nil, err
	}
	if c.OpenAPI != nil {
		s.api = newAPI(c, s.http, log)
	}
	if c.profile() != profileRaw {
		s.speakMCP(log, size)
	}
	if c.profile() != profileMCP {
		return s, s.speakRaw(log)
	}
	return s, nil
}

func (c *Upstream) framing() stream.Framing {
	framing, _ := target.ParseFraming(c.Framing) // it was checked
	return framing
}

func (s *server) speakMCP(log *slog.Logger, size int) {
	c := s.cfg
	s.mcp = upstream.New(&upstream.Options{
		Name: c.Name, Held: s.held.text(), Dial: s.dial, Exclusive: !s.web() && s.api == nil,
		Identity: c.identify(),
		Lifetime: c.Lifetime, Pool: c.Pool, IdleStop: c.IdleStop,
		Timeout: c.Timeout, StartTimeout: c.StartTimeout, Starting: s.starting,
		MaxInFlight: c.MaxInFlight, MaxQueue: c.MaxQueue, QueueTimeout: c.QueueTimeout,
		BreakAfter: c.Breaker.After, BreakFor: c.Breaker.For,
		OnListChanged: s.listChanged,
		Asks:          s.g.asking.has(c),
		OnAsks:        func() { s.g.asking.add(c) },
		OnWarning:     func(err error) { log.Warn(err.Error()) },
		OnQueued:      s.queued(),
		OnStarted:     s.started(),
		Explain:       explain,
		CallersFault:  callersFault,
		Plain:         s.g.plain,
		Logger:        log,
	})
	s.alone = route.NewView([]route.Source{s.source(route.NamespaceNever)}, s.g.viewOptions(size))
}

// starting describes what is being started, for the log, the page and the error of a waiting call.
func (s *server) starting() string {
	text := s.cfg.Target()
	if s.children == nil {
		return text
	}
	if names := s.cfg.withheld(os.Environ()); len(names) > 0 {
		text += "; not passed on: " + strings.Join(names, ", ") + " (name them in inherit_env)"
	}
	if lines := s.children.Stats().LastStderr; len(lines) > 0 {
		text += "; last output: " + lines[len(lines)-1]
	} else {
		text += "; no output yet"
	}
	return text
}

// source is what the server gives to a view.
func (s *server) source(namespace string) route.Source {
	filter := func(f Filter) route.Filter {
		expect := slices.Concat(f.Allow, f.Deny, sortedKeys(f.Rename), sortedKeys(f.Describe))
		return route.Filter{
			Allow: f.Allow, Deny: f.Deny, Rename: f.Rename, Describe: f.Describe,
			Expect: expect,
		}
	}
	tools := filter(s.cfg.Tools)
	if s.api != nil { // it has no others
		tools.Allow, tools.Deny, tools.Expect = nil, nil, nil
	}
	return route.Source{
		Name: s.cfg.Name, Refs: s.cfg.refs(),
		Rules: route.Rules{
			Tools: tools, Resources: filter(s.cfg.Resources), Prompts: filter(s.cfg.Prompts),
			Namespace: namespace,
		},
		List:  s.list,
		Scope: s.scope,
	}
}

// scope is the same for callers who may share a list that is not public: they have
// the same principal, and the server cannot tell them apart either.
func (s *server) scope(ctx context.Context) string {
	who := s.g.caller(ctx)
	scope := s.mcp.Scope(who)
	if !who.Owner.Authenticated() {
		return scope
	}
	return scope + " " + who.Owner.Text()
}

// dial makes a connection for MCP.
func (s *server) dial(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
	c := s.cfg
	o.Name, o.Version = "farcall", s.g.opts.Version
	o.Era = c.Era
	rpc := farcall.Options{
		Logger: s.g.component("upstream"), Budget: s.budget,
		Transport: s.transport(), Observer: s.observer(),
	}
	o.RPC = &rpc
	if s.children != nil {
		t, err := s.children.Start(ctx)
		if err != nil {
			return nil, err
		}
		return mcp.Connect(ctx, t, o)
	}
	if s.api != nil {
		server, err := s.api.serve(ctx)
		if err != nil {
			return nil, err
		}
		return mcp.Connect(ctx, s.inside(server, authorizedBy(s.authFor(ctx))), o)
	}
	if c.Server != nil {
		return mcp.Connect(ctx, s.inside(c.Server, nil), o)
	}
	if !s.web() {
		t, err := s.target.Dial(ctx, s.reach("mcp"))
		if err != nil {
			return nil, err
		}
		return mcp.Connect(ctx, t, o)
	}
	if c.Transport == "sse" && o.Era == "" {
		o.Era = "legacy" // a server of that transport may speak a later revision over it
	}
	o.HTTP = &mcphttp.DialOptions{
		HTTP: s.http, Header: c.header(), Authorize: s.authFor(ctx),
		MaxMessage: int(c.MaxMessage), Budget: s.budget,
	}
	return mcp.Dial(ctx, c.URL, o)
}

// inside connects to a server of this process. What serves the connection ends with it.
func (s *server) inside(server *mcp.Server, o *farcall.Options) farcall.Transport {
	mine, theirs := farcall.Pipe()
	s.serving.Go(func() {
		if err := mcp.Serve(context.Background(), server, theirs, o); err != nil { //nolint:forbidigo // it ends with the connection
			s.g.log.Warn("a connection in memory has failed", "upstream", s.cfg.Name, "error", err)
		}
	})
	return mine
}

func (c *Upstream) header() http.Header {
	h := http.Header{}
	for name, value := range c.Headers {
		h.Set(name, value)
	}
	return h
}

// maxChildren bounds the processes of one upstream that are those of connections of raw JSON-RPC.
const maxChildren = 256

func (s *server) speakRaw(log *slog.Logger) error {
	c := s.cfg
	o := &raw.Options{
		Name: c.Name, Timeout: c.Timeout, MaxMessage: int(c.MaxMessage), MaxInFlight: c.MaxInFlight,
		Budget: s.budget, Explain: explain, Plain: s.g.plain, Logger: log,
		OnRecord: recordPiped,
	}
	if c.Profile == profileRaw {
		o.Lifetime = c.Lifetime
	}
	s.checks = probes.New(s.serves, s.g.shutting)
	o.Own, o.Answer = probes.Has, s.checks.Answer
	if c.Profile == profileRaw { // the hooks of others are about tools, and keep them from /rpc
		o.Calls = s.hookedPipe
	}
	if is := s.g.shield; is != nil {
		o.Admit = func(ctx context.Context) raw.Admission { return is.admission(ctx, c.Name) }
	}
	switch {
	case s.held != nil:
		o.Dial = func(context.Context) (farcall.Transport, error) {
			return nil, raw.HeldError(s.held.text())
		}
	case s.children != nil:
		o.Dial, o.MaxConnections = s.children.Start, maxChildren
	case s.web():
		var err error
		if o.Exchanger, err = s.target.Exchange(s.reach()); err != nil {
			return fmt.Errorf("gateway: upstream %s: %w", c.Name, err)
		}
	default:
		o.Dial = func(ctx context.Context) (farcall.Transport, error) {
			return s.target.Dial(ctx, s.reach())
		}
	}
	s.raw = raw.New(o)
	s.newFront()
	return nil
}

// explain tells what the process of a failed connection said last, and when the
// next one may be started.
func explain(err error) (after time.Duration, stderr []string) {
	if wait := (*supervise.DelayError)(nil); errors.As(err, &wait) {
		after = max(time.Until(wait.Next), time.Millisecond)
	}
	return after, supervise.LastLines(err)
}

// web reports whether the server is reached over HTTP.
func (s *server) web() bool { return s.target != nil && s.target.Kind == target.HTTP }

// reach are the options for a connection to the address of the server.
func (s *server) reach(subprotocols ...string) *target.Options {
	return &target.Options{
		TLS: s.tls, Client: s.http, Header: s.cfg.header(),
		Subprotocols: subprotocols, MaxMessage: int(s.cfg.MaxMessage), FrameTimeout: s.cfg.FrameTimeout,
		Budget: s.budget,
	}
}

// close lets the calls in flight finish, as long as the context lasts, and ends
// every child.
func (s *server) close(ctx context.Context) {
	s.health.stop()
	if s.children != nil {
		defer context.AfterFunc(ctx, s.children.Kill)()
	}
	if s.alone != nil {
		s.telling.end()
		s.alone.Close() // no caller waits for its lists any more
	}
	var wg sync.WaitGroup
	if s.mcp != nil {
		wg.Go(func() { _ = s.mcp.Close(ctx) }) // its error is the context's
	}
	if s.raw != nil {
		wg.Go(func() { _ = s.raw.Close(ctx) })
	}
	wg.Wait()
	s.serving.Wait()
	if s.api != nil {
		s.api.close()
	}
	if s.children != nil {
		_ = s.children.Close()
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// passesAll reports whether the server may be called as it is.
func (s *server) passesAll(p *plan) bool {
	return s.raw != nil &&
		s.cfg.ServesRPC(p.lock != nil || s.g.shield != nil || p.hooks[s.cfg.Name] != nil)
}

// describe returns what the server says of itself, nil when it does not in time.
// One that is down is described when it is up.
func (s *server) describe(ctx context.Context, who upstream.Caller) *mcp.ServerInfo {
	timeout := describeTimeout
	if s.slow.Load() {
		timeout = describeAgain
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := s.info(ctx, who)
	s.slow.Store(errors.Is(ctx.Err(), context.DeadlineExceeded))
	if err != nil {
		return nil
	}
	return info
}

// describeTimeout bounds how long a client that begins waits to hear what a
// server offers that is slow to start, and describeAgain how long the next ones do.
const (
	describeTimeout = 2 * time.Second // clients that find out what a server speaks wait for three
	describeAgain   = 100 * time.Millisecond
)

// Connect connects to the servers with connections that all clients share, which
// otherwise happens when they are needed, and waits until each has said who it
// is. Its error tells of those that have not; the next call tries them again.
// Servers of the profile raw are left alone: how to greet them is not known.
func (g *Gateway) Connect(ctx context.Context) error {
	var wg sync.WaitGroup
	servers := g.plan.Load().mcp
	failed := make([]error, len(servers))
	for i, s := range servers {
		if !s.cfg.forAll() {
			continue
		}
		wg.Go(func() { _, failed[i] = s.mcp.Describe(ctx, g.caller(ctx)) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// health starts a server before it is needed, and asks it whether it is still there.
type health struct {
	end  context.CancelFunc // nil: nothing was begun
	done sync.WaitGroup
}

// checks returns how often a server is asked whether it is there. 0: never.
func (c *Upstream) checks() time.Duration {
	if c.Required {
		return cmp.Or(c.HealthCheck, 30*time.Second)
	}
	return c.HealthCheck
}

// keepUp starts the preload and the health checks of a server. It may be called
// again.
func (s *server) keepUp(ctx context.Context) {
	every := s.cfg.checks()
	if s.mcp == nil || !s.cfg.Preload && every == 0 || s.health.end != nil {
		return
	}
	ctx, s.health.end = context.WithCancel(ctx)
	s.health.done.Go(func() {
		for {
			_ = s.mcp.Check(ctx) // its failure is the status of the server
			if every == 0 {
				return
			}
			timer := time.NewTimer(every)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	})
}

func (h *health) stop() {
	if h.end != nil {
		h.end()
	}
	h.done.Wait()
}

// serves is the status of a service at the addresses of the server for JSON-RPC, as /readyz has it:
// "" is the gateway as a whole. A Watch outlives the server with which it began, so the one of the
// plan counts.
func (s *server) serves(service string) probes.Status {
	p := s.g.plan.Load()
	if service == "" {
		if s.g.unready() != "" {
			return probes.NotServing
		}
		return probes.Serving
	}
	now := p.byName[s.cfg.Name]
	switch {
	case service != s.cfg.Name || now == nil || now.raw == nil:
		return probes.Unknown
	case now.held != nil || now.raw.Status().State == "down":
		return probes.NotServing
	}
	return probes.Serving
}

// unready tells why calls are refused: the guard refuses all, or required servers are not there.
// "": they are not.
func (g *Gateway) unready() string {
	var missing []string
	if g.shield != nil {
		if err := g.shield.Ready(); err != nil {
			missing = append(missing, err.Error())
		}
	}
	for _, s := range g.plan.Load().mcp {
		if !s.cfg.Required {
			continue
		}
		if st := s.mcp.Status(); st.State != upstream.StateUp {
			text := fmt.Sprintf("%s is required and %s since %s", s.cfg.Name, st.State,
				st.Since.UTC().Format(time.RFC3339))
			if st.LastError != "" && !g.plain() {
				text += ": " + st.LastError
			}
			missing = append(missing, text)
		}
	}
	return strings.Join(missing, "\n")
}
