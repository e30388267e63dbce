package supervise

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
)

// Variable marks children and what they start in their environment.
const Variable = "FARCALL_CHILD"

// A Guard is a small process, of the system's shell, that outlives this one for
// a moment: when this process has died, it kills the groups of the children and
// what has left them. It runs while there are children, or were, until Close.
// Where there is no shell, what children have started survives a SIGKILL of this
// process, and a warning is logged.
//
// Its methods may be called by any number of goroutines at once.
type Guard struct {
	token string
	log   *slog.Logger

	mu     sync.Mutex
	n      uint64
	groups map[int]struct{}
	line   watcher
	warned bool
	closed bool
}

// NewGuard returns a guard that begins with the first child.
func NewGuard(log *slog.Logger) *Guard {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Guard{token: Variable + "=" + rand.Text() + ".", log: log, groups: make(map[int]struct{})}
}

// cookie is a variable for the environment of a child, never the same again.
func (g *Guard) cookie() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	return g.token + strconv.FormatUint(g.n, 10) + "."
}

// ready starts the guard, so that there is one before there is a child.
func (g *Guard) ready() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.line.pid() == 0 {
		g.begin()
	}
}

// add makes the guard know the group that a child leads.
func (g *Guard) add(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.groups[group] = struct{}{}
	if g.line.tell(fmt.Sprintf("+ %d\n", group)) != nil {
		g.begin() // there is none yet, or another process has killed it
	}
}

// remove makes the guard forget a group, because its id may be another's soon.
func (g *Guard) remove(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.groups[group]; !ok {
		return
	}
	delete(g.groups, group)
	if g.line.tell(fmt.Sprintf("- %d\n", group)) != nil && len(g.groups) > 0 {
		g.begin()
	}
}

// begin starts the guard's process and tells it all groups.
func (g *Guard) begin() {
	g.line.stop()
	err := g.line.start(g.token)
	for id := range g.groups {
		if err == nil {
			err = g.line.tell(fmt.Sprintf("+ %d\n", id))
		}
	}
	if err != nil && !g.warned {
		g.warned = true
		g.log.Warn(
			"no shell watches over the children: what they start may survive when this process is killed",
			"error", err)
	}
}

// Close ends the guard. No supervisor that uses it may have children any more.
func (g *Guard) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.line.stop()
}
