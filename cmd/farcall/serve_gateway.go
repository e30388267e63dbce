package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
)

// behind is a gateway, as a service.
type behind struct {
	*gateway.Gateway
}

func (s *behind) start(t farcall.Transport, _ string) { go s.ServeStream(t) }
func (s *behind) serve(t farcall.Transport, _ string) { s.ServeStream(t) }

// drain ends the gateway. Its error is the context's: time was up.
func (s *behind) drain(ctx context.Context) { _ = s.Shutdown(ctx) }

// gateway serves what --config or --upstream says.
func (f *serveFlags) gateway(ctx context.Context, log *slog.Logger, stderr io.Writer) error {
	c, err := f.gatewayConfig()
	if err != nil {
		return err
	}
	for _, n := range c.Notices() {
		fmt.Fprintf(stderr, "farcall: %s:%d:%d: %s: %s\n", f.config, n.Line, n.Column, n.Path, n.Message)
	}
	if len(f.listen) == 0 {
		f.listen = c.Listen
	}
	f.drainTimeout = c.DrainTimeout
	return f.serveGateway(ctx, c, log, stderr)
}

func (f *serveFlags) gatewayConfig() (*gateway.Config, error) {
	if f.config != "" && len(f.upstreams) > 0 {
		return nil, usagef("Write the upstream into the file, or leave --config out.", "--config and --upstream are given both")
	}
	if f.config == "" {
		return upstreamsConfig(f.upstreams, f.lock)
	}
	return loadConfig(f.config, f.lock)
}

// loadConfig reads a configuration. A farcall.lock that lies beside it counts
// unless the file, or --lock, names another one.
func loadConfig(file, lock string) (*gateway.Config, error) {
	c, err := gateway.Load(file)
	if err != nil {
		return nil, configFailure(err)
	}
	if lock != "" {
		c.Lock = lock
	}
	if c.Lock == "" {
		beside := filepath.Join(filepath.Dir(file), lockFile)
		if _, err := os.Stat(beside); err == nil {
			c.Lock = beside
		}
	}
	return c, nil
}

// configFailure is the exit for a configuration that is not valid.
func configFailure(err error) error {
	if bad := (*gateway.ConfigError)(nil); errors.As(err, &bad) {
		return &exitError{code: exitUsage, err: err, hint: "'farcall check' says more about a file that is valid."}
	}
	return &exitError{code: exitFailure, err: err}
}

// upstreamsConfig makes a configuration of NAME=TARGET.
func upstreamsConfig(given []string, lock string) (*gateway.Config, error) {
	c := &gateway.Config{Lock: lock}
	for _, text := range given {
		name, target, ok := strings.Cut(text, "=")
		if !ok || name == "" || target == "" {
			return nil, usagef("Write it as --upstream NAME=http://host/mcp or --upstream 'NAME=command args'.", "--upstream %s is no NAME=TARGET", text)
		}
		u, err := upstreamOf(name, strings.TrimSpace(strings.TrimPrefix(target, "-- ")), "")
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

// upstreamOf makes an upstream of a TARGET: an address, or a command in one
// string.
func upstreamOf(name, text, profile string) (*gateway.Upstream, error) {
	t, err := parseTarget(text)
	if err != nil {
		if strings.Contains(text, "://") || strings.HasPrefix(text, "unix:") {
			return nil, err
		}
		t = target{kind: kindChild, command: strings.Fields(text)}
	}
	return upstreamAt(name, text, profile, t), nil
}

func upstreamAt(name, text, profile string, t target) *gateway.Upstream {
	u := &gateway.Upstream{Name: name, Profile: profile}
	switch t.kind {
	case kindChild:
		u.Command = t.command
	case kindHTTP, kindWS:
		at := *t.url
		if profile != profileRaw && !hasPath(text) {
			at.Path = mcpPath
		}
		u.URL = at.String()
	case kindUnix:
		u.URL = "unix:" + t.address
	default:
		u.URL = t.kind + "://" + t.address
	}
	if t.header {
		u.Framing = "header"
	}
	return u
}

// serveGateway serves a configuration until the end, and another one whenever
// the file has changed.
func (f *serveFlags) serveGateway(ctx context.Context, c *gateway.Config, log *slog.Logger, stderr io.Writer) error {
	rpc := f.rpcOptions(log)
	g, err := gateway.New(c, &gateway.Options{Version: versionName(), MaxMessage: int(f.maxMessage), RPC: &rpc, Logger: log})
	if err != nil {
		return configFailure(err)
	}
	if f.config == "" {
		return f.serve(ctx, &behind{g}, log, stderr, nil)
	}
	reload := func() { f.reload(g, stderr) }
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan struct{})
	go func() {
		defer close(changes)
		f.watch(ctx, reload)
	}()
	defer func() {
		cancel()
		<-changes
	}()
	return f.serve(ctx, &behind{g}, log, stderr, reload)
}

// reload serves the file as it is now; when that is not valid the gateway goes on
// as before.
func (f *serveFlags) reload(g *gateway.Gateway, stderr io.Writer) {
	c, err := loadConfig(f.config, f.lock)
	if err == nil {
		err = g.Reload(c)
	}
	if err != nil {
		fmt.Fprintf(stderr, "farcall: %v\nfarcall: the new configuration is refused; the one before goes on\n", err)
		return
	}
	fmt.Fprintf(stderr, "farcall: serving the new configuration of %s\n", f.config)
}

// watchEvery is how often the configuration is looked at. Asking works on every
// file system, and for files that are links to others.
const watchEvery = time.Second

// watch calls changed when the file has changed and has then been left alone for
// a moment.
func (f *serveFlags) watch(ctx context.Context, changed func()) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	served, last := f.stamp(), f.stamp()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := f.stamp()
		if now == last && now != served && now != (stamp{}) {
			served = now
			changed()
		}
		last = now
	}
}

// stamp tells versions of the files apart; the zero one is of no file.
type stamp struct{ config, lock fileStamp }

type fileStamp struct {
	size  int64
	nanos int64
}

func (f *serveFlags) stamp() stamp {
	config := stampOf(f.config)
	if config == (fileStamp{}) {
		return stamp{}
	}
	lock := f.lock
	if lock == "" {
		lock = filepath.Join(filepath.Dir(f.config), lockFile)
	}
	return stamp{config, stampOf(lock)}
}

func stampOf(file string) fileStamp {
	info, err := os.Stat(file)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.Size(), info.ModTime().UnixNano()}
}
