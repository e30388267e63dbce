package gateway

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/farcall-dev/farcall/internal/sandbox"
)

// Private are the files and directories of the gateway that hold secrets or evidence: the
// configuration and what it refers to, the audit, locks, stored tasks, keys and tokens. No command
// that [Options.Sandbox] starts can read them, unless its sandbox names the file itself or is
// "none".
func (c *Config) Private() []string {
	out := slices.Clone(c.files)
	if c.Guard != nil {
		for _, file := range []string{c.Guard.Audit.File, c.Guard.LocksFile} {
			if file != "" && file != "-" {
				out = append(out, file)
			}
		}
	}
	for _, path := range []string{
		c.Capture.File, c.Capture.Dumps, c.Tasks.Dir, c.Cluster.Dir, c.SignIn.Dir, c.TLS.Key,
	} {
		if path != "" {
			out = append(out, path)
		}
	}
	for _, u := range c.Upstreams {
		if u.TLS.Key != "" && !slices.Contains(out, u.TLS.Key) {
			out = append(out, u.TLS.Key)
		}
		if u.Auth == nil {
			continue
		}
		for _, file := range []string{u.Auth.Store, u.Auth.AssertionFile} {
			if file != "" && file != keyringStore && !slices.Contains(out, file) {
				out = append(out, file)
			}
		}
	}
	return out
}

// absolute makes paths independent of where a command runs.
func absolute(files []string) []string {
	out := make([]string, 0, len(files))
	for _, file := range files {
		if full, err := filepath.Abs(file); err == nil {
			file = full
		}
		out = append(out, file)
	}
	return out
}

// confined is the command that runs the upstream's in its sandbox, or, if it has none, without a
// way to read the gateway: see [sandbox.Rules]. The launcher hands the environment on, where
// secrets may be: none is on its command line.
func (c *Upstream) confined(launcher, private []string, never func() []string) ([]string, error) {
	switch {
	case c.Sandbox == nil && (len(launcher) == 0 || runtime.GOOS != "linux" || len(private) == 0 && os.Geteuid() != 0):
		return c.Command, nil
	case c.Sandbox == nil:
		return sandbox.Command(launcher, &sandbox.Rules{Open: true, Hide: private}, c.Command), nil
	case c.Sandbox.Mode == sandboxNone:
		return c.Command, nil
	}
	if len(launcher) == 0 {
		return nil, fmt.Errorf(`gateway: upstream %s has a sandbox, and nothing to run it with: set Options.Sandbox to a command like "farcall sandbox", or remove the sandbox`, c.Name)
	}
	r := c.Sandbox.rules(private)
	if never != nil {
		r.Never = never()
	}
	if c.Cwd != "" {
		r.Read = append([]string{"."}, r.Read...) // where the launcher is started
	}
	return sandbox.Command(launcher, r, c.Command), nil
}

// rules are those of a sandbox that is not "none".
func (s *Sandbox) rules(private []string) *sandbox.Rules {
	return &sandbox.Rules{
		BestEffort: s.Mode == "best-effort",
		Read:       s.Read, Write: s.Write, Execute: s.Execute, Network: s.Network,
		Memory: s.Memory, Processes: s.Processes, Files: s.Files, CPU: s.CPU,
		Hide: private,
	}
}

// Loose returns those of some private files that a command of the upstream reads when something
// replaces them while it runs, because they are in a directory with other files, or in its working
// directory.
func (c *Upstream) Loose(private []string) []string {
	dir := cmp.Or(c.Cwd, ".")
	switch {
	case len(c.Command) == 0 || c.Disabled:
		return nil
	case c.Sandbox == nil:
		return (&sandbox.Rules{Open: true, Hide: private}).Loose(dir)
	case c.Sandbox.Mode == sandboxNone:
		return nil
	}
	r := c.Sandbox.rules(private)
	if c.Cwd != "" {
		r.Read = append([]string{c.Cwd}, r.Read...)
	}
	return r.Loose(dir)
}
