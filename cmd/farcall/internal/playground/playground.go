// Package playground is the service that farcall serves when it is given
// nothing else to serve: arithmetic, text, a clock that pushes, and methods to
// try what a protocol can do (sleep, fail, call back). It keeps little state,
// all of it bounded, and talks to nothing outside the process.
package playground

import (
	"container/list"
	"log/slog"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
)

// Service holds the playground's state. Its methods may be called by any
// number of goroutines.
type Service struct {
	log  *slog.Logger
	wg   sync.WaitGroup // the clocks
	quit chan struct{}  // closed by Close

	mu        sync.Mutex
	closed    bool
	events    int
	lastEvent string
	mcp       *mcp.Server              // nil: the playground is not offered over MCP
	sessions  map[string]*list.Element // of *session
	recent    *list.List               // sessions, the latest used first
	clocks    map[int64]*clock
	lastID    int64
}

// Register adds the playground's methods to mux. A nil logger means that
// logEvent counts its events and writes them nowhere.
func Register(mux *farcall.Mux, log *slog.Logger) *Service {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		log: log, quit: make(chan struct{}), sessions: make(map[string]*list.Element),
		recent: list.New(), clocks: make(map[int64]*clock),
	}
	registerMath(mux)
	s.registerText(mux)
	s.registerClock(mux)
	s.registerTicks(mux)
	registerTools(mux)
	return s
}

// Close stops what the service pushes on its own and waits for it.
func (s *Service) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	server := s.mcp
	s.mu.Unlock()
	if server != nil {
		server.Close()
	}
	s.wg.Wait()
}

// none is what a method takes that has no parameters, and answers when it has
// nothing to say.
type none struct{}
