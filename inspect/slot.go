package inspect

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// The states of a slot:
//
//	idle ── connect ──► connecting ──┬──► ready ◄── a call connects again ──┐
//	  ▲                    ▲         │      │                               │
//	  │                    │         │      └── the connection breaks ──► lost
//	  │                    │         └──► failed                            │
//	  └── disconnect ──────┴───────────────── connect ──────────────────────┘
const (
	stateIdle       = "idle"
	stateConnecting = "connecting"
	stateReady      = "ready"
	stateFailed     = "failed"
	stateLost       = "lost"
)

const (
	protocolAuto = "auto"
	protocolMCP  = "mcp"
	protocolRPC  = "jsonrpc"
)

// A slot is a server that the page offers, and the connection with it, if there is one.
type slot struct {
	i   *Inspector
	id  int
	log *wirelog.Log

	mu     sync.Mutex
	server Server
	state  string
	reason string
	since  time.Time
	dialed                    // the connection
	auth   mcphttp.Authorizer // that signs in with a page; nil: not yet
	late   *time.Timer        // ends an attempt to connect
	own    *http.Transport    // for servers without a client; nil: not yet
	roots  []mcp.Root
	sent   bool // it is a capture that a page has sent
	cancel context.CancelFunc
	done   chan struct{} // closed when connecting and listening have ended; nil: neither runs
	lists  map[string]*catalog
	// decided has what a guard decided, by the number of the answer; nil: this is no capture
	decided map[uint64]verdict
}

// A verdict is what a guard decided about a call of a principal.
type verdict struct{ outcome, principal string }

// serverView is a slot as a page sees it. It has no credentials.
type serverView struct {
	ID       int      `json:"id"`
	Name     string   `json:"name"`
	Target   string   `json:"target,omitzero"`
	Path     string   `json:"path,omitzero"` // at the address of the page
	Command  []string `json:"command,omitzero"`
	Protocol string   `json:"protocol"` // what is asked for
	Era      string   `json:"era"`
	State    string   `json:"state"`
	Reason   string   `json:"reason,omitzero"`
	Since    int64    `json:"since,omitzero"`
	Speaks   string   `json:"speaks,omitzero"` // mcp or jsonrpc
	Info     *info    `json:"info,omitzero"`
	Headers  []string `json:"headers,omitzero"` // their names
}

// info is what a server says of itself.
type info struct {
	Name         string   `json:"name,omitzero"`
	Title        string   `json:"title,omitzero"`
	Version      string   `json:"version,omitzero"`
	Revision     string   `json:"revision,omitzero"`
	Supported    []string `json:"supported,omitzero"`
	Instructions string   `json:"instructions,omitzero"`
	Capabilities any      `json:"capabilities,omitzero"`
}

// target reads the address of a server; nil: it has none.
func (s *Server) target() (*target.Target, error) {
	switch {
	case len(s.Command) > 0:
		return target.Child(s.Command), nil
	case s.Target != "":
		return target.Parse(s.Target)
	}
	return nil, nil //nolint:nilnil // documented
}

// name returns what the page calls a server.
func (s *Server) name() string {
	switch {
	case s.Name != "":
		return s.Name
	case len(s.Command) > 0:
		return strings.Join(s.Command, " ")
	case s.InProcess != nil:
		return "in this process"
	}
	return cmp.Or(s.Target, s.Capture, "server")
}

// view returns what a page may know.
func (x *slot) view() serverView {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.viewLocked()
}

func (x *slot) viewLocked() serverView {
	s := &x.server
	v := serverView{
		ID: x.id, Name: shorten(s.name(), 200), Target: shorten(s.Target, 2000), Path: s.Path,
		Command: s.Command, Protocol: cmp.Or(s.Protocol, protocolAuto), Era: cmp.Or(s.Era, "auto"),
		State: x.state, Reason: x.reason, Speaks: x.protocol,
	}
	if t, err := s.target(); err == nil && t != nil && t.URL != nil {
		v.Target = t.URL.Redacted() // a password
	}
	for name := range s.Header {
		v.Headers = append(v.Headers, name)
	}
	if !x.since.IsZero() {
		v.Since = x.since.UnixMilli()
	}
	if x.mcp != nil {
		i := x.mcp.Server()
		v.Info = &info{
			Name: shorten(i.Name, 200), Title: shorten(i.Title, 200), Version: shorten(i.Version, 100),
			Revision: i.Revision, Supported: i.Supported, Capabilities: i.Capabilities,
			Instructions: shorten(i.Instructions, maxEventText),
		}
	}
	return v
}

