package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
)

// profileRaw is the profile for JSON-RPC that is not MCP.
const profileRaw = "raw"

type bridgeFlags struct {
	serveFlags
	remote   remote
	lifetime string
	pool     int
	era      string
	env      []string
	cwd      string
}

func newBridgeCmd(e *env) *cobra.Command {
	f := bridgeFlags{remote: remote{env: e}}
	cmd := &cobra.Command{
		Use:   "bridge FROM TO",
		Short: "Put one server behind another transport, in every revision of MCP",
		Long: `Connect callers of one transport to a server of another one. Callers of MCP may
speak any revision, whatever the server speaks; any other JSON-RPC passes as it is.

FROM is where callers come in:
  host:port, :port, unix:PATH       every transport on one port, with the paths
                                    of farcall serve: /mcp, /sse, /rpc, /rpc/ws;
                                    http://, ws:// and tcp:// before it are allowed
  stdio                             standard input and output

TO is the server:
` + strings.Join(strings.Split(targetForms, "\n")[1:], "\n"),
		Example: `  farcall bridge 127.0.0.1:8080 -- npx -y @modelcontextprotocol/server-everything
  farcall bridge stdio https://example.com/mcp
  farcall bridge ws://127.0.0.1:9000 --profile raw --framing header -- gopls`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.profile, "profile", "auto", "what passes: mcp, raw (any JSON-RPC, as it is), or auto (the first message says)")
	flags.StringArrayVarP(&f.remote.header, "header", "H", nil, "send an HTTP header to TO, `'Name: value'`; can be repeated")
	flags.StringVar(&f.remote.framing, "framing", "", "frame messages of TO, a byte stream, by `line` or by header")
	flags.DurationVar(&f.remote.timeout, "timeout", time.Minute, "how long a call may be without an answer or progress")
	flags.StringVar(&f.lifetime, "lifetime", "", "who shares a child: shared, session or call (default shared; raw: a child for each connection)")
	flags.IntVar(&f.pool, "pool", 0, "children at most that carry one call at a time (default 8)")
	flags.StringVar(&f.era, "era", "", "what to speak to the server: auto, modern, legacy or a revision (default auto)")
	flags.StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` for the command's environment, or NAME for one of farcall's own; can be repeated")
	flags.StringVar(&f.cwd, "cwd", "", "`directory` in which the command runs")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`file` with the certificate (PEM); makes the port speak TLS too")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`file` with the private key (PEM)")
	flags.Var(&f.maxMessage, "max-message", "largest message, such as 10MB (default: stdio 10MB, TCP 100MB, HTTP and WebSocket 50MB)")
	flags.BoolVar(&f.details, "details", false, "tell callers the Go type and text of internal errors; for trusted callers only")
	flags.StringVar(&f.log, "log", "text", "`format` of the log on standard error: text, json or off")
	flags.BoolVar(&f.logPayloads, "log-payloads", false, "log the messages too, up to 16 KiB of each; they may hold secrets")
	return cmd
}

func (f *bridgeFlags) run(cmd *cobra.Command, e *env, args []string) error {
	if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
		return usagef("For example: farcall bridge 127.0.0.1:8080 -- ./server --stdio", "no FROM")
	}
	if err := f.from(args[0]); err != nil {
		return err
	}
	c, err := f.config1(cmd, args[1:])
	if err != nil {
		return err
	}
	stderr := &lockedWriter{w: e.stderr}
	log, err := newLogger(f.log, stderr)
	if err != nil {
		return err
	}
	return f.serveGateway(cmd.Context(), c, log, stderr)
}

// from reads FROM.
func (f *bridgeFlags) from(text string) error {
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
			return usagef("FROM is stdio, host:port or unix:PATH.", "there is no transport %q", scheme)
		}
	}
	f.listen = []string{address}
	return checkAddress(address)
}

// config1 is the configuration of the one server. rest are the arguments after
// FROM.
func (f *bridgeFlags) config1(cmd *cobra.Command, rest []string) (*gateway.Config, error) {
	var t target
	text := ""
	switch dash := cmd.ArgsLenAtDash(); {
	case dash == 1 && len(rest) > 0:
		t = target{kind: kindChild, command: rest}
	case dash < 0 && len(rest) == 1:
		var err error
		if t, err = parseTarget(rest[0]); err != nil {
			return nil, err
		}
		text = rest[0]
	case len(rest) == 0:
		return nil, usagef("For example: farcall bridge "+cmd.Flags().Arg(0)+" -- ./server --stdio", "no TO")
	default:
		return nil, usagef("A command stands behind --: farcall bridge FROM -- command args", "too many arguments")
	}
	switch f.remote.framing {
	case "", "line", "lines":
	case "header", "headers":
		t.header = true
	default:
		return nil, usagef("Use --framing line or --framing header.", "there is no framing %q", f.remote.framing)
	}
	if err := f.remote.check(t); err != nil {
		return nil, err
	}
	u := upstreamAt("server", text, f.profile, t)
	u.Lifetime, u.Pool, u.Era, u.Cwd = f.lifetime, f.pool, f.era, f.cwd
	u.Timeout, u.MaxMessage = f.remote.timeout, int64(f.maxMessage)
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
	c := &gateway.Config{Upstreams: []*gateway.Upstream{u}}
	return c, checked(c)
}

