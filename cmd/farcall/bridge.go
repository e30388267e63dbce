package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// profileRaw is the profile for JSON-RPC that is not MCP.
const profileRaw = "raw"

// bridged is the name of the only server of a bridge, in errors and logs.
const bridged = "server"

// notRun is the hint for a command that cannot be run.
const notRun = "Nothing was started. A command is a program and its arguments, and is run " +
	"without a shell."

type bridgeFlags struct {
	serveFlags
	remote   remote
	lifetime string
	pool     int
	era      string
	env      []string
	cwd      string
	ahead    *mocking // of farcall mock
}

func newBridgeCmd(e *env) *cobra.Command {
	return (&bridgeFlags{remote: remote{env: e}}).command(e)
}

func (f *bridgeFlags) command(e *env) *cobra.Command {
	cmd := command("bridge FROM TO",
		"Put one server behind another transport, in every revision of MCP",
		func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) })
	cmd.Flags().SortFlags = false
	f.register(cmd)
	return cmd
}

func (f *bridgeFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "profile", "auto",
		"what passes: `mcp`, raw (any JSON-RPC, as it is), or auto (the path or the first message says)")
	flags.StringArrayVarP(&f.remote.header, "header", "H", nil,
		"send an HTTP header to TO, `'Name: value'`; can be repeated")
	flags.StringVar(&f.remote.framing, "framing", "",
		"frame messages of TO, a byte stream, by `line`, header or raw")
	flags.DurationVar(&f.remote.timeout, "timeout", time.Minute,
		"how long a call may be without an answer or progress")
	flags.StringVar(&f.lifetime, "lifetime", "",
		"who shares a connection or child: `auto`, shared (one for all), session or call (default "+
			"auto; raw: a child for each connection)")
	flags.IntVar(&f.pool, "pool", 0,
		"connections or children at most for the requests of one caller that have no session (default 8)")
	flags.StringVar(&f.era, "era", "",
		"what to speak to the server: `auto`, modern, legacy or a revision (default auto)")
	flags.StringArrayVar(&f.env, "env", nil,
		"`NAME=VALUE` for the command's environment, or NAME for one of farcall's own; can be repeated")
	flags.StringVar(&f.cwd, "cwd", "", "`directory` in which the command runs")
	flags.StringVar(&f.lock, "lock", "",
		"`file` with what the server said when it was pinned, which 'farcall pin TARGET' writes")
	flags.StringArrayVar(&f.origins, "origin", nil,
		"`ORIGIN` of web pages on other hosts that may call: https://app.example.com, localhost:3000, "+
			"*.example.com, or * for all; can be repeated")
	flags.StringArrayVar(&f.hosts, "host", nil,
		"DNS `name` of this server, or *.example.com, that a request without credentials may have in "+
			"its Host header; can be repeated")
	flags.StringArrayVar(&f.trusted, "trusted-proxy", nil,
		"`CIDR` or address of a proxy, or unix: its X-Forwarded-For, Forwarded and PROXY protocol name "+
			"the client; can be repeated")
	flags.StringVar(&f.tlsCert, "tls-cert", "",
		"`file` with the certificate (PEM); the port speaks TLS then, and nothing else")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`file` with the private key (PEM)")
	flags.StringVar(&f.clientCA, "tls-client-ca", "",
		"`file` with the authorities (PEM) with client certificates that count, for mtls of the guard")
	flags.BoolVar(&f.insecure, "insecure", false,
		"listen where other machines can connect without a guard or TLS, and accept connections "+
			"without TLS beside a certificate")
	flags.StringVar(&f.guard, "guard", "",
		"`file` with the key guard, as in farcall.yaml: who may call what")
	flags.Var(&f.maxMessage, "max-message",
		"largest message, such as 10MB (default: stdio 10MB, TCP 100MB, HTTP and WebSocket 50MB)")
	f.limits.register(cmd)
	flags.BoolVar(&f.details, "details", false,
		"tell callers the Go type and text of internal errors; for trusted callers only")
	f.registerLog(cmd)
}

func (f *bridgeFlags) run(cmd *cobra.Command, e *env, args []string) error {
	if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
		return usagef("For example: farcall bridge 127.0.0.1:8080 -- ./server --stdio", "no FROM")
	}
	if err := f.from(args[0]); err != nil {
		return err
	}
	t, err := f.to(cmd, args)
	if err != nil {
		return err
	}
	begun := func(ctx context.Context, g *gateway.Gateway, c *gateway.Config, stderr io.Writer) {
		if !f.stdio && t.Framing != stream.Header { // a client on standard input is there already
			connectNow(ctx, g, c.Upstreams[0], stderr)
		}
	}
	return f.between(cmd, e, args[0], t, begun)
}

