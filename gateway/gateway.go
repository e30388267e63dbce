package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/hook"
	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/signin"
	"github.com/farcall-dev/farcall/gateway/internal/supervise"
	"github.com/farcall-dev/farcall/gateway/internal/tails"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/inspect"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/store"
)

// Options adjust a Gateway. The zero value, and nil, mean the defaults. They are
// copied; later changes have no effect.
type Options struct {
	// Version is what the gateway says of itself. Default "0".
	Version string
	// Owner returns a text that is unique for the authenticated caller that sends a
	// request, and "" for any other, as in mcphttp.Options. Default: no caller is
	// authenticated.
	Owner func(*http.Request) string
	// MaxMessage bounds a message of a client in bytes. Default: those of the
	// transports.
	MaxMessage int
	// FrameTimeout is how long a message over WebSocket may take, and a second more for
	// each 100 KB of it. Default 30 s; negative: for ever.
	FrameTimeout time.Duration
	// Origins are the web pages that may call, and Hosts the DNS names of the gateway,
	// in addition to those of the configuration: as in mcphttp.Options.
	Origins, Hosts []string
	// Gzip is that of [httprpc.Options], for clients of JSON-RPC over HTTP.
	Gzip bool
	// Heartbeat is how long an event stream of MCP may be silent before a comment
	// is sent. Default 15 s; negative: for ever.
	Heartbeat time.Duration
	// RPC adjusts the connections of clients. Its Dialect is ignored, and its Budget
	// counts for upstreams, too; each has one share of it.
	RPC *farcall.Options
	// Guard adjusts the guard of the configuration, if that has one. Then Owner is not asked.
	Guard *guard.Options
	// NATS sends the requests to servers at nats://HOST/SUBJECT: a *natsrpc.Transport, which the
	// gateway itself does not link. Nil: they are refused.
	NATS http.RoundTripper
	// Sandbox is the command that runs another one in a sandbox: farcall sandbox. Without it a server
	// that has one in its configuration is refused. With it, on Linux, it also starts the commands
	// that have none: they have no capability to read other processes. Neither can read the files of
	// [Config.Private] and Hide; see [Upstream.Loose].
	Sandbox, Hide []string
	// Never returns addresses with ports, as "127.0.0.1:7331", that no command in a sandbox reaches:
	// where the gateway listens. It is called at each start of one, by any goroutine. Default none.
	Never func() []string
	// Logger takes what happens to the servers. Default: nothing is logged.
	Logger *slog.Logger
	// LogLevels are the levels of Logger, which operators can set at /api/v1/log-level. Nil: they
	// cannot. The lines of the gateway are of the components gateway, upstream, child, hook, signin
	// and guard.
	LogLevels *levels.Levels
	// Reload reads the configuration again and gives it to [Gateway.Reload], when an operator wants
	// that at /api/v1/reload. It returns which keys have changed, or an error, which may be a
	// *ConfigError. Nil: operators cannot.
	Reload func() (changes []string, err error)
	// Shared is what this gateway shares with others, such as a Store of package store/natsstore: what
	// Config.Shared says. The gateway does not close it. Nil: it shares nothing.
	Shared store.Store
	// Dump writes what the flight recorder has to a file, and returns its path, when an operator wants
	// that at /api/v1/capture/dump. Nil: operators cannot.
	Dump func(why string) (path string, err error)
	// Metrics serves /metrics, such as a Metrics of package observe/metrics, for those who may see the
	// page. What happens the Observer of RPC gets. Default: there is nothing at that path.
	Metrics http.Handler
	// Conform checks a server for the page, as in [inspect.Options]. Default: the page does not offer
	// it.
	Conform func(context.Context, string, *inspect.Server, func(string)) (any, error)
}

