package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// session is one client of the legacy era. One that nothing is asked to holds no
// goroutine.
type session struct {
	srv    *Server
	client farcall.Caller
	name   string
	owner  owner.Key       // of what its calls leave behind, unless they are authenticated
	ctx    context.Context //nolint:containedctx // the session's own: it lasts longer than initialize

	rev    atomic.Pointer[era.Revision] // nil before initialize
	who    atomic.Pointer[clientMeta]
	log    atomic.Pointer[logLevel] // nil: the default
	tasks  atomic.Bool              // the relay has declared them
	public Session                  // what users of the package see of it

	mu      sync.Mutex
	ready   bool // the client has said notifications/initialized
	closed  bool
	began   bool                   // OnSessionBegan has returned
	again   atomic.Bool            // the subscriptions of another replica are being made again
	writes  sync.Mutex             // of what is stored of subs
	users   users                  // not mu's
	subs    map[string]*interest   // resources/subscribe
	pending *events                // to be sent; nil: nothing
	sending *sender                // sends them; nil: none does
	done    chan struct{}          // closed at the end; nil: not asked for
	values  map[string]jsonrpc.Raw // Session.SetValue
}

// Accept begins a session with a client of the legacy era, which is notified of things
// by way of client.
func (s *Server) Accept(ctx context.Context, client farcall.Caller) mcphttp.Session {
	return s.newSession(ctx, client)
}

func (s *Server) newSession(ctx context.Context, client farcall.Caller) *session {
	s.checkMade()
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	x := &session{srv: s, client: client, name: rand.Text(), ctx: ctx}
	x.owner = owner.Or(owner.From(ctx), owner.Session(x.name, ""))
	x.users.n.Store(1)
	x.public.x = x
	return x
}

// Revision returns the revision that was agreed upon, nil before.
func (x *session) Revision() *era.Revision { return x.rev.Load() }

// Close ends the session. What is being sent is given up.
func (x *session) Close() {
	x.srv.tasks.endOwner(x.owner)
	x.mu.Lock()
	again := x.closed
	x.closed = true
	sending, subs := x.sending, x.subs
	x.subs = nil
	if x.done != nil && !again {
		close(x.done)
	}
	x.mu.Unlock()
	x.srv.listeners.removeSession(x)
	if sending != nil {
		sending.stop()
		<-sending.done
	}
	for _, sub := range subs {
		sub.end()
	}
	if !again {
		x.release()
	}
}

func (x *session) hasEnded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}

// A logLevel is from which level on a client wants to be logged to.
type logLevel struct {
	level string
	read  time.Time // when readLevel last looked for it
}

// level returns the level from which on the client wants to be logged to.
func (x *session) level() string {
	x.readLevel()
	if l := x.log.Load(); l != nil {
		return l.level
	}
	return defaultLevel
}

// serve serves what the client sends.
func (x *session) serve(ctx context.Context, req *farcall.Request) (any, error) {
	if !x.hold() {
		return nil, errSessionEnded
	}
	defer x.release()
	rev := x.rev.Load()
	switch {
	case req.IsNotification():
		return nil, x.notified(ctx, rev, req)
	case req.Method == spec.MethodInitialize:
		return x.initialize(ctx, req)
	case rev == nil && req.Method == spec.MethodPing:
		return jsonrpc.Raw("{}"), nil
	case rev == nil:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"Invalid Request: not initialized; the first request of a session must be initialize")
	case req.InBatch() && !rev.Batch:
		return nil, errBatch(rev)
	}
	c, err := x.newCall(ctx, rev, req)
	if err != nil {
		return nil, err
	}
	defer c.end()
	raw, in, err := x.srv.dispatch(c, req)
	if err == nil {
		raw, err = era.Translate(era.Result, req.Method, raw, in, rev)
	}
	if err != nil {
		return nil, inRevision(err, rev)
	}
	return raw, nil
}

func errBatch(rev *era.Revision) error {
	return jsonrpc.Errorf(jsonrpc.InvalidRequest,
		"Invalid Request: revision %s has no batches; send one message at a time", rev.Name)
}

func (x *session) newCall(
	ctx context.Context, rev *era.Revision, req *farcall.Request,
) (*call, error) {
	c := x.srv.newCall(ctx, x.client, req)
	c.rev, c.session, c.who = rev, x, x.who.Load()
	if !c.forwards {
		var err error
		if c.params, err = era.Translate(era.Params, req.Method, req.Params, rev,
			era.Latest()); err != nil {
			return nil, err
		}
	}
	return c, c.in.read(c.params)
}

// inRevision gives an error the code that the revision has for it. What is no
// *jsonrpc.Error becomes one on the way out.
func inRevision(err error, rev *era.Revision) error {
	wire := remote.Own(err)
	if wire == nil {
		return err
	}
	return era.Code(wire, era.Latest(), rev)
}

// notified takes a notification.
func (x *session) notified(ctx context.Context, rev *era.Revision, req *farcall.Request) error {
	if rev == nil {
		return nil
	}
	if req.Method == spec.NotificationInitialized {
		if x.begun() {
			x.initialized(x.beginning(ctx, rev, x.who.Load(), req))
		}
		return nil
	}
	h := x.srv.extensions.find(req.Method)
	if h == nil {
		x.relayNotification(ctx, rev, req)
		return nil
	}
	c, err := x.newCall(ctx, rev, req)
	if err != nil {
		return err
	}
	defer c.end()
	_, err = h.ServeRPC(c, req)
	return err
}

