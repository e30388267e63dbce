package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/inspect"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/watch"
	"github.com/farcall-dev/farcall/mcp"
)

type devFlags struct {
	bridgeFlags
	address, page string
	dirs, ends    []string
	noPage        bool

	tools []byte // of the server, as JSON; nil: not known
}

// devEnds are the ends of the names of files that are watched.
const devEnds = ".c,.cc,.cs,.css,.env,.ex,.exs,.go,.h,.html,.java,.js,.json,.jsx,.kt,.mjs,.php," +
	".py,.rb,.rs,.sql,.tmpl,.toml,.ts,.tsx,.yaml,.yml,go.mod"

func newDevCmd(e *env) *cobra.Command {
	f := devFlags{bridgeFlags: bridgeFlags{remote: remote{env: e}}}
	cmd := command("dev -- COMMAND", "Run a server while you write it, and restart it on save",
		func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return usagef("For example: farcall dev -- go run .", "no command behind --")
			}
			return f.run(cmd, e, args)
		})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.address, "listen", "127.0.0.1:7331",
		"`address` for clients, as FROM of 'farcall bridge'")
	flags.BoolVar(&f.stdio, "stdio", false, "serve one client over standard input and output instead")
	flags.StringArrayVar(&f.dirs, "watch", []string{"."},
		"`directory` to watch, with those in it; can be repeated")
	flags.StringSliceVar(&f.ends, "ends", strings.Split(devEnds, ","),
		"`ends` of the names of files that are watched")
	flags.StringVar(&f.page, "page", inspectAddress,
		"serve the page of 'farcall inspect' at this loopback `address`")
	flags.BoolVar(&f.noPage, "no-page", false, "serve no page")
	flags.StringArrayVar(&f.env, "env", nil,
		"`NAME=VALUE` for the command's environment, or NAME for one of farcall's own; can be repeated")
	flags.StringVar(&f.cwd, "cwd", "", "`directory` in which the command runs")
	flags.DurationVar(&f.remote.timeout, "timeout", time.Minute,
		"how long a call may be without an answer or progress")
	f.limits.register(cmd)
	f.registerLog(cmd)
	f.logLevel = "warn" // each call would be a line
	return cmd
}

func (f *devFlags) run(cmd *cobra.Command, e *env, args []string) error {
	from := f.address
	if f.stdio {
		from = "stdio"
	}
	if err := f.from(from); err != nil {
		return err
	}
	f.profile = "mcp"
	stop, err := func() {}, error(nil)
	begun := func(ctx context.Context, g *gateway.Gateway, c *gateway.Config, stderr io.Writer) {
		if stop, err = f.open(ctx, cmd, g, stderr); err != nil {
			fmt.Fprintf(stderr, "farcall: no page: %v\n", err)
		}
		f.work(ctx, g, c, stderr)
	}
	defer func() { stop() }()
	return f.between(cmd, e, from, target.Child(args), begun)
}

// pipeTo is a connection in memory with the gateway.
func pipeTo(g *gateway.Gateway) func(context.Context) (farcall.Transport, error) {
	return func(context.Context) (farcall.Transport, error) {
		ours, its := farcall.Pipe()
		go g.ServeStream(its, &guard.Conn{Transport: "stdio"}) // it ends with the connection
		return ours, nil
	}
}

// open serves the page of the inspector beside the gateway.
func (f *devFlags) open(
	ctx context.Context, cmd *cobra.Command, g *gateway.Gateway, stderr io.Writer,
) (stop func(), err error) {
	if f.noPage {
		return func() {}, nil
	}
	page := inspectFlags{
		mcpRemote: mcpRemote{remote: &remote{env: &env{stderr: stderr}}},
		listen:    f.page,
	}
	return page.serve(ctx, cmd.Flags().Changed("page"), &inspect.Options{
		Servers: []inspect.Server{{Name: "the server", Protocol: "mcp", Dial: pipeTo(g)}},
	})
}

// work starts the server, and again when files have changed, until the context ends.
func (f *devFlags) work(
	ctx context.Context, g *gateway.Gateway, c *gateway.Config, stderr io.Writer,
) {
	tick := time.NewTicker(watch.Every / 2)
	defer tick.Stop()
	seen := f.stamp()
	f.show(ctx, g, stderr)
	for last, n := seen, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := f.stamp()
		if now == last && now != seen { // changed, and then left alone for a moment
			seen = now
			n++
			next, u := *c, *c.Upstreams[0]
			u.Env = maps.Clone(u.Env)
			if u.Env == nil {
				u.Env = map[string]string{}
			}
			u.Env["FARCALL_DEV"] = strconv.Itoa(n) // another server, for the gateway
			next.Upstreams = []*gateway.Upstream{&u}
			if err := g.Reload(&next); err != nil {
				fmt.Fprintf(stderr, "farcall: cannot start the server again: %v\n", err)
			} else {
				fmt.Fprintln(stderr, "farcall: files have changed: the server is started again")
				f.show(ctx, g, stderr)
			}
		}
		last = now
	}
}

// show prints how many tools the server has, or what has changed in them.
func (f *devFlags) show(ctx context.Context, g *gateway.Gateway, stderr io.Writer) {
	err := g.Connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			fmt.Fprintf(stderr, "farcall: %s\n", serverReason(err))
		}
		return
	}
	tools, n, err := toolsOf(ctx, g)
	if err != nil {
		fmt.Fprintf(stderr, "farcall: its tools are not known: %s\n", plainWords(err))
		return
	}
	was := f.tools
	f.tools = tools
	found, err := diff.New(nil).Documents(was, tools)
	if was == nil || err != nil || len(found) == 0 {
		fmt.Fprintf(stderr, "farcall: the server has %s\n", countOf(n, "tool"))
		return
	}
	report := &mock.Report{Results: []mock.Result{{Findings: found}}}
	_ = new(changeFlags).printText(&env{stdout: stderr}, report) // standard error has no errors
}

// toolsOf are the tools that clients see, as JSON, and how many they are.
func toolsOf(ctx context.Context, g *gateway.Gateway) (raw []byte, n int, err error) {
	t, _ := pipeTo(g)(ctx) // it returns no error
	o := &mcp.ClientOptions{Name: "farcall-dev", Version: versionName(), NoCache: true}
	client, err := mcp.Connect(ctx, t, o)
	if err != nil {
		return nil, 0, err
	}
	defer client.Close() //nolint:errcheck // it is only about this connection
	tools, err := client.Tools(ctx)
	if err == nil {
		raw, err = jsonv2.Append(nil, tools)
	}
	return raw, len(tools), err
}

// devSkipped are directories with what programs make or install.
var devSkipped = []string{
	"node_modules", "target", "dist", "build", "out", "vendor", "venv",
	"__pycache__",
}

// stamp tells versions of the files apart.
func (f *devFlags) stamp() (sum uint64) {
	for _, dir := range f.dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			name := ""
			if err == nil {
				name = d.Name()
			}
			switch {
			case err != nil:
				return nil //nolint:nilerr // what cannot be read has not changed
			case d.IsDir() && path != dir && (name[0] == '.' || slices.Contains(devSkipped, name)):
				return fs.SkipDir
			case !d.IsDir() && slices.ContainsFunc(f.ends, func(end string) bool {
				return strings.HasSuffix(name, end)
			}):
				if info, err := d.Info(); err == nil {
					h := fnv.New64a()
					fmt.Fprint(h, path, info.Size(), info.ModTime().UnixNano())
					sum += h.Sum64()
				}
			}
			return nil
		})
	}
	return sum
}