// A Gateway serves the clients of many servers. It is an http.Handler; its
// methods may be called by any number of goroutines at once.
type Gateway struct {
	opts      Options
	begun     time.Time
	plan      atomic.Pointer[plan]
	suspended *suspension
	edge      edge
	sessions  Sessions
	tasks     *taskStores
	keyed     *keyedCalls
	taskTTL   time.Duration
	asking    askers
	draining  atomic.Bool
	shutting  chan struct{}   // closed when draining begins
	connected atomic.Int64    // connections that had a name
	serving   context.Context //nolint:containedctx // of the clients' connections; it ends when they are to
	stop      context.CancelFunc
	ends      context.Context    //nolint:containedctx // of servers that are replaced; it ends when their calls are to be given up
	giveUp    context.CancelFunc // ends it

	reloading sync.Mutex
	ending    sync.WaitGroup // servers that are drained

	mu        sync.Mutex
	endpoints map[string]*endpoint
	watched   map[*watching]struct{}
	conns     sync.WaitGroup
	closed    bool // there shall be no more connections
	page      *inspect.Inspector
	control   *control.Handler
	guard     *supervise.Guard // of all children
	node      *cluster.Node    // among those with the same Shared; nil: there is none
	pins      pinNews          // of the nodes
	tails     *tails.Tails     // for them; nil: there are no others
	shield    *shield          // who may call what; nil: everybody everything
	states    *seal            // of modern servers
	signIns   *signin.Service  // nil: principals do not sign in to upstreams
	signing   signInConfig     // of them
	web       http.Handler     // what is behind it
	log       *slog.Logger     // of the component gateway
	schemas   compiled         // of tools that were called by tool search
	bodies    onhttp.Pool      // of requests of JSON-RPC that may belong to other nodes
}

// plan is what a configuration makes of the gateway. It is not changed.
type plan struct {
	config *Config
	all    *route.View // of the servers that speak MCP
	mcp    []*server
	order  []*server
	byName map[string]*server
	// virtual has the virtual servers, by the names of their endpoints.
	virtual map[string]*virtual
	hooks   map[string]*hooks // by upstream
	asked   []*hook.Hook      // all of them
	lock    *pin.Lock         // nil: every tool passes
	hosts   origin.Policy     // the names of the gateway
}

// component returns the log of a component.
func (g *Gateway) component(name string) *slog.Logger {
	return g.opts.Logger.With(levels.Key, name)
}

// New returns a gateway. Its servers are started when they are needed. It fails
// when the configuration is not valid.
func New(c *Config, o *Options) (*Gateway, error) {
	g := &Gateway{
		begun: time.Now(), shutting: make(chan struct{}), endpoints: map[string]*endpoint{},
		watched: map[*watching]struct{}{},
	}
	if o != nil {
		g.opts = *o
	}
	g.opts.Version = cmp.Or(g.opts.Version, "0")
	g.opts.Logger = cmp.Or(g.opts.Logger, slog.New(slog.DiscardHandler))
	g.log = g.component("gateway")
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := g.join(c); err != nil {
		return nil, err
	}
	if err := g.newShield(c); err != nil {
		g.leave()
		return nil, err
	}
	g.states = newSeal(c.Guard != nil, g.secret("states of modern servers"))
	g.web = g.shield.web(http.HandlerFunc(g.serveHTTP))
	g.guard = supervise.NewGuard(g.component("child"))
	g.suspended, g.sessions = newSuspension(c.suspends()), c.Sessions
	g.suspended.observer = g.rpcOptions().Observer
	g.edge.kept.SetSlow(c.Trace.Slow)
	g.sessions.Keys = slices.Clone(c.Sessions.Keys)
	g.tasks, g.taskTTL = g.taskStores(c), c.Tasks.TTL
	err := errors.Join(g.newSignIns(c), g.newKeyedCalls(c))
	var p *plan
	if err == nil {
		p, err = g.newPlan(c, nil, nil)
	}
	if err != nil {
		g.signIns.Close()
		_, _, _ = g.tasks.close(), g.keyed.close(), g.shield.end() // the other error counts
		g.leave()
		return nil, err
	}
	g.plan.Store(p)
	//nolint:forbidigo // connections end when they are drained, and with nothing else
	g.serving, g.stop = context.WithCancel(context.Background())
	g.ends, g.giveUp = context.WithCancel(context.Background()) //nolint:forbidigo // replaced servers outlive what has replaced them
	for _, s := range p.order {
		s.keepUp(g.serving)
	}
	g.ending.Go(func() { g.revokeUnknown(g.ends) })
	g.control = control.New(operator{g}, operator{g})
	if g.page, err = g.newPage(); err == nil {
		err = errors.Join(g.linkNodes(c), g.followPins(), g.signIns.Follow())
	}
	if err != nil {
		//nolint:forbidigo // nothing runs yet
		return nil, errors.Join(err, g.Shutdown(context.Background()))
	}
	for _, name := range g.tasks.used() {
		g.endpoint(name) // it ends what was interrupted
	}
	return g, nil
}

