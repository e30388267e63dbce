package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/keep"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/watch"
	"github.com/farcall-dev/farcall/natsrpc"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/observe/metrics/otlp"
	"github.com/farcall-dev/farcall/observe/traces"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/store"
)

// drainTime is how long calls in flight may take to finish after the first
// signal.
const drainTime = 10 * time.Second

type serveFlags struct {
	listen     []string
	hosts      []string
	origins    []string
	gzip       bool
	http       string
	trusted    []string // proxies
	stdio      bool
	tlsCert    string
	tlsKey     string
	clientCA   string
	insecure   bool
	guard      string
	tasks      string
	cluster    string
	shared     store.Store // of cluster; nil: nothing is shared
	secret     []byte      // of the nodes, where there is no gateway
	nodes      func() int
	maxMessage byteSize
	limits     serveLimits
	details    bool
	v1         bool
	logFlags
	captureFlags
	draining chan struct{} // closed when the server begins to shut down; nil: nothing waits for it

	// Of a gateway.
	listening *atomic.Pointer[[]net.Listener] // once all are open
	config    string
	upstreams []string
	lock      string
	foundLock string // a lock beside --config, which does not name it
	profile   string
	// nanoseconds, of --config, which an operator may have read again at any time; 0: the default
	drainTimeout atomic.Int64
	served       *gateway.Config // what --config said last
	files        *watch.Files    // of --config
	reloaded     atomic.Pointer[reloaded]
	configured   []string // the addresses of --config

	configuredProxies []string // those of --config

	configuredTLS bool     // the certificate is that of --config
	guardFiles    []string // those of --guard

	server  *rpc.Server       // serves them
	queues  []*natsrpc.Server // give it what comes over NATS
	methods []farcall.Method  // that it shows to all
	tells   *slog.Logger      // what queues report
	metrics *metrics.Metrics
	tracer  *traces.Tracer           // nil: the environment asks for no traces
	kept    *keep.Keeper             // of the playground; nil: there is none
	opened  atomic.Pointer[[]opened] // where it listens
	sent    *otlp.Exporter           // of metrics; nil: the environment asks for none
}

// opened is an address to listen on, and the one that came of it.
type opened struct {
	address string
	at      net.Addr
}

func newServeCmd(e *env) *cobra.Command {
	var f serveFlags
	cmd := command("serve", "Serve the playground, or a gateway: every transport on one port",
		func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e) })
	cmd.Args = cobra.NoArgs
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.listen, "listen", nil,
		"`address` to listen on: host:port, :port (every interface), 0.0.0.0:port (every one of IPv4), "+
			"unix:PATH, npipe:NAME (Windows), nats://HOST/SUBJECT; can be repeated (default "+defaultAddress+
			", unless --stdio)")
	flags.StringArrayVar(&f.origins, "origin", nil,
		"`ORIGIN` of web pages on other hosts that may call: https://app.example.com, localhost:3000, "+
			"*.example.com, or * for all; can be repeated")
	flags.StringArrayVar(&f.hosts, "host", nil,
		"DNS `name` of this server, or *.example.com, that a request without credentials may have in "+
			"its Host header; can be repeated")
	flags.StringArrayVar(&f.trusted, "trusted-proxy", nil,
		"`CIDR` or address of a proxy, or unix: its X-Forwarded-For, Forwarded and PROXY protocol name "+
			"the client; can be repeated")
	flags.BoolVar(&f.stdio, "stdio", false, "serve standard input and output")
	flags.StringVar(&f.config, "config", "",
		"serve the servers of this `file`, as a gateway: farcall.yaml, or the mcpServers JSON of a "+
			"desktop client; it is read again when it changes")
	flags.StringArrayVar(&f.upstreams, "upstream", nil,
		"serve this server, `NAME=TARGET` or NAME=COMMAND, as a gateway; can be repeated")
	flags.StringVar(&f.lock, "lock", "",
		"`file` with what the servers of the gateway said when they were pinned (default farcall.lock "+
			"beside --config)")
	flags.StringVar(&f.tasks, "tasks", "",
		"`directory` in which tasks of MCP are stored, so that they outlive this process (default: "+
			"tasks of --config, else in memory)")
	flags.StringVar(&f.cluster, "cluster", "",
		"`URL` of what nodes share state over: nats://HOST, redis://HOST, or embedded, for an engine "+
			"in this process (default: cluster of --config, else nothing is shared)")
	flags.StringVar(&f.tlsCert, "tls-cert", "",
		"`file` with the certificate (PEM); the port speaks TLS then, and nothing else")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`file` with the private key (PEM)")
	flags.StringVar(&f.clientCA, "tls-client-ca", "",
		"`file` with the authorities (PEM) with client certificates that count, for mtls of the guard")
	flags.BoolVar(&f.insecure, "insecure", false,
		"listen where other machines can connect without a guard or TLS, and accept connections "+
			"without TLS beside a certificate")
	flags.StringVar(&f.guard, "guard", "",
		"`file` with the key guard, as in farcall.yaml, for the playground or --upstream: who "+
			"may call what")
	flags.Var(&f.maxMessage, "max-message",
		"largest message, such as 10MB (default: stdio 10MB, TCP 100MB, HTTP and WebSocket 50MB)")
	flags.BoolVar(&f.gzip, "gzip", false,
		"read and send gzip in JSON-RPC over HTTP; off by default: where answers hold secrets beside "+
			"what others choose, their sizes reveal them (BREACH)")
	flags.StringVar(&f.http, "http", "fast",
		"`reader` of HTTP/1.1: fast reads requests that are exactly the common case without net/http, "+
			"std none; FARCALL_HTTP=std does the same")
	f.limits.register(cmd)
	flags.BoolVar(&f.details, "details", false,
		"tell callers the Go type and text of internal errors; for trusted callers only, with a guard "+
			"those of the role operator")
	flags.BoolVar(&f.v1, "v1", false, "accept JSON-RPC 1.0 too")
	f.registerLog(cmd)
	f.registerCapture(cmd)
	return cmd
}