// between serves one server at FROM. begun is called once callers can come.
func (f *bridgeFlags) between(
	cmd *cobra.Command, e *env, from string, t *target.Target,
	begun func(context.Context, *gateway.Gateway, *gateway.Config, io.Writer),
) error {
	c, err := f.config1(t)
	if err != nil {
		return err
	}
	if err := f.putUp(c); err != nil {
		return err
	}
	stderr := &lockedWriter{w: e.stderr}
	log, err := f.newLogger(cmd.Context(), stderr)
	if err != nil {
		return err
	}
	if err := f.trace(cmd.Context(), log); err != nil {
		return err
	}
	defer f.flush(cmd.Context(), log)
	b, err := f.prepare(c, log, stderr)
	if err != nil {
		return err
	}
	if b.ahead = f.ahead; b.ahead != nil {
		b.ahead.begin(b)
	}
	if err := runnable(c.Upstreams[0]); err != nil {
		return &exitError{code: exitConnect, err: err, hint: notRun}
	}
	if err := e.authorizeUpstream(cmd.Context(), c.Upstreams[0]); err != nil {
		return err
	}
	if log != nil {
		fmt.Fprintf(stderr, "farcall: bridge from %s to %s\n", from, tame(c.Upstreams[0].Target()))
	}
	return f.serveGateway(cmd.Context(), b, c, log, stderr,
		func(ctx context.Context, g *gateway.Gateway) {
			begun(ctx, g, c, stderr)
		})
}

// connectNow connects to the server, so that who has started the bridge hears at
// once when that does not work.
func connectNow(ctx context.Context, g *gateway.Gateway, u *gateway.Upstream, stderr io.Writer) {
	err := g.Connect(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	hint := "Callers get this error until the server is there; each call tries again."
	if u.Profile != "mcp" && !errors.Is(err, farcall.ErrClosed) && !errors.As(err, new(*net.OpError)) {
		hint += " Is it a server of JSON-RPC that does not speak MCP? Then add --profile raw."
	}
	fmt.Fprintf(stderr, "farcall: %s\n%s\n", serverReason(err), hint)
}

// serverReason is why a server is not there.
func serverReason(err error) string {
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return tame(wire.Message)
	}
	return tame(err.Error())
}

// from reads FROM.
func (f *bridgeFlags) from(text string) error {
	const hint = "FROM is stdio, host:port or unix:PATH."
	if text == "stdio" || text == "-" {
		f.stdio = true
		return nil
	}
	address := text
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		switch scheme {
		case "http", "ws", "tcp":
			address, _, _ = strings.Cut(rest, "/")
		case "unix":
			address = "unix:" + rest
		case "https", "wss", "tls":
			if f.tlsCert == "" {
				return usagef("Add --tls-cert and --tls-key.", "%s needs a certificate", text)
			}
			address, _, _ = strings.Cut(rest, "/")
		default:
			return usagef(hint, "there is no transport %q", scheme)
		}
	}
	f.listen = []string{address}
	err := checkAddress(address)
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		exit.hint = strings.ReplaceAll(exit.hint, "--listen ", "")
	}
	return err
}

// to reads TO.
func (f *bridgeFlags) to(cmd *cobra.Command, args []string) (t *target.Target, err error) {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash == 1 && len(args) > 1:
		t = target.Child(args[1:])
	case dash < 0 && len(args) == 2:
		if t, err = f.remote.locate(args[1]); err != nil {
			return t, err
		}
		t.DefaultPath(pathOf(f.profile))
	case len(args) == 1:
		return t, usagef("For example: farcall bridge "+args[0]+" -- ./server --stdio", "no TO")
	default:
		return t, usagef("A command stands behind --: farcall bridge FROM -- command args",
			"too many arguments")
	}
	if err := f.remote.frame(t); err != nil {
		return t, err
	}
	return t, f.remote.check(t)
}

// config1 is the configuration of the one server.
func (f *bridgeFlags) config1(t *target.Target) (*gateway.Config, error) {
	u := upstreamAt(bridged, f.profile, t)
	u.Lifetime, u.Pool, u.Era, u.Cwd = f.lifetime, f.pool, f.era, f.cwd
	u.Timeout, u.MaxMessage = f.remote.timeout, int64(f.maxMessage)
	if from := f.remote.entry; from != nil {
		u.Env, u.InheritEnv, u.Transport = maps.Clone(from.Env), slices.Clone(from.InheritEnv),
			from.Transport
		u.Cwd = cmp.Or(u.Cwd, from.Cwd)
	}
	headers, err := f.remote.headers()
	if err != nil {
		return nil, err
	}
	for name := range headers {
		if u.Headers == nil {
			u.Headers = map[string]string{}
		}
		u.Headers[name] = headers.Get(name)
	}
	for _, text := range f.env {
		name, value, given := strings.Cut(text, "=")
		if !given {
			u.InheritEnv = append(u.InheritEnv, name)
			continue
		}
		if u.Env == nil {
			u.Env = map[string]string{}
		}
		u.Env[name] = value
	}
	c := &gateway.Config{Upstreams: []*gateway.Upstream{u}, Lock: f.lock, Namespace: "never"}
	return c, asFlags(c.Check())
}

// asFlags tells of what is wrong with the upstream by the names of the flags that
// say it.
func asFlags(err error) error {
	bad := (*gateway.ConfigError)(nil)
	if !errors.As(err, &bad) {
		return err
	}
	p := bad.Problems[0]
	what := strings.TrimPrefix(p.Path, "upstreams."+bridged)
	switch flag, _, _ := strings.Cut(strings.TrimPrefix(what, "."), "."); flag {
	case "", "command", "url":
		what = "TO: "
	case "headers":
		what = "--header: "
	case "inherit_env", "env":
		what = "--env: "
	case "max_message":
		what = "--max-message: "
	default:
		what = "--" + flag + ": "
	}
	hint, _, _ := strings.Cut(p.Hint, "; ")
	if hint != "" {
		hint = strings.ToUpper(hint[:1]) + hint[1:] + "."
	}
	return usagef(hint, "%s%s", what, p.Message)
}
