package gateway

import (
	"fmt"

	"github.com/farcall-dev/farcall/internal/sandbox"
)

// confined is the command that runs the upstream's in its sandbox, if it has one. The launcher hands the
// environment on, where secrets may be: none is on its command line.
func (c *Upstream) confined(launcher []string) ([]string, error) {
	if c.Sandbox == nil {
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
	if c.Cwd != "" {
		r.Read = append([]string{"."}, r.Read...) // where the launcher is started
	}
	return sandbox.Command(launcher, r, c.Command), nil
}