// run serves the playground, or a gateway.
func (f *serveFlags) run(ctx context.Context, e *env) (err error) {
	if f.http != "fast" && f.http != "std" {
		return usagef("Write --http fast or --http std.", "--http: %q is neither fast nor std", f.http)
	}
	stderr := &lockedWriter{w: e.stderr}
	log, err := f.newLogger(ctx, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.endRecord()) }()
	if err := f.trace(ctx, log); err != nil {
		return err
	}
	defer f.flush(ctx, log)
	if f.config != "" || len(f.upstreams) > 0 {
		return f.gateway(ctx, log, stderr)
	}
	c, err := f.loadGuard()
	if err != nil {
		return err
	}
	f.limits.newBudget()
	return f.sharing(ctx, c, log, stderr, func() error { return f.play(ctx, c, log, stderr) })
}

// play serves the playground.
func (f *serveFlags) play(
	ctx context.Context, c *gateway.Config, log *slog.Logger, stderr io.Writer,
) error {
	leave, err := f.joined(ctx, log)
	if err != nil {
		return err
	}
	defer leave()
	if err := f.record(&gateway.Config{}, log, false); err != nil {
		return err
	}
	play, err := f.playground(ctx, c, log, stderr)
	if err != nil {
		return err
	}
	var on hooks
	if g := play.guard; g != nil {
		on.watches = append(on.watches, watch.New(c.Files(), func(before []string) []string {
			return f.reguard(g.Reload, before, stderr)
		}))
	}
	return errors.Join(f.serve(ctx, stderr, on), play.Close())
}

// hooks are what a service wants to happen while it is served.
type hooks struct {
	// the addresses accept connections; the context ends before the service does. May be nil
	begun   func(context.Context)
	watches []*watch.Files // files that are read again when they change, and at SIGHUP
}

// serve serves until a signal comes, the context ends, or, where standard input
// is all that is served, until that ends.
func (f *serveFlags) serve(ctx context.Context, stderr io.Writer, on hooks) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	again := make(chan os.Signal, 1)
	if len(on.watches) > 0 || f.tlsCert != "" {
		signal.Notify(again, syscall.SIGHUP)
		defer signal.Stop(again)
	}
	dump := make(chan os.Signal, 1)
	if len(dumping) > 0 { // none would mean all
		signal.Notify(dump, dumping...)
		defer signal.Stop(dump)
	}
	manager, err := newNotifier()
	if err != nil {
		return usagef("Run farcall without the variable where systemd does not start it.", "%w", err)
	}
	defer manager.close()
	ended, err := f.start(ctx, stderr)
	if err != nil {
		return errors.Join(err, f.stop(ctx, nil))
	}
	manager.tell("READY=1")
	serving, end := context.WithCancel(ctx)
	defer end()
	var work sync.WaitGroup
	if on.begun != nil {
		work.Go(func() { on.begun(serving) })
	}
	for _, w := range on.watches {
		work.Go(func() { w.Run(serving) })
	}
	work.Go(func() { manager.watchdog(serving) })
	for {
		select {
		case <-again:
			manager.reloading()
			f.server.Reload()
			for _, w := range on.watches {
				w.Reload()
			}
			manager.tell("READY=1")
			continue
		case <-dump:
			f.dump(stderr)
			continue
		case <-signals:
		case <-ctx.Done():
		case err = <-ended:
		}
		manager.tell("STOPPING=1")
		end()
		work.Wait()
		return errors.Join(err, f.stop(ctx, signals))
	}
}

