package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// lockFile is the name of the file with the pins.
const lockFile = "farcall.lock"

func newPinCmd(e *env) *cobra.Command {
	var accept bool
	var lock string
	var timeout time.Duration
	cmd := command("pin FILE|TARGET", "Pin what servers say: what changes later is blocked",
		func(cmd *cobra.Command, args []string) error {
			c, err := pinConfig(cmd, args)
			if err != nil {
				return err
			}
			path := cmp.Or(lock, c.Lock)
			if path == "" {
				path = lockFile
				if c.Listen == nil && len(args) == 1 && isConfigFile(args[0]) {
					path = filepath.Join(filepath.Dir(args[0]), lockFile)
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return pinAll(ctx, e, c, path, accept)
		})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&accept, "accept", false, "write what the servers have now")
	flags.StringVar(&lock, "lock", "",
		"`file` to write (default "+lockFile+" beside the configuration)")
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the servers")
	return cmd
}

// isConfigFile tells a configuration from a TARGET.
func isConfigFile(text string) bool {
	switch strings.ToLower(filepath.Ext(text)) {
	case ".yaml", ".yml", ".json":
		return !strings.Contains(text, "://")
	}
	return false
}

func pinConfig(cmd *cobra.Command, args []string) (*gateway.Config, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash == 0 && len(args) > 0:
		c := &gateway.Config{
			Upstreams: []*gateway.Upstream{upstreamAt(bridged, "mcp", target.Child(args))},
		}
		if err := runnable(c.Upstreams[0]); err != nil {
			return nil, &exitError{code: exitConnect, err: err, hint: notRun}
		}
		return c, checked(c)
	case dash >= 0 || len(args) != 1:
		return nil, usagef("For example: farcall pin farcall.yaml", "one FILE or TARGET is needed")
	case isConfigFile(args[0]):
		return loadConfig(args[0], "")
	}
	u, err := lookUp(args[0])
	if err == nil && u == nil {
		var t *target.Target
		if t, err = readTarget(args[0]); err == nil {
			u = upstreamAt(bridged, "mcp", t)
		}
	}
	if err != nil {
		return nil, err
	}
	c := &gateway.Config{Upstreams: []*gateway.Upstream{u}}
	return c, checked(c)
}

// pinFailure is the exit when not everything could be compared.
func pinFailure(err error) error {
	exit := &exitError{
		code: exitFailure, err: errors.New(tame(strings.TrimPrefix(err.Error(), "gateway: "))),
	}
	wire := (*jsonrpc.Error)(nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		exit.code, exit.hint = exitTimeout, "Wait longer with --timeout 5m. Nothing was written."
	case errors.As(err, &wire):
		exit.err = errors.New(tame(strings.Replace(err.Error(), wire.Error(), wire.Message, 1)))
		exit.code, exit.hint = exitConnect,
			"Nothing was written: all servers have to be there. In a file, 'disabled: true' leaves one out."
	}
	return exit
}

// pinAll compares the servers with the file, and writes it when there is none or
// accept is given.
func pinAll(ctx context.Context, e *env, c *gateway.Config, path string, accept bool) error {
	_, missing := os.Stat(path)
	c.Lock, c.Cluster = "", cluster.Config{} // the file is compared, and nothing that nodes share
	g, err := gateway.New(c, &gateway.Options{Version: versionName()})
	if err != nil {
		return configFailure(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		_ = g.Shutdown(ctx) // nothing is in flight
	}()
	write := accept || missing != nil
	changes, count, err := g.Pin(ctx, path, write)
	if err != nil {
		return pinFailure(err)
	}
	fmt.Fprint(e.stdout, changes)
	switch {
	case write:
		fmt.Fprintf(e.stdout, "pinned %s in %s\n", countOf(count, "definition"), path)
	case changes == "":
		fmt.Fprintf(e.stdout, "%s in %s, all unchanged\n", countOf(count, "definition"), path)
	default:
		return failf(exitFailure,
			"Read the changes above: a model will act on them. 'farcall pin --accept' accepts all of them.",
			"the servers are not as %s has them", path)
	}
	return nil
}
