package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/sandbox"
	"github.com/farcall-dev/farcall/internal/size"
)

// sandboxFlags are the options as they are written.
type sandboxFlags struct {
	rules         sandbox.Rules
	mode, memory  string
	env           []string
	check, inside bool
}

func newSandboxCmd(e *env) *cobra.Command { return new(sandboxFlags).command(e) }

func (f *sandboxFlags) command(e *env) *cobra.Command {
	cmd := command("sandbox [flags] -- COMMAND [ARGUMENT]...",
		"Run a command that may touch only what is named",
		func(cmd *cobra.Command, args []string) error {
			if err := f.read(); err != nil {
				return err
			}
			if f.check {
				return f.missing(e)
			}
			if len(args) == 0 {
				return usagef("For example: farcall sandbox --read . -- node server.js", "a COMMAND is needed")
			}
			return f.run(e, args)
		})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows the command is its own
	flags.StringArrayVar(&f.rules.Read, "read", nil,
		"file or directory (`PATH`) that may be read, with all below; repeat for more")
	flags.StringArrayVar(&f.rules.Write, "write", nil, "`PATH` that may be read and written")
	flags.StringArrayVar(&f.rules.Execute, "execute", nil,
		"`PATH` of programs that may be read and executed")
	flags.StringArrayVar(&f.rules.Network, "network", nil,
		"\"none\", \"all\", a TCP `PORT` of public addresses, or HOST:PORT or NETWORK:PORT; repeat for "+
			"more (default none)")
	flags.StringArrayVar(&f.rules.Never, "never", nil,
		"`ADDRESS:PORT` that is never reached, whatever --network says; repeat for more")
	flags.StringVar(&f.memory, "memory", "1GiB",
		"`SIZE` of the memory, for each process and for all together")
	flags.IntVar(&f.rules.Processes, "processes", 64, "at most `N` processes and threads")
	flags.IntVar(&f.rules.Files, "files", 256, "at most `N` open files in a process")
	flags.DurationVar(&f.rules.CPU, "cpu", 0,
		"`TIME` of the processor for each process, as 60s (default no bound)")
	flags.StringArrayVar(&f.env, "env", nil,
		"`NAME` of a variable to hand on, or NAME=VALUE; repeat for more")
	flags.StringVar(&f.mode, "mode", "strict",
		"the `MODE`: \"strict\"; \"best-effort\": run it even where the kernel lacks a part; \"open\": "+
			"confine nothing but --hide")
	flags.StringArrayVar(&f.rules.Hide, "hide", nil,
		"`PATH` that cannot be read unless another flag names it; repeat for more")
	flags.BoolVar(&f.check, "check", false,
		"say what the kernel lacks for these rules, and run nothing")
	flags.BoolVar(&f.rules.KeepEnv, "keep-env", false, "hand the whole environment on")
	flags.BoolVar(&f.inside, strings.TrimPrefix(sandbox.Inside, "--"), false, "")
	_ = flags.MarkHidden(strings.TrimPrefix(sandbox.Inside, "--")) // it was made the line before
	return cmd
}

// read turns the flags into rules.
func (f *sandboxFlags) read() error {
	switch f.mode {
	case "strict":
	case "open":
		f.rules.Open = true
	case "best-effort":
		f.rules.BestEffort = true
	default:
		return usagef("Use strict, best-effort or open.", "there is no mode %q", f.mode)
	}
	var ok bool
	if f.rules.Memory, ok = size.Parse(f.memory, 1, 1<<50); !ok {
		return usagef("For example: --memory 512MB", "%q is not a size", f.memory)
	}
	for _, n := range []int64{int64(f.rules.Processes), int64(f.rules.Files), int64(f.rules.CPU)} {
		if n < 0 {
			return usagef("Leave the flag out for the default.", "a bound cannot be negative")
		}
	}
	if f.rules.CPU > 0 && f.rules.CPU < time.Second {
		return usagef("Use --cpu 1s.", "the processor's time is counted in seconds")
	}
	if err := sandbox.CheckNetwork(f.rules.Network...); err != nil {
		return usagef(
			"Use --network none, --network all, --network 443 for a port of public addresses, or "+
				"--network db.internal:5432.", "--network %s: %w", strings.Join(f.rules.Network, ", "), err)
	}
	return nil
}

// missing says what the kernel lacks.
func (f *sandboxFlags) missing(e *env) error {
	parts := sandbox.Missing(&f.rules)
	if len(parts) == 0 {
		fmt.Fprintln(e.stdout, "this system has all that a strict sandbox needs")
		return nil
	}
	for _, p := range parts {
		fmt.Fprintln(e.stdout, p)
	}
	return &exitError{code: exitFailure}
}

// run is the command's whole life.
func (f *sandboxFlags) run(e *env, command []string) error {
	environ := os.Environ()
	if !f.rules.KeepEnv {
		environ = handedOn(f.env, environ)
	}
	if f.inside {
		return sandbox.Exec(&f.rules, command, environ)
	}
	code, err := sandbox.Run([]string{os.Args[0], "sandbox"}, &f.rules, command, environ,
		func(text string) {
			fmt.Fprintln(e.stderr, "farcall:", text)
		})
	if err != nil {
		return err
	}
	if code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// handedOn is of an environment what is harmless, and what was asked for.
func handedOn(asked, environ []string) []string {
	u := gateway.Upstream{Env: map[string]string{}}
	for _, entry := range asked {
		if name, value, ok := strings.Cut(entry, "="); ok {
			u.Env[name] = value
		} else {
			u.InheritEnv = append(u.InheritEnv, name)
		}
	}
	return u.Environ(environ)
}