// start opens every address and returns when all of them accept connections. What comes from ended
// is why something that is served has ended.
func (f *serveFlags) start(ctx context.Context, stderr io.Writer) (ended <-chan error, err error) {
	open, err := f.server.Listen(ctx, f.addresses()...)
	if err != nil {
		return nil, f.refused(err, exitFailure)
	}
	if f.listening != nil {
		f.listening.Store(&open)
	}
	var at []opened
	for _, address := range f.addresses() {
		if !port.IsQueue(address) {
			at = append(at, opened{address, open[len(at)].Addr()})
		}
	}
	f.opened.Store(&at)
	ends := make(chan error, len(open)+1)
	ctx = context.WithoutCancel(ctx) // stop has its own limit
	for _, l := range open {
		go func() {
			if err := f.server.Serve(ctx, l); err != nil {
				ends <- err
			}
		}()
	}
	for _, l := range open {
		fmt.Fprintln(stderr, f.readyLine(l.Addr()))
	}
	if err := f.subscribe(ctx, stderr); err != nil {
		return nil, err
	}
	if f.stdio {
		go func() {
			_ = f.server.ServeStdio(ctx) // its error is the context's, which has no end
			if len(open)+len(f.queues) == 0 {
				ends <- nil
			}
		}()
	}
	return ends, nil
}

// readyLine names an address that accepts connections. Programs that start farcall wait for it, so
// its form is fixed.
func (f *serveFlags) readyLine(at net.Addr) string {
	address, scheme := port.Schemes().Text(at), ""
	switch {
	case !port.IsHost(address): // it begins with its own scheme
	case f.tlsCert != "":
		scheme = "https://"
	default:
		scheme = "http://"
	}
	return "farcall: ready " + scheme + address
}

// stop drains the server. A second signal ends that.
func (f *serveFlags) stop(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		cmp.Or(time.Duration(f.drainTimeout.Load()), drainTime))
	defer cancel()
	if f.draining != nil {
		close(f.draining) // before the calls that are in flight are waited for
	}
	drained := make(chan struct{})
	go func() {
		var both sync.WaitGroup
		both.Go(func() { _ = f.unsubscribe(ctx) }) // its error is the context's: time was up
		_ = f.server.Shutdown(ctx)                 // so is this one
		both.Wait()
		close(drained)
	}()
	select {
	case <-drained:
		return nil
	case <-signals:
		return &exitError{
			code: exitFailure, err: errors.New("stopped before the calls in flight had finished"),
		}
	}
}

// serveLimits are the bounds of all connections together. Flags count before the
// configuration, and that before the defaults, which are those of the packages.
type serveLimits struct {
	memory, unauthenticated memorySize
	frameTimeout            time.Duration
	connections, perAddress int
	rate                    int
	idle                    time.Duration

	budget *farcall.Budget // of memory and unauthenticated; nil: that of the process
}

func (l *serveLimits) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&l.memory, "memory",
		"memory for all messages of more than 64 KiB together, such as 256MB (default 512MiB, or half "+
			"of GOMEMLIMIT if that is less)")
	flags.Var(&l.unauthenticated, "memory-unauthenticated",
		"of unauthenticated connections, with a guard (default 64MiB, or an eighth of --memory if "+
			"that is less)")
	flags.DurationVar(&l.frameTimeout, "frame-timeout", 0,
		"`time` for a message that has begun, and a second more for each 100 KB of it; -1s: no bound "+
			"(default 30s)")
	flags.IntVar(&l.connections, "max-connections", 0,
		"open connections of each address to listen on; -1: no bound (default 16384)")
	flags.IntVar(&l.perAddress, "max-connections-per-client", 0,
		"of these, from one IP address; -1: no bound (default 4096, none for the loopback address)")
	flags.IntVar(&l.rate, "accept-rate", 0,
		"connections accepted in a second, further ones wait; -1: no bound (default 1000)")
	flags.DurationVar(&l.idle, "idle-timeout", 0,
		"`time` for which a connection that is no HTTP may be unused; open calls and MCP sessions are "+
			"use; -1s: no bound (default 1h)")
}

