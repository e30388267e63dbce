package mcp

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// serve serves a message that belongs to no session.
func (s *Server) serve(ctx context.Context, req *farcall.Request) (any, error) {
	if req.IsNotification() { // 2026-07-28 has none that a client sends but cancellation
		s.relayStateless(ctx, req)
		return nil, nil
	}
	c := s.newCall(ctx, farcall.CallerFrom(ctx), req)
	defer c.end()
	if err := c.open(); err != nil {
		return nil, err
	}
	if req.InBatch() && !c.rev.Batch {
		return nil, errBatch(c.rev)
	}
	raw, _, err := s.dispatch(c, req)
	if err != nil {
		return nil, legacyCode(err, c.rev)
	}
	return raw, nil
}

// legacyCode gives the one error that only the legacy era has its own code
// for the code that it has here: MCP reserves the other one for itself.
func legacyCode(err error, rev *era.Revision) error {
	if wire := remote.Own(err); wire != nil && wire.Code == spec.URLElicitationRequired {
		return era.Code(wire, era.LatestLegacy(), rev)
	}
	return err
}

// requestMeta is the _meta of a modern request.
type requestMeta struct{ version, info, caps, level jsonrpc.Raw }

func (m *requestMeta) member(name []byte) *jsonrpc.Raw {
	switch string(name) {
	case spec.MetaProtocolVersion:
		return &m.version
	case spec.MetaClientInfo:
		return &m.info
	case spec.MetaClientCapabilities:
		return &m.caps
	case spec.MetaLogLevel:
		return &m.level
	}
	return nil
}

func (m *requestMeta) read(meta jsonrpc.Raw) error {
	for key, value := range scan.Members(meta) {
		if err := once("params._meta", m.member(key), key, value); err != nil {
			return err
		}
	}
	return nil
}

// isModern reports whether params are those of a modern request. It is quick
// when they are not.
func isModern(params jsonrpc.Raw) bool {
	if !bytes.Contains(params, []byte(spec.MetaProtocolVersion)) {
		return false
	}
	for key, value := range scan.Members(params) {
		if string(key) == "_meta" && scan.Member(value, spec.MetaProtocolVersion) != nil {
			return true
		}
	}
	return false
}

// open reads what a modern request says about itself (2026-07-28, basic,
// "Per-request protocol fields").
func (c *call) open() error {
	if err := c.in.read(c.params); err != nil {
		return err
	}
	var m requestMeta
	if err := m.read(c.in.meta); err != nil {
		return err
	}
	if len(c.srv.modern) == 0 {
		return jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"Invalid Request: this server speaks %s only; open a session with initialize",
			strings.Join(revisionNames(c.srv.legacy), ", "))
	}
	if m.version == nil {
		return jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Invalid params: params._meta lacks %q; send it with every request, or open a session with "+
				"initialize first", spec.MetaProtocolVersion)
	}
	if m.version[0] != '"' {
		return invalidParams("%q must be a string", spec.MetaProtocolVersion)
	}
	version := scan.Unquote(m.version)
	if c.rev = find(c.srv.modern, version); c.rev == nil {
		return unsupportedVersion(string(version), c.srv.modern)
	}
	if m.caps == nil {
		return invalidParams("params._meta lacks %q; send {} when there are none",
			spec.MetaClientCapabilities)
	}
	var err error
	if c.who, err = c.srv.clients.parse(m.info, m.caps); err != nil {
		return err
	}
	return c.setLevel(m.level)
}

func find(all []*era.Revision, name []byte) *era.Revision {
	for _, r := range all {
		if r.Name == string(name) {
			return r
		}
	}
	return nil
}

func unsupportedVersion(requested string, supported []*era.Revision) error {
	data, err := jsonv2.Append(nil,
		spec.UnsupportedProtocolVersionData{Requested: requested, Supported: revisionNames(supported)})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{
		Code: spec.UnsupportedProtocolVersion, Data: data,
		Message: "Unsupported protocol version: this server speaks " +
			strings.Join(revisionNames(supported), ", "),
	}
}

func (c *call) setLevel(raw jsonrpc.Raw) error {
	if raw == nil {
		return nil
	}
	if raw[0] == '"' {
		c.logLevel = string(scan.Unquote(raw))
	}
	if spec.LogSeverity(c.logLevel) < 0 {
		return invalidParams("%q must be one of %s", spec.MetaLogLevel,
			strings.Join(spec.LogLevels(), ", "))
	}
	return nil
}