// speaks returns how the server can be called now: as MCP, as JSON-RPC, or not at all.
func (x *slot) speaks() (client *mcp.Client, caller farcall.Caller, state string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mcp, x.rpc, x.state
}

// tell adds an event of the server.
func (x *slot) tell(kind string, data any) { x.i.events.add(kind, x.id, "", data) }

// setLocked changes the state and tells the pages.
func (x *slot) setLocked(state, reason string) {
	x.state, x.reason, x.since = state, shorten(reason, maxEventText), time.Now()
	x.tell(eventServer, x.viewLocked())
}

// connectTime bounds an attempt to connect; a command may download its program first.
const (
	connectTime = 30 * time.Second
	startTime   = 3 * time.Minute
)

// connect begins to connect, after the connection that there is has ended.
func (x *slot) connect() {
	x.disconnect()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done != nil || x.i.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(x.i.ctx)
	done := make(chan struct{})
	x.cancel, x.done, x.lists = cancel, done, map[string]*catalog{}
	x.setLocked(stateConnecting, "")
	x.i.tasks.Go(func() {
		defer close(done)
		x.run(ctx)
	})
}

// run connects, and listens for changes.
func (x *slot) run(ctx context.Context) {
	x.mu.Lock()
	server := x.server
	x.mu.Unlock()
	if server.Capture != "" {
		x.open(ctx, server.Capture)
		return
	}
	limit := connectTime
	if len(server.Command) > 0 {
		limit = startTime
	}
	dialing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	x.mu.Lock()
	x.late = time.AfterFunc(limit, func() { stop(errSlow) })
	x.mu.Unlock()
	l, err := x.dial(dialing, &server)
	if errors.Is(context.Cause(dialing), errSlow) {
		err = errors.Join(errSlow, err)
	}
	x.mu.Lock()
	x.late.Stop()
	x.late = nil
	if err != nil || ctx.Err() != nil {
		if l.closer != nil {
			x.mu.Unlock()
			_ = l.closer() // it is not used
			x.mu.Lock()
		}
		if ctx.Err() == nil {
			x.setLocked(stateFailed, err.Error())
		}
		x.mu.Unlock()
		return
	}
	x.dialed, x.server.Target = l, server.Target
	x.setLocked(stateReady, l.note)
	x.mu.Unlock()
	if l.mcp != nil {
		x.listen(ctx, l.mcp)
	}
}

var errSlow = errors.New("the server has not answered in time")

// disconnect ends the connection and waits until it has ended.
func (x *slot) disconnect() {
	x.mu.Lock()
	done, closer := x.done, x.closer
	if done != nil {
		x.cancel()
		x.closer = nil
	}
	x.mu.Unlock()
	if done == nil {
		return
	}
	if closer != nil {
		_ = closer() // what it says is in the traffic
	}
	<-done
	x.mu.Lock()
	defer x.mu.Unlock()
	if closer = x.closer; closer != nil { // it was connected meanwhile
		x.closer = nil
		_ = closer()
	}
	if x.done == done {
		if x.own != nil {
			x.own.CloseIdleConnections()
		}
		x.dialed, x.done, x.cancel = dialed{}, nil, nil
		x.setLocked(stateIdle, "")
	}
}

// lost notes that the connection has ended.
func (x *slot) lost(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateReady && x.i.ctx.Err() == nil && x.closer != nil {
		why := "the server closed the connection"
		if err != nil {
			why = err.Error()
		}
		x.setLocked(stateLost, why)
	}
}

// works notes that a call was answered, perhaps over a new connection.
func (x *slot) works() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateLost {
		x.setLocked(stateReady, "connected again")
	}
}
