package conform

import (
	"cmp"
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const codeMCPHeaderMismatch = int(spec.HeaderMismatch)

func handshake(r *era.Revision) bool { return r.Handshake }
func stateless(r *era.Revision) bool { return !handshake(r) }
func sessions(r *era.Revision) bool  { return r.SessionHeader }
func mirrors(r *era.Revision) bool   { return r.MirroredHeaders }

// selfDescribed reports whether each request says in _meta who sends it.
func selfDescribed(r *era.Revision) bool { return r.RequestMeta }

// mcpCases lists what is checked, in order.
func mcpCases() []mcpCase {
	web := slices.Concat(mcpOverHTTP(), mcpSessions(), mcpHeaders())
	for i := range web {
		web[i].http = true
	}
	all := slices.Concat(mcpBeginning(), mcpDiscovery(), mcpMessages(), mcpLists(), mcpNames(), web)
	for i := range all {
		all[i].level = cmp.Or(all[i].level, Must)
	}
	return all
}

func mcpBeginning() []mcpCase {
	return []mcpCase{
		{
			name:     "initialize/result",
			title:    "the answer to initialize is complete",
			page:     "Lifecycle, Initialization",
			when:     handshake,
			expected: "protocolVersion, capabilities, serverInfo with name and version",
			run: func(_ context.Context, p *mcpProbe) (string, string) {
				m, _ := p.hello.result()
				return firstOf(missing(m, "capabilities", isObject), implementation(m["serverInfo"])), ""
			},
		},
		{
			name:     "initialize/unknown-revision",
			title:    "an unknown revision is answered with one that the server speaks",
			page:     "Lifecycle, Version Negotiation",
			when:     handshake,
			expected: "a result with another protocolVersion",
			run:      unknownInitialize,
		},
		{
			name:     "ping",
			title:    "ping is answered with an empty result",
			page:     "Utilities, Ping",
			when:     func(r *era.Revision) bool { return r.PingAllowed },
			expected: "a result that is an empty object",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.call(ctx, spec.MethodPing, "")
				m, wrong := r.result()
				if wrong == "" && len(m) > 0 {
					wrong = "the result has members"
				}
				return wrong, ""
			},
		},
		{
			name: "ping", title: "there is no ping", page: "Changelog", level: Must,
			when: func(r *era.Revision) bool { return !r.PingAllowed }, expected: "error -32601",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.call(ctx, spec.MethodPing, "")
				return r.refused(codeMethodNotFound), ""
			},
		},
	}
}

// mcpDiscovery are the cases about the beginning without a handshake.
func mcpDiscovery() []mcpCase {
	return []mcpCase{
		{
			name:     "discover/result",
			title:    "the answer to server/discover is complete",
			page:     "Discovery",
			when:     stateless,
			expected: "supportedVersions and capabilities",
			run: func(_ context.Context, p *mcpProbe) (string, string) {
				m, _ := p.hello.result()
				return firstOf(missing(m, "supportedVersions", isArray),
					missing(m, "capabilities", isObject), p.common(m)), ""
			},
		},
		{
			name:     "discover/server",
			title:    "results say which server it is",
			page:     "Overview, _meta",
			level:    Should,
			when:     stateless,
			expected: spec.MetaServerInfo + " with name and version",
			run: func(_ context.Context, p *mcpProbe) (string, string) {
				m, _ := p.hello.result()
				return implementation(object(string(m["_meta"]))[spec.MetaServerInfo]), ""
			},
		},
		{
			name:     "meta/missing",
			title:    "a request without _meta is refused",
			page:     "Overview, _meta",
			when:     selfDescribed,
			expected: "error -32602; over HTTP status 400",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.raw(ctx, spec.MethodServerDiscover, "{}",
					mirrored(spec.MethodServerDiscover, "", p.rev.Name))
				if !p.web {
					return r.refused(codeInvalidParams), ""
				}
				// The header has the revision and the body has none: that is a mismatch, too.
				return firstOf(
					r.refused(codeInvalidParams, codeMCPHeaderMismatch),
					r.statusIs(http.StatusBadRequest),
				), ""
			},
		},
		{
			name:     "versioning/unknown-revision",
			title:    "an unknown revision is refused with those that are spoken",
			page:     "Versioning, Protocol Version Negotiation",
			when:     selfDescribed,
			expected: "error -32022 with supported; over HTTP status 400",
			run:      unknownMeta,
		},
	}
}

