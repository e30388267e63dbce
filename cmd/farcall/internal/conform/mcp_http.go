package conform

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall/mcp/spec"
)

// first is a request that every server of the revision answers with a result.
func (p *mcpProbe) first(ctx context.Context, header http.Header) mcpReply {
	method := spec.MethodServerDiscover
	if handshake(p.rev) {
		method = spec.MethodPing
	}
	return p.callWith(ctx, method, "", p.rev.Name, header)
}

// mcpHTTPRuns are the cases about the Streamable HTTP transport.
func mcpHTTPRuns() map[string]mcpRun {
	const discover = spec.MethodServerDiscover
	named := fmt.Sprintf(`"name":%q,"arguments":{}`, unknownName)
	mismatch := func(method, params, header string, values ...string) mcpRun {
		return refusal{
			method: method, params: params, header: http.Header{header: values},
			code: codeMCPHeaderMismatch, status: http.StatusBadRequest,
		}.run
	}
	return map[string]mcpRun{
		"http/content-type": func(ctx context.Context, p *mcpProbe) (string, string) {
			r := p.first(ctx, nil)
			if t := r.contentType(); t != "application/json" && t != "text/event-stream" {
				return fmt.Sprintf("Content-Type is %q", t), ""
			}
			return "", ""
		},
		"http/notification": func(ctx context.Context, p *mcpProbe) (string, string) {
			r := p.notify(ctx, spec.NotificationInitialized)
			if len(r.frames) > 0 {
				return "it has a body", ""
			}
			return r.statusIs(http.StatusAccepted), ""
		},
		"http/origin": func(ctx context.Context, p *mcpProbe) (string, string) {
			const origin = "http://farcall-conform.example"
			r := p.first(ctx, http.Header{"Origin": {origin}})
			if r.err == nil && r.status < http.StatusBadRequest {
				return fmt.Sprintf("a request with Origin: %s is answered with status %d", origin, r.status), ""
			}
			return "", ""
		},
		"http/get": func(ctx context.Context, p *mcpProbe) (string, string) {
			accept := http.Header{"Accept": {"text/event-stream"}}
			r := p.exchange(ctx, mcpMessage{verb: http.MethodGet, header: accept})
			t := r.contentType()
			streams := r.status == http.StatusOK && t == "text/event-stream"
			if r.err != nil || r.status != http.StatusMethodNotAllowed && !streams {
				return fmt.Sprintf("the status is %d, Content-Type %q", r.status, t), ""
			}
			return "", ""
		},
		"http/session-id": func(_ context.Context, p *mcpProbe) (string, string) {
			id := p.session.Get(headerSession)
			switch {
			case id == "":
				return "", noSession
			case strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }):
				return fmt.Sprintf("it is %q", id), ""
			}
			return "", ""
		},
		"http/session-missing": func(ctx context.Context, p *mcpProbe) (string, string) {
			if p.session.Get(headerSession) == "" {
				return "", noSession
			}
			r := p.first(ctx, http.Header{headerSession: nil})
			return r.statusIs(http.StatusBadRequest), ""
		},
		"http/session-ended": endedSession,
		"http/version": refusal{
			method: spec.MethodPing, header: http.Header{headerVersion: {unknownRevision}},
			status: http.StatusBadRequest,
		}.run,
		"http/unknown-method": refusal{
			method: noMethod, code: codeMethodNotFound, status: http.StatusNotFound,
		}.run,
		"http/version-mismatch": mismatch(discover, "", headerVersion, unknownRevision),
		"http/method-missing":   mismatch(discover, "", headerMethod),
		"http/method-mismatch":  mismatch(discover, "", headerMethod, spec.MethodToolsList),
		"http/name-mismatch":    mismatch(spec.MethodToolsCall, named, headerName, "another"),
	}
}

const noSession = "the server gives no session"

func (r *mcpReply) contentType() string {
	t, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	return t
}

func endedSession(ctx context.Context, p *mcpProbe) (string, string) {
	r := p.initialize(ctx, p.rev.Name)
	id := r.header.Get(headerSession)
	if id == "" {
		return "", noSession
	}
	other := http.Header{headerSession: {id}}
	if r := p.exchange(ctx, mcpMessage{verb: http.MethodDelete, header: other}); r.status/100 != 2 {
		return "", fmt.Sprintf("the server lets no client end a session: status %d", r.status)
	}
	r = p.first(ctx, other)
	return r.statusIs(http.StatusNotFound), ""
}
