package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/clients"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/inspect"
	"github.com/farcall-dev/farcall/internal/environ"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// inspectAddress is where the page is, unless it is taken.
const inspectAddress = "127.0.0.1:7333"

type inspectFlags struct {
	mcpRemote
	listen    string
	protocol  string
	noBrowser bool
	only      bool
	frames    int
	address   string // of the page
}

func newInspectCmd(e *env) *cobra.Command {
	f := inspectFlags{mcpRemote: mcpRemote{remote: &remote{env: e}, screen: newConsole(e.stderr)}}
	cmd := command("inspect [TARGET | FILE | CLIENT | CAPTURE]",
		"Open a page that calls a server and shows its traffic", f.run)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", inspectAddress,
		"serve the page at this loopback `address`; without it another port when this is taken")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "only print the URL")
	flags.BoolVar(&f.only, "only", false, "let the page use no other servers than those named")
	flags.StringVar(&f.protocol, "protocol", "auto",
		"speak `mcp`, jsonrpc, or auto (MCP, and JSON-RPC if that fails)")
	flags.StringVar(&f.era, "era", "auto", "of MCP speak only `auto|modern|legacy|REVISION`")
	flags.StringArrayVarP(&f.header, "header", "H", nil,
		"send an HTTP header, `'Name: value'`; can be repeated")
	flags.StringVar(&f.bearer, "bearer", "",
		"send the key or token in this `file` as Authorization: Bearer")
	f.tlsFlags(cmd)
	flags.IntVar(&f.frames, "frames", 1_000_000, "keep this many frames at most, and 256 MiB of them")
	return cmd
}

func (f *inspectFlags) run(cmd *cobra.Command, args []string) error {
	ctx, end := interruptible(cmd.Context())
	defer end()
	if !slices.Contains([]string{"auto", "mcp", "jsonrpc"}, f.protocol) {
		return usagef("Use --protocol auto, mcp or jsonrpc.", "there is no protocol %q", f.protocol)
	}
	if _, _, err := era.Select(f.era); err != nil {
		return usagef(eraHint(), "there is no era %q", f.era)
	}
	servers, err := f.servers(ctx, cmd, args)
	if err != nil {
		return err
	}
	stop, err := f.serve(ctx, cmd.Flags().Changed("listen"), &inspect.Options{
		Servers: servers, AnyServer: !f.only, MaxFrames: f.frames,
	})
	if err != nil {
		return err
	}
	defer stop()
	if !f.noBrowser {
		defer f.browse(ctx, f.address)()
	}
	<-ctx.Done()
	return nil
}

// serve serves the page until it is stopped, and prints its URL.
func (f *inspectFlags) serve(
	ctx context.Context, chosen bool, o *inspect.Options,
) (stop func(), err error) {
	l, err := f.open(ctx, chosen)
	if err != nil {
		return nil, err
	}
	o.Connect, o.Version, o.Logger = true, versionName(), slog.New(slog.DiscardHandler)
	o.Conform = conformPage
	i, err := inspect.New(ctx, o)
	if err != nil {
		_ = l.Close() // nothing was served
		return nil, &exitError{code: exitFailure, err: plainError{err}}
	}
	server := &http.Server{
		Handler: i, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	f.address = "http://" + l.Addr().String() + "/#token=" + i.Token()
	fmt.Fprintf(f.stderr, "farcall: the page is at %s\n", f.address)
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	return func() {
		_ = server.Close() // pages connect again when there is another one
		_ = i.Close()      // it returns nil
	}, nil
}

// open listens, on another port if the usual one is taken.
func (f *inspectFlags) open(ctx context.Context, chosen bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(f.listen)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usagef("Use --listen 127.0.0.1:PORT, and a tunnel (ssh -L) from another machine.",
			"--listen: %q is not a loopback address", f.listen)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil && !chosen && errors.Is(err, syscall.EADDRINUSE) {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, failf(exitFailure, "Choose another address with --listen 127.0.0.1:PORT.",
			"cannot listen: %w", err)
	}
	return l, nil
}

// servers are those that the command line names.
func (f *inspectFlags) servers(
	ctx context.Context, cmd *cobra.Command, args []string,
) ([]inspect.Server, error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 && len(args) == 0 {
		return nil, nil // they are added in the page
	}
	if dash > 0 || dash < 0 && len(args) > 1 {
		return nil, usagef("Name one target; a file may name several servers.", "too many arguments")
	}
	if dash < 0 {
		if isCapture(args[0]) {
			return captureOf(args[0])
		}
		if file := serversFile(args[0]); file != "" {
			return serversOf(file)
		}
	}
	t, _, err := f.split(cmd, args)
	if err != nil {
		return nil, err
	}
	s, err := f.serverAt(ctx, t, args[0])
	return []inspect.Server{s}, err
}

// serverAt is the server of a target, which has the name arg.
func (f *inspectFlags) serverAt(
	ctx context.Context, t *target.Target, arg string,
) (s inspect.Server, err error) {
	s = inspect.Server{Protocol: f.protocol, Era: f.era, Target: arg}
	if u := f.entry; u != nil {
		s.Name, s.Target = u.Name, u.URL
		if u.Transport == "sse" {
			s.Era = "legacy"
		}
	}
	if t.Kind == target.Command {
		s.Command, s.Target = t.Command, ""
		if u := f.entry; u != nil {
			s.Env, s.Dir = environ.Child(os.Environ(), u.InheritEnv, u.Env), u.Cwd
		}
		return s, nil
	}
	if t.Kind == target.HTTP || t.Kind == target.WebSocket {
		o := &mcp.ClientOptions{HTTP: &mcphttp.DialOptions{}}
		if s.Header, err = f.headers(); err != nil {
			return s, err
		}
		if s.HTTP, err = f.httpClient(); err != nil {
			return s, err
		}
		o.HTTP.Header, o.HTTP.HTTP = s.Header, s.HTTP
		if f.protocol != "jsonrpc" {
			if at, err := target.Parse(s.Target); err == nil {
				at.DefaultPath(mcpPath)
				if err := f.authorize(ctx, at, o); err != nil {
					return s, err
				}
			}
		}
		s.Authorize = o.HTTP.Authorize
	}
	return s, nil
}

// serversFile returns the file that an argument names: that of a client, or a configuration.
// "": it is a target.
func serversFile(arg string) string {
	if c := clients.Find(arg); c != nil {
		if file, err := c.File(); err == nil {
			return file
		}
	}
	ends := []string{".json", ".jsonc", ".yaml", ".yml", ".toml"}
	if strings.Contains(arg, "://") || !slices.Contains(ends, filepath.Ext(arg)) {
		return ""
	}
	return arg
}

// isCapture reports whether an argument names a capture.
func isCapture(arg string) bool {
	name := strings.TrimSuffix(arg, ".zst")
	return !strings.Contains(arg, "://") &&
		(strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".ndjson"))
}