func unknownInitialize(ctx context.Context, p *mcpProbe) (string, string) {
	other := &mcpProbe{
		rev:     p.rev,
		link:    p.dialer.mcp(),
		web:     p.web,
		timeout: p.timeout,
		session: http.Header{},
	}
	defer other.link.close()
	if err := other.link.open(ctx); err != nil {
		return "cannot connect again: " + err.Error(), ""
	}
	r := other.initialize(ctx, unknownRevision)
	p.sent, p.received = other.sent, other.received
	m, wrong := r.result()
	if wrong != "" {
		return wrong, ""
	}
	if v, err := text(m["protocolVersion"]); err != nil || v == unknownRevision {
		return "protocolVersion is " + clip(string(m["protocolVersion"])), ""
	}
	return "", ""
}

func unknownMeta(ctx context.Context, p *mcpProbe) (string, string) {
	r := p.callWith(ctx, spec.MethodServerDiscover, "", unknownRevision, nil)
	if wrong := r.refused(int(p.rev.UnsupportedVersion)); wrong != "" {
		return wrong, ""
	}
	data := object(string(object(r.frames[len(r.frames)-1])["error"]))["data"]
	if !strings.Contains(string(object(string(data))["supported"]), `"`+p.rev.Name+`"`) {
		return "the error's data.supported does not have " + p.rev.Name, ""
	}
	if p.web {
		return r.statusIs(http.StatusBadRequest), ""
	}
	return "", ""
}

func mcpMessages() []mcpCase {
	return []mcpCase{
		{
			name:     "messages/unknown-method",
			title:    "an unknown method is -32601",
			page:     "Overview, Error Codes",
			expected: "error -32601",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.call(ctx, noMethod, "")
				return r.refused(codeMethodNotFound), ""
			},
		},
		{
			name:     "messages/notification",
			title:    "a notification is not answered, not even an unknown one",
			page:     "Overview, Notifications",
			expected: "nothing; then the answer to the request that follows",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				n := p.notify(ctx, "notifications/"+noMethod)
				if n.answer != nil {
					return "it is answered", ""
				}
				r := p.call(ctx, noMethod, "")
				if wrong := r.refused(codeMethodNotFound); wrong != "" {
					return "after it: " + wrong, ""
				}
				for _, f := range append(n.frames, r.frames[:len(r.frames)-1]...) {
					if count(f) > 0 && !p.web {
						return "it is answered with " + clip(f), ""
					}
				}
				return "", ""
			},
		},
		{
			name:     "messages/batch",
			title:    "a batch is answered",
			page:     "Overview, Batching",
			when:     func(r *era.Revision) bool { return r.Batch },
			expected: "an array of two results",
			run:      batchOfPings,
		},
		{
			name:     "logging/level",
			title:    "the level of the log can be set, and an unknown one is refused",
			page:     "Logging, Error Handling",
			level:    Should,
			when:     func(r *era.Revision) bool { return r.SetLevel },
			expected: "a result; error -32602",
			run:      setLevel,
		},
		{
			name:     "subscriptions/acknowledged",
			title:    "a subscription begins with an acknowledgement",
			page:     "Subscriptions",
			when:     stateless,
			expected: spec.NotificationSubscriptionsAcknowledged + " with its subscriptionId",
			run:      acknowledged,
		},
	}
}

func batchOfPings(ctx context.Context, p *mcpProbe) (string, string) {
	p.ids++
	r := p.exchange(ctx, mcpMessage{
		id: fmt.Sprintf(`"farcall-%d"`, p.ids),
		body: fmt.Sprintf(
			`[{"jsonrpc":"2.0","id":"farcall-%d","method":%q},{"jsonrpc":"2.0","id":"farcall-%da","method":%q}]`,
			p.ids,
			spec.MethodPing,
			p.ids,
			spec.MethodPing,
		),
	})
	if r.err != nil {
		return r.err.Error(), ""
	}
	n := 0
	for _, f := range r.frames {
		answers, _, err := parseAnswers(f)
		if err != nil {
			return err.Error(), ""
		}
		for _, a := range answers {
			if a.code != 0 {
				return "the answer is " + a.String(), ""
			}
			n++
		}
	}
	if n != 2 && (p.web || n == 0) { // over a stream the second may come in a separate frame
		return fmt.Sprintf("there are %d answers", n), ""
	}
	return "", ""
}