// newPlan makes a plan of a configuration. What the old plan has unchanged stays, but for the
// server that is to be renewed. A server that takes no calls takes none with another configuration
// either.
func (g *Gateway) newPlan(c *Config, old *plan, renew *renewal) (*plan, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	p := &plan{
		config: c, byName: map[string]*server{}, virtual: map[string]*virtual{},
		hosts: origin.Policy{Hosts: slices.Concat(g.opts.Hosts, c.Hosts)},
	}
	if c.Lock != "" {
		var err error
		if p.lock, err = g.loadPins(c, old); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	var sources []route.Source
	var private []string
	var err error
	if len(g.opts.Sandbox) > 0 {
		private = absolute(slices.Concat(c.Private(), g.opts.Hide))
	}
	if p.hooks, p.asked, err = g.newHooks(c, private); err != nil {
		return nil, err
	}
	for _, u := range c.Upstreams {
		if u.Disabled {
			continue
		}
		s, err := g.serverFor(u, private, c.PageSize, old, renew)
		if err != nil {
			return nil, err
		}
		p.order = append(p.order, s)
		p.byName[u.Name] = s
		if s.mcp != nil {
			if err := g.tasks.prepare(u.Name); err != nil {
				return nil, err
			}
			p.mcp = append(p.mcp, s)
			sources = append(sources, s.source(cmp.Or(u.Namespace, c.Namespace)))
		}
	}
	if len(p.mcp) > 0 {
		if err := g.tasks.prepare(""); err != nil {
			return nil, err
		}
	}
	p.all = route.NewView(c.Search.named(sources), g.viewOptions(c.PageSize))
	for _, e := range c.Endpoints {
		if err := g.tasks.prepare(e.Name); err != nil {
			return nil, err
		}
		p.virtual[e.Name] = newVirtual(e, p.mcp, sources, g.viewOptions(c.PageSize))
	}
	return p, nil
}

func (g *Gateway) viewOptions(size int) *route.Options {
	return &route.Options{PageSize: size, OnWarning: func(source, kind string, err error) {
		g.log.Warn("a list is not whole", "upstream", source, "list", kind, "reason", err)
	}}
}

// unchanged returns the server that is as a configuration wants it, or nil. A nil
// plan has none. Commands that run do not hide files that have become private.
func (p *plan) unchanged(u *Upstream, private []string) *server {
	if p == nil {
		return nil
	}
	s := p.byName[u.Name]
	if s == nil || s.cfg.Server != u.Server || !s.cfg.sameServer(u) {
		return nil
	}
	open := func(file string) bool { return !slices.Contains(s.private, file) }
	if len(u.Command) > 0 && slices.ContainsFunc(private, open) {
		return nil
	}
	return s
}

// Reload puts another configuration in the place of the one that is served.
// Sessions stay; calls in flight are finished by the servers that have them. When
// the configuration is not valid nothing changes.
func (g *Gateway) Reload(c *Config) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	old := g.plan.Load()
	if !reflect.DeepEqual(&g.sessions, &c.Sessions) {
		return errSessionsFixed
	}
	if old.config.Tasks != c.Tasks {
		return errTasksFixed
	}
	if !reflect.DeepEqual(old.config.Cluster, c.Cluster) {
		return errClusterFixed
	}
	if !reflect.DeepEqual(g.signing, c.SignIn) {
		return errSignInFixed
	}
	p, err := g.newPlan(c, old, nil)
	if err != nil {
		return err
	}
	if g.draining.Load() {
		p.discard(old)
		return errDraining()
	}
	if err := g.shield.reload(c); err != nil {
		p.discard(old)
		return fmt.Errorf("gateway: %w", err)
	}
	if g.node != nil {
		g.node.Configure(c.alike())
	}
	g.suspended.limit(c.suspends())
	g.edge.kept.SetSlow(c.Trace.Slow)
	defer g.ending.Go(func() { g.revokeUnknown(g.ends) })
	g.swap(old, p, "", func(s *server) {
		ctx, cancel := context.WithTimeout(g.ends, old.config.drain())
		defer cancel()
		s.close(ctx)
	})
	return nil
}

// closeViews ends the merged lists.
func (p *plan) closeViews() {
	p.all.Close()
	for _, v := range p.virtual {
		v.view.Close()
	}
	for _, h := range p.asked {
		h.Close()
	}
}

// discard closes what a plan that is not used has made. Nothing of it runs yet.
func (p *plan) discard(old *plan) {
	p.closeViews()
	for _, s := range p.order {
		if old.byName[s.cfg.Name] != s {
			s.close(context.Background()) //nolint:forbidigo // there is nothing to wait for
		}
	}
}

func (c *Config) drain() time.Duration { return cmp.Or(c.DrainTimeout, 10*time.Second) }
func (c *Config) name() string         { return cmp.Or(c.Name, "farcall") }

