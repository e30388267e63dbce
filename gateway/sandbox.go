package gateway

import (
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/farcall-dev/farcall/internal/sandbox"
)

// Private are the files and directories of the gateway that hold secrets or evidence: the
// configuration and what it refers to, the audit, keys and tokens. A command without a sandbox that
// [Options.Sandbox] starts cannot read them.
func (c *Config) Private() []string {
	out := slices.Clone(c.files)
	if c.Guard != nil && c.Guard.Audit.File != "" {
		out = append(out, c.Guard.Audit.File)
	}
	if c.TLS.Key != "" {
		out = append(out, c.TLS.Key)
	}
	for _, u := range c.Upstreams {
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

// confined is the command that runs the upstream's in its sandbox, or, if it has none, without a way
// to read the gateway: see [sandbox.Rules]. The launcher hands the environment on, where secrets may
// be: none is on its command line.
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
	s := c.Sandbox
	r := &sandbox.Rules{
		BestEffort: s.Mode == "best-effort",
		Read:       s.Read, Write: s.Write, Execute: s.Execute, Network: s.Network,
		Memory: s.Memory, Processes: s.Processes, Files: s.Files, CPU: s.CPU,
	}
	if never != nil {
		r.Never = never()
	}
	if c.Cwd != "" {
		r.Read = append([]string{"."}, r.Read...) // where the launcher is started
	}
	return sandbox.Command(launcher, r, c.Command), nil
}
