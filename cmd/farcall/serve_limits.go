package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
)

// serveLimits are the bounds of all connections together. Flags count before the
// configuration, and that before the defaults, which are those of the packages.
type serveLimits struct {
	memory, unauthenticated memorySize
	frameTimeout            time.Duration
	connections, perAddress int
	rate                    int
	idle                    time.Duration

	budget *farcall.Budget // of memory and unauthenticated; nil: that of the process
}

func (l *serveLimits) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&l.memory, "memory", "memory for all messages of more than 64 KiB together, such as 256MB (default 512MiB, or half of GOMEMLIMIT if that is less)")
	flags.Var(&l.unauthenticated, "memory-unauthenticated", "of unauthenticated connections, with a guard (default 64MiB, or an eighth of --memory if that is less)")
	flags.DurationVar(&l.frameTimeout, "frame-timeout", 0, "`time` for a message that has begun, and a second more for each 100 KB of it; -1s: no bound (default 30s)")
	flags.IntVar(&l.connections, "max-connections", 0, "open connections of each address to listen on; -1: no bound (default 16384)")
	flags.IntVar(&l.perAddress, "max-connections-per-client", 0, "of these, from one IP address; -1: no bound (default 4096, none for the loopback address)")
	flags.IntVar(&l.rate, "accept-rate", 0, "connections accepted in a second, further ones wait; -1: no bound (default 1000)")
	flags.DurationVar(&l.idle, "idle-timeout", 0, "`time` for which a connection that is no HTTP may be unused; open calls and MCP sessions are use; -1s: no bound (default 1h)")
}

// configured takes what the flags do not say from a configuration.
func (l *serveLimits) configured(conf *gateway.Config) {
	c := &conf.Limits
	l.memory = cmp.Or(l.memory, memorySize(c.Memory))
	l.unauthenticated = cmp.Or(l.unauthenticated, memorySize(c.MemoryUnauthenticated))
	l.frameTimeout = cmp.Or(l.frameTimeout, c.FrameTimeout)
	l.connections = cmp.Or(l.connections, c.Accepted)
	l.perAddress = cmp.Or(l.perAddress, c.Connections)
	l.rate = cmp.Or(l.rate, c.AcceptRate)
	l.idle = cmp.Or(l.idle, c.Idle)
}

// newBudget makes the budget, once all options are known.
func (l *serveLimits) newBudget() {
	if l.memory > 0 || l.unauthenticated > 0 {
		l.budget = farcall.NewBudget(int64(l.memory), int64(l.unauthenticated))
	}
}