func setLevel(ctx context.Context, p *mcpProbe) (string, string) {
	if p.can["logging"] == nil {
		return "", "the server does not declare logging"
	}
	r := p.call(ctx, spec.MethodLoggingSetLevel, `"level":"`+spec.LogEmergency+`"`)
	if _, wrong := r.result(); wrong != "" {
		return wrong, ""
	}
	r = p.call(ctx, spec.MethodLoggingSetLevel, `"level":"loud"`)
	return r.refused(codeInvalidParams), ""
}

func acknowledged(ctx context.Context, p *mcpProbe) (string, string) {
	r := p.call(ctx, spec.MethodSubscriptionsListen, `"notifications":{"toolsListChanged":true}`)
	id := p.ids
	if r.answer != nil && r.answer.code == codeMethodNotFound {
		return "", "the server has no subscriptions"
	}
	if r.err != nil || len(r.frames) == 0 {
		return fmt.Sprintf("nothing came: %v", r.err), ""
	}
	first := object(r.frames[0])
	defer func() {
		if !p.web {
			raw := strconv.Itoa(id)
			if id%2 == 0 {
				raw = fmt.Sprintf(`"farcall-%d"`, id)
			}
			p.exchange(
				ctx,
				mcpMessage{
					body: fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s}}`,
						spec.NotificationCancelled, raw),
				},
			)
		}
	}()
	if string(first["method"]) != `"`+spec.NotificationSubscriptionsAcknowledged+`"` {
		return "first comes " + clip(r.frames[0]), ""
	}
	params := object(string(first["params"]))
	if object(string(params["_meta"]))[spec.MetaSubscriptionID] == nil {
		return "its _meta has no " + spec.MetaSubscriptionID, ""
	}
	return missing(params, "notifications", isObject), ""
}

// common returns what is wrong with what all results of the revision have.
func (p *mcpProbe) common(m map[string]json.RawMessage) string {
	if p.rev.ResultTypes {
		if _, err := text(m["resultType"]); err != nil {
			return "the result has no resultType"
		}
	}
	if p.rev.CacheHints {
		var ttl *float64
		if json.Unmarshal(m["ttlMs"], &ttl) != nil || ttl == nil || *ttl < 0 {
			return "the result has no ttlMs"
		}
		if scope, _ := text(m["cacheScope"]); scope != spec.CachePublic && scope != spec.CachePrivate {
			return "cacheScope is neither public nor private"
		}
	}
	return ""
}

// statusIs returns what is wrong with the status of an answer.
func (r *mcpReply) statusIs(status int) string {
	if r.status != status {
		return fmt.Sprintf("the HTTP status is %d, not %d", r.status, status)
	}
	return ""
}

func firstOf(findings ...string) string {
	for _, f := range findings {
		if f != "" {
			return f
		}
	}
	return ""
}

func isObject(raw json.RawMessage) bool { return object(string(raw)) != nil }
func isArray(raw json.RawMessage) bool  { return strings.HasPrefix(string(raw), "[") }
func isText(raw json.RawMessage) bool   { _, err := text(raw); return err == nil }

// missing returns what is wrong with a member that must be there.
func missing(m map[string]json.RawMessage, name string, is func(json.RawMessage) bool) string {
	switch {
	case m[name] == nil:
		return "there is no " + name
	case !is(m[name]):
		return name + " has the wrong type"
	}
	return ""
}

// implementation returns what is wrong with a name and version.
func implementation(raw json.RawMessage) string {
	m := object(string(raw))
	if m == nil {
		return "there is no serverInfo"
	}
	return firstOf(missing(m, "name", isText), missing(m, "version", isText))
}
