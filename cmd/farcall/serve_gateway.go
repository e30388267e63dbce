package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/watch"
	"github.com/farcall-dev/farcall/natsrpc"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/stream"
)

// behind is a gateway, as a service. It is nil until the server has checked the options.
type behind struct {
	*gateway.Gateway

	config *guard.Config // of the gateway, until there is one
	ahead  *mocking      // what does not need the gateway; nil: nothing
}

// ServeHTTP implements rpc.Service.
func (b *behind) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.ahead != nil {
		b.ahead.web(w, r)
		return
	}
	b.Gateway.ServeHTTP(w, r)
}

// Accept implements rpc.Service.
func (b *behind) Accept(conn net.Conn) rpc.Accepted {
	a := b.Gateway.Accept(conn)
	if b.ahead != nil {
		a.Serve = b.ahead.serve(a.Serve)
	}
	return a
}

// Policy implements rpc.Service.
func (b *behind) Policy() rpc.Policy {
	if b.Gateway == nil {
		return policyOf(b.config)
	}
	return b.Gateway.Policy()
}

// Shutdown implements rpc.Service.
func (b *behind) Shutdown(ctx context.Context) error {
	if b.Gateway == nil {
		return nil
	}
	return b.Gateway.Shutdown(ctx)
}

// gateway serves what --config or --upstream says.
func (f *serveFlags) gateway(ctx context.Context, log *slog.Logger, stderr io.Writer) error {
	c, err := f.gatewayConfig()
	if err != nil {
		return err
	}
	if err := f.putUp(c); err != nil {
		return err
	}
	f.configured, f.configuredProxies = c.Listen, c.TrustedProxies
	if len(f.listen) == 0 && !f.stdio {
		f.listen = c.Listen
	}
	if err := f.record(c, log, true); err != nil {
		return err
	}
	b, err := f.prepare(c, log, stderr)
	if err != nil {
		return err
	}
	if f.config == "" {
		for _, u := range c.Upstreams {
			if err := (&env{stderr: stderr, getenv: os.Getenv}).authorizeUpstream(ctx, u); err != nil {
				return err
			}
		}
	}
	f.notices(c, stderr)
	f.drainTimeout.Store(int64(c.DrainTimeout))
	f.setTraces(c)
	f.setLevels(c)
	return f.sharing(ctx, c, log, stderr, func() error {
		return f.serveGateway(ctx, b, c, log, stderr, nil)
	})
}

// launcher is the command that runs another one in a sandbox: this program. Nil: it cannot be
// found.
func launcher() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, "sandbox"}
}

// notices says what is served, and what will not work as one may think.
func (f *serveFlags) notices(c *gateway.Config, stderr io.Writer) {
	var names []string
	for _, u := range c.Upstreams {
		if !u.Disabled {
			names = append(names, u.Name)
		}
	}
	if f.log != logOff {
		fmt.Fprintf(stderr, "farcall: gateway to %s\n", strings.Join(names, ", "))
	}
	for _, n := range c.Notices() {
		if strings.HasPrefix(n.Message, conflict) { // as it is meant, most often; farcall check tells
			continue
		}
		fmt.Fprintf(stderr, "farcall: %s:%d:%d: %s: %s\n", f.config, n.Line, n.Column, n.Path,
			tame(n.Message))
	}
	if f.foundLock != "" && f.log != logOff {
		fmt.Fprintf(stderr,
			"farcall: %s is used because it lies beside %s; write 'lock: %s' there, so that a missing "+
				"file is an error\n", f.foundLock, f.config, lockFile)
	}
	f.warnOfCertificates(c.Guard, cmp.Or(f.config, f.guard), stderr)
	for _, u := range c.Upstreams {
		for _, text := range caveats(u, c) {
			fmt.Fprintf(stderr, "farcall: %s: %s\n", u.Name, tame(text))
		}
	}
	if f.log != logOff {
		f.warnLoose(c, stderr)
	}
}

func (f *serveFlags) gatewayConfig() (*gateway.Config, error) {
	if f.config != "" && f.guard != "" {
		return nil, usagef("Write the guard into the file of --config.",
			"--config and --guard are given both")
	}
	if f.config != "" && len(f.upstreams) > 0 {
		return nil, usagef("Write the upstream into the file, or leave --config out.",
			"--config and --upstream are given both")
	}
	if f.config == "" {
		c, err := upstreamsConfig(f.upstreams, f.lock)
		if err == nil {
			c.Tasks.Dir = f.tasks
		}
		return c, err
	}
	c, found, err := f.load()
	f.foundLock = found
	return c, err
}