// initialize opens the session (2025-11-25, basic/lifecycle, "Initialization").
func (x *session) initialize(ctx context.Context, req *farcall.Request) (any, error) {
	s := x.srv
	if req.InBatch() { // 2025-03-26, basic/lifecycle: MUST NOT be part of a batch
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"Invalid Request: initialize must not be part of a batch")
	}
	if len(s.legacy) == 0 {
		var version string
		// "" when it is no string
		_ = jsonv2.Unmarshal(scan.Member(req.Params, "protocolVersion"), &version)
		return nil, unsupportedVersion(version, s.modern)
	}
	if x.rev.Load() != nil {
		return nil, errInitialized
	}
	var p spec.InitializeParams
	if err := jsonv2.Unmarshal(req.Params, &p); err != nil || p.ProtocolVersion == "" {
		return nil, invalidParams("initialize needs protocolVersion, capabilities and clientInfo")
	}
	rev := cmp.Or(find(s.legacy, []byte(strings.TrimSpace(p.ProtocolVersion))), s.legacy[0])
	params, err := era.Translate(era.Params, req.Method, req.Params, rev, era.Latest())
	if err != nil {
		return nil, err
	}
	info, caps := initializeParts(params)
	who, err := s.clients.parse(info, askable(caps, rev))
	if err != nil {
		return nil, err
	}
	begins := x.beginning(ctx, rev, who, req)
	self, err := s.describe(begins)
	if err != nil {
		return nil, inRevision(err, rev)
	}
	raw, err := jsonv2.Append(nil, spec.InitializeResult{
		ProtocolVersion: rev.Name, Capabilities: self.capabilities, ServerInfo: self.info,
		Instructions: self.instructions,
	})
	if err == nil {
		raw, err = era.Translate(era.Result, req.Method, raw, era.Latest(), rev)
	}
	if err != nil {
		return nil, err
	}
	x.who.CompareAndSwap(nil, who)
	if !x.rev.CompareAndSwap(nil, rev) {
		return nil, errInitialized
	}
	s.listeners.addSession(x)
	if x.hasEnded() { // meanwhile
		s.listeners.removeSession(x)
	}
	x.begins(begins)
	return jsonrpc.Raw(raw), nil
}

var (
	errInitialized = &jsonrpc.Error{
		Code: jsonrpc.InvalidRequest,
		Message: "Invalid Request: the session is initialized already; begin another one to " +
			"change something",
	}
	errSessionEnded = &jsonrpc.Error{
		Code:    jsonrpc.InvalidRequest,
		Message: "Invalid Request: the session has ended; begin another one",
	}
)

// beginning is the call for something that is no request with a way back to the
// client: it says who the client is.
func (x *session) beginning(
	ctx context.Context, rev *era.Revision, who *clientMeta, req *farcall.Request,
) *call {
	c := &call{
		srv: x.srv, rev: rev, session: x, client: x.client, who: who, method: req.Method,
		over: true,
	}
	return c.derive(ctx)
}

// initializeParts returns what the client says of itself, as the modern era has
// it in _meta.
func initializeParts(params jsonrpc.Raw) (info, caps jsonrpc.Raw) {
	caps = scan.Member(params, "capabilities")
	if caps == nil {
		caps = jsonrpc.Raw("{}")
	}
	return scan.Member(params, "clientInfo"), caps
}

// askable returns capabilities without what a server of the revision cannot ask
// for: a client that offers all it has to whatever will be agreed on may declare
// more than that.
func askable(caps jsonrpc.Raw, rev *era.Revision) jsonrpc.Raw {
	elicitation, sampling := scan.Member(caps, "elicitation"), scan.Member(caps, "sampling")
	if rev.ElicitationURL && rev.SamplingTools || elicitation == nil && sampling == nil {
		return caps
	}
	out := object.New(caps, "elicitation", "sampling")
	if rev.Elicitation &&
		(scan.Member(elicitation, "url") == nil || scan.Member(elicitation, "form") != nil) &&
		elicitation != nil {
		out.Add("elicitation", jsonrpc.Raw("{}"))
	}
	if sampling != nil {
		out.Add("sampling", jsonrpc.Raw("{}"))
	}
	return out.End()
}

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
func (s *Server) Resume(
	ctx context.Context, client farcall.Caller, rev *era.Revision, state []byte,
) (mcphttp.Session, error) {
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
	x.again.Store(true)
	s.listeners.addSession(x)
	return x, nil
}

// State implements mcphttp.Resumable.
func (x *session) State() ([]byte, error) {
	who := x.who.Load()
	st := sealedState{
		Server: x.srv.info.Name, Info: sealedInfo(who), Caps: who.capsRaw,
		Tasks: x.tasks.Load(),
	}
	if len(st.Caps) > maxSealedCaps && scan.Member(st.Caps, "experimental") != nil {
		st.Caps = object.New(st.Caps, "experimental").End() // what is experimental goes first
	}
	if len(st.Caps) > maxSealedCaps {
		return nil,
			invalidParams(
				"the capabilities have %d bytes, and at most %d fit into a session; declare fewer extensions",
				len(st.Caps), maxSealedCaps)
	}
	return jsonv2.Append(nil, &st)
}

// sealedInfo returns what the client says of itself, as far as there is room for it.
func sealedInfo(who *clientMeta) jsonrpc.Raw {
	if len(who.infoRaw) <= maxSealedInfo {
		return who.infoRaw
	}
	cut := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxSealedName)], "") }
	raw, err := jsonv2.Append(nil,
		spec.Implementation{
			Name: cut(who.info.Name), Version: cut(who.info.Version),
			Title: cut(who.info.Title),
		})
	if err != nil {
		return nil // it says less of itself
	}
	return raw
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