// configured takes what the flags do not say from a configuration.
func (l *serveLimits) configured(conf *gateway.Config) {
	c := &conf.Limits
	l.memory = cmp.Or(l.memory, memorySize(c.Memory))
	l.unauthenticated = cmp.Or(l.unauthenticated, memorySize(c.MemoryUnauthenticated))
	l.frameTimeout = cmp.Or(l.frameTimeout, c.FrameTimeout)
	l.connections = cmp.Or(l.connections, c.Accepted)
	l.perAddress = cmp.Or(l.perAddress, c.Connections)
	l.rate = cmp.Or(l.rate, c.AcceptRate)
	l.idle = cmp.Or(l.idle, c.Idle)
}

// newBudget makes the budget, once all options are known.
func (l *serveLimits) newBudget() {
	if l.memory > 0 || l.unauthenticated > 0 {
		l.budget = farcall.NewBudget(int64(l.memory), int64(l.unauthenticated))
	}
}

// subscribe serves the addresses that are subjects of NATS, all or none.
func (f *serveFlags) subscribe(ctx context.Context, stderr io.Writer) error {
	for _, address := range f.addresses() {
		if !port.IsQueue(address) {
			continue
		}
		s, err := natsrpc.Listen(ctx, address, f.server, &natsrpc.Options{
			Budget: f.limits.budget, Logger: f.tells, Methods: f.methods,
		})
		if err != nil {
			return failf(exitFailure, "Is a NATS server there? nats-server starts one, on localhost:4222.",
				"cannot serve over NATS: %w", err)
		}
		f.queues = append(f.queues, s)
		fmt.Fprintln(stderr, "farcall: ready "+port.Redacted(address))
	}
	return nil
}

// unsubscribe lets the calls that came over NATS finish.
func (f *serveFlags) unsubscribe(ctx context.Context) (err error) {
	for _, s := range f.queues {
		err = errors.Join(err, s.Close(ctx))
	}
	return err
}

// notifier tells systemd how the service is doing: sd_notify(3). Nil tells nothing.
type notifier struct {
	conn     *net.UnixConn
	interval time.Duration // of the watchdog; 0: there is none
}

// newNotifier returns the notifier that the environment asks for, nil for none. It removes the
// variables, so that processes that farcall starts do not speak for it.
func newNotifier() (*notifier, error) {
	address := os.Getenv("NOTIFY_SOCKET")
	pid, period := os.Getenv("WATCHDOG_PID"), os.Getenv("WATCHDOG_USEC")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if address == "" {
		return nil, nil
	}
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %q is neither a path nor an abstract name (@…)", address)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	n := &notifier{conn: conn}
	if period != "" && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		micro, err := strconv.ParseInt(period, 10, 64)
		if err != nil || micro <= 0 || micro > int64(24*time.Hour/time.Microsecond) {
			return nil,
				errors.Join(fmt.Errorf("WATCHDOG_USEC: %q is not a number of microseconds up to a day", period),
					conn.Close())
		}
		n.interval = time.Duration(micro) * time.Microsecond / 2
	}
	return n, nil
}

// tell sends a state. What cannot be sent is lost: systemd has a timeout for what it waits for.
func (n *notifier) tell(states ...string) {
	if n != nil {
		_, _ = n.conn.Write([]byte(strings.Join(states, "\n")))
	}
}

// reloading says that the configuration is read again, until the next READY=1.
func (n *notifier) reloading() {
	if at := monotonic(); at > 0 {
		n.tell("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(at.Microseconds(), 10))
	}
}

// watchdog says twice in each period of the watchdog that the process is alive, until the context
// ends.
func (n *notifier) watchdog(ctx context.Context) {
	if n == nil || n.interval == 0 {
		return
	}
	ticker := time.NewTicker(n.interval)
	defer ticker.Stop()
	for {
		n.tell("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (n *notifier) close() {
	if n != nil {
		_ = n.conn.Close()
	}
}