// load reads the configuration and applies the flags to it. found is as of loadPinned.
func (f *serveFlags) load() (c *gateway.Config, found string, err error) {
	c, found, err = loadPinned(f.config, f.lock)
	if err == nil && f.tasks != "" {
		c.Tasks.Dir = f.tasks
	}
	if err == nil {
		err = f.withCluster(c)
	}
	return c, found, err
}

// loadConfig reads a configuration. A farcall.lock that lies beside it counts
// unless the file, or --lock, names another one.
func loadConfig(file, lock string) (*gateway.Config, error) {
	c, _, err := loadPinned(file, lock)
	return c, err
}

// loadPinned is loadConfig. found is the lock that counts only because it lies beside the file.
func loadPinned(file, lock string) (c *gateway.Config, found string, err error) {
	if c, err = gateway.Load(file); err != nil {
		return nil, "", configFailure(err)
	}
	if c.Lock = cmp.Or(lock, c.Lock); c.Lock == "" {
		beside := filepath.Join(filepath.Dir(file), lockFile)
		if _, err := os.Stat(beside); err == nil {
			c.Lock, found = beside, beside
		}
	}
	return c, found, nil
}

// configFailure is the exit for a configuration that cannot be read or is not valid.
func configFailure(err error) error {
	bad := (*gateway.ConfigError)(nil)
	file, unread := errors.AsType[*fs.PathError](err)
	switch {
	case !errors.As(err, &bad) && unread:
		return unreadable("the configuration", file.Path, err)
	case bad == nil:
		return &exitError{code: exitFailure, err: plainError{err}}
	case bad.File == "":
		return &exitError{code: exitUsage, err: err}
	}
	return &exitError{
		code: exitUsage, err: fmt.Errorf("%s is not in order:\n%w", bad.File, err),
		hint: "docs/config.md has every key, with an example.",
	}
}

// upstreamsConfig makes a configuration of NAME=TARGET.
func upstreamsConfig(given []string, lock string) (*gateway.Config, error) {
	c := &gateway.Config{Lock: lock}
	for _, text := range given {
		name, to, ok := strings.Cut(text, "=")
		if !ok || name == "" || to == "" {
			return nil, usagef("Write it as --upstream NAME=http://host/mcp or --upstream 'NAME=command "+
				"args'.", "--upstream %s is no NAME=TARGET", text)
		}
		u, err := upstreamOf(name, to)
		if err != nil {
			return nil, err
		}
		c.Upstreams = append(c.Upstreams, u)
	}
	return c, checked(c)
}

func checked(c *gateway.Config) error {
	if err := c.Check(); err != nil {
		return configFailure(err)
	}
	return nil
}

// upstreamOf makes an upstream of a TARGET: an address, or a command in one text.
func upstreamOf(name, text string) (*gateway.Upstream, error) {
	t, err := readTarget(text)
	if err == nil {
		return upstreamAt(name, "", t), nil
	}
	if strings.Contains(text, "://") || strings.HasPrefix(text, "unix:") {
		return nil, err
	}
	u, err := gateway.NewUpstream(name, text)
	if bad := (*gateway.ConfigError)(nil); errors.As(err, &bad) {
		p := bad.Problems[0]
		return nil, usagef("Write it as --upstream NAME=http://host/mcp or --upstream 'NAME=command "+
			"args'.", "--upstream %s: %s", name, p.Message)
	}
	return u, err
}

// upstreamAt makes an upstream of a target, which has a path from now on.
func upstreamAt(name, profile string, t *target.Target) *gateway.Upstream {
	u := &gateway.Upstream{Name: name, Profile: profile}
	switch t.Kind {
	case target.Command:
		u.Command = t.Command
	case target.HTTP, target.WebSocket:
		t.DefaultPath(pathOf(profile))
		u.URL = t.URL.String()
	default:
		u.URL, _, _ = strings.Cut(t.String(), "?") // the framing has its own key
	}
	if t.Framing != stream.NDJSON {
		u.Framing = target.FramingName(t.Framing)
	}
	return u
}

// pathOf is where an upstream is, unless its address says: "" where JSON-RPC is.
func pathOf(profile string) string {
	if profile == profileRaw {
		return ""
	}
	return mcpPath
}

