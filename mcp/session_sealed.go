package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var _ mcphttp.Resumer = (*Server)(nil)

const (
	// maxSealedInfo bounds what a client says of itself in the id of its session. Of one that says
	// more (icons, a description), name, version and title are kept.
	maxSealedInfo = 512
	maxSealedName = 100 // of each of these
	// maxSealedCaps bounds its capabilities.
	maxSealedCaps = 1024
)

// sealedState is what the id of a session says of it, beside its revision and owner.
type sealedState struct {
	Server string      `json:"s"` // the name: replicas of another server with the same keys do not take it
	Info   jsonrpc.Raw `json:"i,omitzero"`
	Caps   jsonrpc.Raw `json:"c,omitzero"`
	Tasks  bool        `json:"t,omitzero"`
}

var errOtherServer = errors.New("mcp: the session is another server's")

// Resume goes on with a session of a client of the legacy era: see [mcphttp.Resumer].
func (s *Server) Resume(ctx context.Context, client farcall.Caller, rev *era.Revision, state []byte) (mcphttp.Session, error) {
	st := sealedState{Server: s.info.Name}
	if state != nil {
		if err := jsonv2.Unmarshal(state, &st); err != nil {
			return nil, err
		}
	}
	if st.Server != s.info.Name {
		return nil, errOtherServer
	}
	if find(s.legacy, []byte(rev.Name)) == nil {
		return nil, fmt.Errorf("mcp: revision %s is not served any more", rev.Name)
	}
	if st.Caps == nil {
		st.Caps = jsonrpc.Raw("{}")
	}
	who, err := s.clients.parse(st.Info, st.Caps)
	if err != nil {
		return nil, err
	}
	x := s.newSession(ctx, client)
	x.who.Store(who)
	x.rev.Store(rev)
	x.tasks.Store(st.Tasks)
	x.users.told.Store(s.relays()) // it may hear of the session by any request
	x.ready = true
	s.listeners.addSession(x)
	return x, nil
}

// State implements mcphttp.Resumable.
func (x *session) State() ([]byte, error) {
	who := x.who.Load()
	st := sealedState{Server: x.srv.info.Name, Info: sealedInfo(who), Caps: sealedCaps(who.capsRaw), Tasks: x.tasks.Load()}
	if len(st.Caps) > maxSealedCaps {
		return nil, invalidParams("the capabilities have %d bytes, and at most %d fit into a session; declare fewer extensions", len(st.Caps), maxSealedCaps)
	}
	return jsonv2.Append(nil, &st)
}

// sealedInfo returns what the client says of itself, as far as there is room for it.
func sealedInfo(who *clientMeta) jsonrpc.Raw {
	if len(who.infoRaw) <= maxSealedInfo {
		return who.infoRaw
	}
	cut := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxSealedName)], "") }
	raw, err := jsonv2.Append(nil, spec.Implementation{Name: cut(who.info.Name), Version: cut(who.info.Version), Title: cut(who.info.Title)})
	if err != nil {
		return nil // it says less of itself
	}
	return raw
}

// sealedCaps returns capabilities as far as there is room: what is experimental goes first.
func sealedCaps(caps jsonrpc.Raw) jsonrpc.Raw {
	if len(caps) > maxSealedCaps && scan.Member(caps, "experimental") != nil {
		return object.New(caps, "experimental").End()
	}
	return caps
}

// Local implements mcphttp.Resumable.
func (x *session) Local() bool {
	tasks := !x.owner.Authenticated() && len(x.srv.tasks.after(0, x.owner, 1)) > 0 // which end with it
	if tasks || x.users.n.Load() > 1 || x.storedValues() == nil && x.level() != defaultLevel {
		return true
	}
	x.mu.Lock()
	local := len(x.subs) > 0 || len(x.values) > 0 || x.sending != nil
	x.mu.Unlock()
	if local || !x.srv.relays() {
		return local
	}
	holder, ok := x.srv.opts.Relay.(interface{ Holds(session string) bool })
	return ok && holder.Holds(x.name)
}

// awaitStream waits for the event stream of the client, where another process may have it.
func (x *session) awaitStream(ctx context.Context) error {
	if c, ok := x.client.(interface {
		AwaitStream(ctx context.Context) error
	}); ok {
		return c.AwaitStream(ctx)
	}
	return nil
}