// clientCache remembers the client that called last: most requests come from
// the one that sent the request before, and say the same about it.
type clientCache struct{ last atomic.Pointer[clientMeta] }

// clientMeta is what a client says of itself. It is not changed.
type clientMeta struct {
	infoRaw, capsRaw jsonrpc.Raw
	info             spec.Implementation
	caps             spec.ClientCapabilities
}

// maxRemembered bounds what a cached description may hold on to.
const maxRemembered = 4 << 10

func (k *clientCache) parse(info, caps jsonrpc.Raw) (*clientMeta, error) {
	if m := k.last.Load(); m != nil && bytes.Equal(m.infoRaw, info) && bytes.Equal(m.capsRaw, caps) {
		return m, nil
	}
	m := &clientMeta{}
	if info != nil {
		if err := jsonv2.Unmarshal(info, &m.info); err != nil {
			return nil, invalidParams("%q is not what it should be: an object with a name and a version",
				spec.MetaClientInfo)
		}
	}
	if err := jsonv2.Unmarshal(caps, &m.caps); err != nil || caps[0] != '{' {
		return nil, invalidParams("%q is not what it should be: an object with members that are objects",
			spec.MetaClientCapabilities)
	}
	m.infoRaw, m.capsRaw = slices.Clone(info), slices.Clone(caps)
	if len(info)+len(caps) <= maxRemembered {
		k.last.Store(m)
	}
	return m, nil
}

// finish gives a result what every result of its revision has. It is canonical
// before and after: the members of the modern era are added for that era only.
func (s *Server) finish(c *call, a answer, cacheable bool) jsonrpc.Raw {
	cacheable = cacheable && c.rev.CacheHints
	switch {
	case !c.rev.ResultTypes, a.whole:
		return a.raw
	case !a.plain:
		return s.decorate(a.raw, cacheable)
	}
	hints := *s.cacheHints.Load()
	out := make([]byte, 0, len(s.resultStart)+len(hints)+len(a.raw)+1)
	out = append(out, s.resultStart...)
	if cacheable {
		out = append(out, hints...)
	}
	if len(a.raw) == len("{}") {
		return append(out, '}')
	}
	return append(append(out, ','), a.raw[1:]...)
}

// newResult begins the result of a call, with room for more and what finish
// would add: a large result is not copied for that. Another member may follow.
func (c *call) newResult(room int) []byte {
	if !c.whole() {
		return append(make([]byte, 0, room+1), '{')
	}
	start := c.srv.resultStart
	return append(append(make([]byte, 0, len(start)+1+room), start...), ',')
}

// whole reports whether newResult has begun with all that the result of the call
// needs. That of a task is no result of its call.
func (c *call) whole() bool { return c.rev.ResultTypes && c.task == nil && !c.nested }

// decorate adds to a result what of resultType, serverInfo and cache hints it
// lacks.
func (s *Server) decorate(raw jsonrpc.Raw, cacheable bool) jsonrpc.Raw {
	var kind, meta []byte
	hinted := false
	for key, value := range scan.Members(raw) {
		switch string(key) {
		case "resultType":
			kind = value
		case "_meta":
			meta = value
		case "ttlMs":
			hinted = true
		}
	}
	complete := kind == nil || string(kind) == `"`+spec.ResultComplete+`"`
	hints := *s.cacheHints.Load()
	out := make([]byte, 0, len(raw)+len(s.resultStart)+len(hints)+32)
	out = append(append(out, `{"resultType":`...), kind...)
	if kind == nil {
		out = scan.AppendQuoted(out, spec.ResultComplete)
	}
	out = s.appendMeta(append(out, `,"_meta":`...), meta)
	if complete && cacheable && !hinted {
		out = append(out, hints...)
	}
	for key, value := range scan.Members(raw) {
		if string(key) != "resultType" && string(key) != "_meta" {
			out = append(scan.AppendQuoted(append(out, ','), key), ':')
			out = append(out, value...)
		}
	}
	return append(out, '}')
}

// appendMeta appends the _meta of a result, with serverInfo in it.
func (s *Server) appendMeta(dst, meta []byte) []byte {
	known := false
	inner := []byte(nil)
	for key, value := range scan.Members(meta) {
		known = known || string(key) == spec.MetaServerInfo
		inner = append(scan.AppendQuoted(append(inner, ','), key), ':')
		inner = append(inner, value...)
	}
	if known {
		return append(dst, meta...)
	}
	_, own, _ := bytes.Cut(s.resultStart, []byte(`"_meta":`))
	dst = append(dst, own[:len(own)-1]...)
	return append(append(dst, inner...), '}')
}