// captureOf is a capture in the place of a server. It is opened here, too, so that a wrong path
// is an error of the command.
func captureOf(path string) ([]inspect.Server, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return []inspect.Server{{Name: filepath.Base(path), Capture: path}}, nil
}

// serversOf reads the servers of a file.
func serversOf(file string) (list []inspect.Server, err error) {
	c, err := gateway.Load(file)
	if err != nil {
		return nil, configFailure(err)
	}
	all, err := c.Servers()
	if err != nil {
		return nil, configFailure(err)
	}
	for _, s := range all {
		if s.Disabled {
			continue
		}
		one := inspect.Server{
			Name: s.Name, Command: s.Command, Dir: s.Dir, Target: s.URL, InProcess: s.InProcess,
			Protocol: "mcp", Header: http.Header{},
		}
		if len(s.Command) > 0 {
			one.Env = environ.Child(os.Environ(), s.InheritEnv, s.Env)
		}
		for name, value := range s.Headers {
			one.Header.Set(name, value)
		}
		if s.SSE {
			one.Era = "legacy"
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return nil, usagef("Add one, or name a target.", "%s has no server", file)
	}
	return list, nil
}

// browse opens the page in the browser. The address does not stand on a command line, where other
// users of the machine could read the token, but in a file that only this user can read. The
// returned function removes that.
func (f *inspectFlags) browse(ctx context.Context, address string) (remove func()) {
	file, err := os.CreateTemp("", "farcall-inspect-*.html")
	if err != nil {
		fmt.Fprintf(f.stderr, "farcall: open the page yourself: %v\n", err)
		return func() {}
	}
	remove = func() { _ = os.Remove(file.Name()) }
	_, err = fmt.Fprintf(file, "<!doctype html><meta charset=utf-8><title>farcall</title>"+
		"<script>location.replace(%s)</script><a href=%q>The page</a>\n",
		jsonrpc.AppendString(nil, address), html.EscapeString(address))
	if err = errors.Join(err, file.Close()); err != nil {
		fmt.Fprintf(f.stderr, "farcall: open the page yourself: %v\n", err)
		return remove
	}
	words := []string{"xdg-open", file.Name()}
	switch runtime.GOOS {
	case "darwin":
		words[0] = "open"
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler", file.Name()}
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	if err := cmd.Start(); err != nil {
		return remove // the URL is printed
	}
	go func() { _ = cmd.Wait() }() // it ends when the browser has the file
	return remove
}

// conformPage is [inspect.Options.Conform].
func conformPage(
	ctx context.Context, protocol string, s *inspect.Server, each func(name string),
) (any, error) {
	var d conform.Dialer
	switch {
	case s.Dial != nil:
		d = conform.NewMessages(s.Dial)
	case strings.HasPrefix(s.Target, "ws"):
		d = conform.NewWebSocket(s.HTTP, s.Target, s.Header)
	default:
		d = conform.NewHTTP(s.HTTP, s.Target, s.Header)
	}
	o := &conform.Options{OnResult: func(r conform.Result) { each(r.Name) }}
	if protocol == "mcp" {
		return conform.RunMCP(ctx, d, o)
	}
	return conform.Run(ctx, d, o)
}