func (c *Config) suspends() (most int, ttl time.Duration) {
	return cmp.Or(c.MaxSuspended, 1000), cmp.Or(c.SuspendTimeout, 5*time.Minute)
}

// errorsPlain is the value of Config.Errors that leaves reasons out.
const errorsPlain = "plain"

// plain reports whether errors hide from clients why a server fails.
func (g *Gateway) plain() bool { return g.plan.Load().config.Errors == errorsPlain }

// stateTTL is how long clients may keep what they carry for a call. The call is
// given up before, when the suspension says so; Reload may change its time.
const stateTTL = 24 * time.Hour

// tellListChanged tells the clients of a server, or all of them.
func (g *Gateway) tellListChanged(upstream, kind string) {
	virtual := g.plan.Load().virtual
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, e := range g.endpoints {
		if s := e.searchOf(); s != nil && kind == route.Tools && upstream != "" && s.Mode != searchAuto &&
			len(s.Always) == 0 && e.announces(upstream) {
			continue // its list does not change
		}
		if v := virtual[name]; name == "" || upstream == "" || name == upstream ||
			v != nil && v.has(upstream) {
			e.server.ListChanged(kind)
		}
	}
}

// endpoint returns the address of a server, or that of all of them.
func (g *Gateway) endpoint(name string) *endpoint {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.endpoints[name]
	if e != nil {
		return e
	}
	e = &endpoint{g: g, name: name}
	e.keys, _ = g.sessions.keysOf(name, g.secret("sessions")) // they were checked
	e.server = mcp.NewServer(g.plan.Load().config.name(), g.opts.Version, &mcp.ServerOptions{
		Relay: e, Owner: g.ownerOf(), Keys: e.keys, Replica: g.replica(), StateTTL: stateTTL,
		Logger: g.rpcOptions().Logger, Sessions: g.sharedRecords(),
		Tasks: g.tasks.of(name), TaskTTL: g.taskTTL, Shared: g.sharedTasks(), SharedName: "mcp " + name,
		OnSessionBegan: e.began.add, OnSessionEnded: e.began.remove,
	})
	e.newFront()
	g.endpoints[name] = e
	return e
}

func (g *Gateway) rpcOptions() *farcall.Options {
	var o farcall.Options
	if g.opts.RPC != nil {
		o = *g.opts.RPC
	}
	o.Logger = cmp.Or(o.Logger, g.opts.Logger)
	return &o
}

// budget is the memory for large frames. Nil is the budget of the process.
func (g *Gateway) budget() *farcall.Budget {
	if g.opts.RPC == nil {
		return nil
	}
	return g.opts.RPC.Budget
}

// errDraining answers a call that comes too late.
func errDraining() error {
	return &jsonrpc.Error{
		Code: jsonrpc.Overloaded, Message: "Overloaded: the gateway is shutting down; call again",
		Data: jsonrpc.Raw(`{"sent":"no","retryable":true,"retryAfterMs":1000}`),
	}
}

// Shutdown refuses new calls with an error that says so, lets those in flight
// finish, ends streams and connections in order, and then every child. When the
// context ends first, what is left is given up, and its error is returned.
func (g *Gateway) Shutdown(ctx context.Context) error {
	defer g.giveUp()
	defer context.AfterFunc(ctx, g.giveUp)()
	if !g.draining.Swap(true) {
		close(g.shutting)
		if g.node != nil {
			g.node.Drain()
		}
	}
	g.mu.Lock()
	g.closed = true
	fronts := slices.Collect(maps.Values(g.endpoints))
	g.mu.Unlock()
	err := g.suspended.close(ctx)
	var wg sync.WaitGroup
	for _, e := range fronts {
		e.server.Close() // subscriptions end before their connections
		wg.Go(func() { _ = e.http.Shutdown(ctx) })
	}
	g.stop()
	if g.page != nil {
		_ = g.page.Close() // it returns nil
	}
	wg.Go(g.conns.Wait)
	wg.Go(g.pins.following.Wait)
	wg.Wait()
	g.reloading.Lock()
	defer g.reloading.Unlock()
	p := g.plan.Load()
	p.closeViews() // no call waits for its lists any more
	for _, s := range p.order {
		wg.Go(func() { s.close(ctx) })
	}
	wg.Wait()
	g.ending.Wait()
	g.signIns.Close()
	g.guard.Close()
	g.leave()
	return cmp.Or(err, ctx.Err(), g.tasks.close(), g.keyed.close(), g.shield.end())
}
