package conform

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const codeMCPHeaderMismatch = int(spec.HeaderMismatch)

func handshake(r *era.Revision) bool { return r.Handshake }
func mirrors(r *era.Revision) bool   { return r.MirroredHeaders }

// selfDescribed reports whether each request says in _meta who sends it.
func selfDescribed(r *era.Revision) bool { return r.RequestMeta }

// mcpCasesText has the cases; its head explains the form.
//
//go:embed mcp_cases.txt
var mcpCasesText string

// mcpCases lists what is checked, in order.
func mcpCases() []mcpCase {
	runs := mcpRuns()
	maps.Copy(runs, mcpListRuns())
	maps.Copy(runs, mcpHTTPRuns())
	blocks := strings.Split(mcpCasesText, "\n== ")[1:]
	cases := make([]mcpCase, len(blocks))
	for i, block := range blocks {
		c := &cases[i]
		head, text, _ := strings.Cut(strings.TrimSpace(block), "\n")
		f := append(strings.Split(head, " | "), "")
		c.name, c.level, c.page, c.when = f[0], Level(f[1]), f[2], strings.Fields(f[3])
		c.title, c.expected, _ = strings.Cut(text, "\n")
		c.run = runs[c.name]
	}
	return cases
}

// properties are what a case can ask of a revision.
func properties(r *era.Revision) map[string]bool {
	return map[string]bool{
		"handshake": handshake(r), "no-handshake": !handshake(r), "meta": selfDescribed(r),
		"ping": r.PingAllowed, "no-ping": !r.PingAllowed, "batch": r.Batch, "levels": r.SetLevel,
		"streamable": r.StreamableHTTP, "sessions": r.SessionHeader,
		"mirrors": mirrors(r), "version-header": r.VersionHeader,
	}
}

// of reports whether the case is about a revision.
func (c *mcpCase) of(r *era.Revision) bool {
	has := properties(r)
	return !slices.ContainsFunc(c.when, func(property string) bool { return !has[property] })
}

// A refusal is a request that must be refused.
type refusal struct {
	capability     string // without which it is not sent; "": it always is
	method, params string
	header         http.Header
	code, status   int // 0: any
}

func (f refusal) run(ctx context.Context, p *mcpProbe) (finding, skip string) {
	if f.capability != "" && p.can[f.capability] == nil {
		return "", "the server does not declare " + f.capability
	}
	r := p.callWith(ctx, f.method, f.params, p.rev.Name, f.header)
	if f.code != 0 {
		finding = r.refused(f.code)
	}
	if f.status != 0 {
		finding = cmp.Or(finding, r.statusIs(f.status))
	}
	return finding, ""
}

func mcpRuns() map[string]mcpRun {
	return map[string]mcpRun{
		"initialize/result": func(_ context.Context, p *mcpProbe) (string, string) {
			m, _ := p.hello.result()
			return cmp.Or(missing(m, "capabilities", isObject), implementation(m["serverInfo"])), ""
		},
		"initialize/unknown-revision": unknownInitialize,
		"ping": func(ctx context.Context, p *mcpProbe) (string, string) {
			r := p.call(ctx, spec.MethodPing, "")
			if !p.rev.PingAllowed {
				return r.refused(codeMethodNotFound), ""
			}
			m, wrong := r.result()
			if wrong == "" && len(m) > 0 {
				wrong = "the result has members"
			}
			return wrong, ""
		},
		"discover/result": func(_ context.Context, p *mcpProbe) (string, string) {
			m, _ := p.hello.result()
			return cmp.Or(missing(m, "supportedVersions", isArray),
				missing(m, "capabilities", isObject), p.common(m)), ""
		},
		"discover/server": func(_ context.Context, p *mcpProbe) (string, string) {
			m, _ := p.hello.result()
			return implementation(object(string(m["_meta"]))[spec.MetaServerInfo]), ""
		},
		"meta/missing": func(ctx context.Context, p *mcpProbe) (string, string) {
			r := p.raw(ctx, spec.MethodServerDiscover, "{}",
				mirrored(spec.MethodServerDiscover, "", p.rev.Name))
			if !p.web {
				return r.refused(codeInvalidParams), ""
			}
			// The header has the revision and the body has none: that is a mismatch, too.
			wrong := r.refused(codeInvalidParams, codeMCPHeaderMismatch)
			return cmp.Or(wrong, r.statusIs(http.StatusBadRequest)), ""
		},
		"versioning/unknown-revision": unknownMeta,
		"messages/unknown-method":     refusal{method: noMethod, code: codeMethodNotFound}.run,
		"messages/notification":       notification,
		"messages/batch":              batchOfPings,
		"logging/level":               setLevel,
		"subscriptions/acknowledged":  acknowledged,
	}
}

func unknownInitialize(ctx context.Context, p *mcpProbe) (string, string) {
	other := &mcpProbe{
		rev: p.rev, link: p.dialer.mcp(), web: p.web, timeout: p.timeout, session: http.Header{},
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

func notification(ctx context.Context, p *mcpProbe) (string, string) {
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
}

func batchOfPings(ctx context.Context, p *mcpProbe) (string, string) {
	p.ids++
	r := p.exchange(ctx, mcpMessage{
		id: fmt.Sprintf(`"farcall-%d"`, p.ids),
		body: fmt.Sprintf(
			`[{"jsonrpc":"2.0","id":"farcall-%d","method":%q},{"jsonrpc":"2.0","id":"farcall-%da",`+
				`"method":%q}]`,
			p.ids, spec.MethodPing, p.ids, spec.MethodPing,
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
	return cmp.Or(missing(m, "name", isText), missing(m, "version", isText))
}