// serveGateway serves a configuration until the end: that of a file, and another
// one whenever the file has changed, or one without a file, and begun, if
// there is one, is called once the addresses accept connections.
func (f *serveFlags) serveGateway(
	ctx context.Context, b *behind, c *gateway.Config, log *slog.Logger, stderr io.Writer,
	begun func(context.Context, *gateway.Gateway),
) error {
	rpc := f.rpcOptions(log)
	c.Listen = f.addresses() // for the page
	f.listening = new(atomic.Pointer[[]net.Listener])
	hide := f.private()
	protect(c, hide, stderr)
	o := gateway.Options{
		Version: versionName(), MaxMessage: int(f.maxMessage), FrameTimeout: f.limits.frameTimeout,
		RPC: &rpc, Logger: log, Sandbox: launcher(), Hide: hide, Never: f.ownAddresses,
		Guard: f.guardOptions(log), Hosts: f.hosts, Origins: f.origins, Gzip: f.gzip,
		Metrics: f.measured(), Shared: f.shared, Dump: f.dumper(),
		NATS: &natsrpc.Transport{Logger: orDiscard(log)}, Conform: conformPage,
	}
	if log != nil {
		o.LogLevels = f.levels
	}
	if f.config != "" {
		o.Reload = f.reloadNow
	}
	g, err := gateway.New(c, &o)
	if err != nil {
		return configFailure(err)
	}
	b.Gateway = g
	f.measured().Read(g.Readings)
	f.measured().Read(f.dropped)
	f.served = c
	var on hooks
	switch {
	case f.config != "":
		f.files = watch.New(f.watched(c), func(files []string) []string {
			return f.reload(g, files, stderr)
		})
		on.watches = append(on.watches, f.files)
	case f.guard != "":
		reload := func(of *guard.Config) error {
			next := *c
			next.Guard = of
			return g.Reload(&next)
		}
		on.watches = append(on.watches, watch.New(f.guardFiles, func(files []string) []string {
			return f.reguard(reload, files, stderr)
		}))
	}
	if begun != nil {
		on.begun = func(ctx context.Context) { begun(ctx, g) }
	}
	return f.serve(ctx, stderr, on)
}

// reload serves the file as it is now; when that is not valid the gateway goes on as before. It
// returns the files to watch: those of before when it is not known which there are now.
func (f *serveFlags) reload(
	g *gateway.Gateway, before []string, stderr io.Writer,
) (files []string) {
	var changes []string
	c, found, err := f.load()
	defer func() { f.reloaded.Store(&reloaded{changes, err}) }()
	var moved bool
	if err == nil {
		if c.Lock == "" && f.foundLock != "" { // it was removed: that opens nothing
			c.Lock, found = f.foundLock, f.foundLock
		}
		f.foundLock = found
		before = f.watched(c)
		moved = !slices.Equal(c.Listen, f.configured)
		c.Listen = f.addresses()
		err = f.checkReload(c.Guard)
	}
	if err == nil {
		makeDirectories(c, slices.Concat(c.Private(), f.private()))
		err = g.Reload(c)
	}
	if err != nil {
		fmt.Fprintf(stderr,
			"farcall: %v\nfarcall: the new configuration is refused; the one before goes on\n", err)
		return before
	}
	f.drainTimeout.Store(int64(c.DrainTimeout))
	f.setTraces(c)
	f.setLevels(c)
	f.notices(c, stderr)
	if moved {
		fmt.Fprintln(stderr, "farcall: listen: it takes effect when farcall is started again")
	}
	if !slices.Equal(c.TrustedProxies, f.configuredProxies) {
		fmt.Fprintln(stderr, "farcall: trusted_proxies: it takes effect when farcall is started again")
	}
	if !reflect.DeepEqual(c.Capture, f.served.Capture) {
		fmt.Fprintln(stderr, "farcall: capture: it takes effect when farcall is started again")
	}
	if !f.moveCertificate(c) {
		fmt.Fprintln(stderr,
			"farcall: tls: adding or removing the certificate takes effect when farcall is started again")
	}
	changes = c.Changes(f.served)
	f.served = c
	fmt.Fprintf(stderr, "farcall: serving the new configuration of %s: %s\n", f.config,
		cmp.Or(strings.Join(changes, ", "), "no key has changed"))
	return before
}

// reloaded is what has come of reading the configuration again.
type reloaded struct {
	changes []string
	err     error
}

// reloadNow reads the configuration again for an operator.
func (f *serveFlags) reloadNow() (changes []string, err error) {
	f.files.Reload()
	last := f.reloaded.Load()
	return last.changes, last.err
}

// watched are the files of a configuration, and the lock that may come to lie beside it.
func (f *serveFlags) watched(c *gateway.Config) []string {
	files := slices.Clone(c.Files())
	if c.Lock != "" {
		return append(files, c.Lock)
	}
	return append(files, filepath.Join(filepath.Dir(f.config), lockFile))
}
