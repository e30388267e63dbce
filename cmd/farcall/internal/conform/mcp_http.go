package conform

import (
	"context"
	"fmt"
	"mime"
	"net/http"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// first is a request that every server of the revision answers with a result.
func (p *mcpProbe) first(ctx context.Context, header http.Header) mcpReply {
	if handshake(p.rev) {
		return p.callWith(ctx, spec.MethodPing, "", p.rev.Name, header)
	}
	return p.callWith(ctx, spec.MethodServerDiscover, "", p.rev.Name, header)
}

// mcpOverHTTP are the cases about the Streamable HTTP transport.
func mcpOverHTTP() []mcpCase {
	const page = "Streamable HTTP, "
	streamable := func(r *era.Revision) bool { return r.StreamableHTTP }
	return []mcpCase{
		{
			name:     "http/content-type",
			title:    "an answer is JSON or an event stream",
			page:     page + "Sending Messages",
			when:     streamable,
			expected: "Content-Type application/json or text/event-stream",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.first(ctx, nil)
				if t, _, _ := mime.ParseMediaType(
					r.header.Get("Content-Type"),
				); t != "application/json" &&
					t != "text/event-stream" {
					return fmt.Sprintf("Content-Type is %q", t), ""
				}
				return "", ""
			},
		},
		{
			name:     "http/notification",
			title:    "a notification is accepted without a body",
			page:     page + "Sending Messages",
			when:     func(r *era.Revision) bool { return r.StreamableHTTP && handshake(r) },
			expected: "status 202, no body",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.notify(ctx, spec.NotificationInitialized)
				if len(r.frames) > 0 {
					return "it has a body", ""
				}
				return r.statusIs(http.StatusAccepted), ""
			},
		},
		{
			name:     "http/origin",
			title:    "a page of a foreign origin is refused",
			page:     page + "Security Warning",
			when:     streamable,
			expected: "status 403",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.first(ctx, http.Header{"Origin": {"http://farcall-conform.example"}})
				if r.err == nil && r.status < http.StatusBadRequest {
					return fmt.Sprintf(
						"a request with Origin: http://farcall-conform.example is answered with status %d",
						r.status,
					), ""
				}
				return "", ""
			},
		},
		{
			name:     "http/get",
			title:    "GET opens an event stream, or there is none",
			page:     page + "Listening for Messages from the Server",
			when:     sessions,
			expected: "text/event-stream, or status 405",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.exchange(
					ctx,
					mcpMessage{verb: http.MethodGet, header: http.Header{"Accept": {"text/event-stream"}}},
				)
				t, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
				if r.err != nil ||
					r.status != http.StatusMethodNotAllowed &&
						(r.status != http.StatusOK || t != "text/event-stream") {
					return fmt.Sprintf("the status is %d, Content-Type %q", r.status, t), ""
				}
				return "", ""
			},
		},
	}
}

// mcpSessions are the cases about sessions over HTTP.
func mcpSessions() []mcpCase {
	const page = "Streamable HTTP, "
	return []mcpCase{
		{
			name:     "http/session-id",
			title:    "the id of a session is visible ASCII",
			page:     page + "Session Management",
			when:     sessions,
			expected: "characters from 0x21 to 0x7e",
			run: func(_ context.Context, p *mcpProbe) (string, string) {
				id := p.session.Get(headerSession)
				if id == "" {
					return "", "the server gives no session"
				}
				for i := range len(id) {
					if id[i] < 0x21 || id[i] > 0x7e {
						return fmt.Sprintf("it is %q", id), ""
					}
				}
				return "", ""
			},
		},
		{
			name:     "http/session-missing",
			title:    "a request outside of the session is refused",
			page:     page + "Session Management",
			level:    Should,
			when:     sessions,
			expected: "status 400",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				if p.session.Get(headerSession) == "" {
					return "", "the server gives no session"
				}
				r := p.first(ctx, http.Header{headerSession: nil})
				return r.statusIs(http.StatusBadRequest), ""
			},
		},
		{
			name:     "http/session-ended",
			title:    "a session that was ended is not found",
			page:     page + "Session Management",
			when:     sessions,
			expected: "status 404",
			run:      endedSession,
		},
	}
}

func endedSession(ctx context.Context, p *mcpProbe) (string, string) {
	r := p.initialize(ctx, p.rev.Name)
	id := r.header.Get(headerSession)
	if id == "" {
		return "", "the server gives no session"
	}
	other := http.Header{headerSession: {id}}
	if r := p.exchange(ctx, mcpMessage{verb: http.MethodDelete, header: other}); r.status/100 != 2 {
		return "", fmt.Sprintf("the server lets no client end a session: status %d", r.status)
	}
	r = p.first(ctx, other)
	return r.statusIs(http.StatusNotFound), ""
}

// mcpHeaders are the cases about headers that repeat the body.
func mcpHeaders() []mcpCase {
	const page = "Streamable HTTP, "
	mismatch := func(name, title, method, params string, header http.Header) mcpCase {
		return mcpCase{
			name:     "http/" + name,
			title:    title,
			page:     page + "Server Validation",
			when:     mirrors,
			expected: "status 400, error -32020",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.callWith(ctx, method, params, p.rev.Name, header)
				return firstOf(r.refused(codeMCPHeaderMismatch), r.statusIs(http.StatusBadRequest)), ""
			},
		}
	}
	const discover = spec.MethodServerDiscover
	named := fmt.Sprintf(`"name":%q,"arguments":{}`, unknownName)
	return []mcpCase{
		{
			name:     "http/version",
			title:    "an unknown revision in the header is refused",
			page:     page + "Protocol Version Header",
			when:     func(r *era.Revision) bool { return r.VersionHeader && handshake(r) },
			expected: "status 400",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.first(ctx, http.Header{headerVersion: {unknownRevision}})
				return r.statusIs(http.StatusBadRequest), ""
			},
		},
		{
			name:     "http/unknown-method",
			title:    "an unknown method has the status 404",
			page:     page + "Protocol Version Header",
			when:     mirrors,
			expected: "status 404, error -32601",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				r := p.call(ctx, noMethod, "")
				return firstOf(r.refused(codeMethodNotFound), r.statusIs(http.StatusNotFound)), ""
			},
		},
		mismatch("version-mismatch", "a header with another revision than the body is refused",
			discover, "", http.Header{headerVersion: {unknownRevision}}),
		mismatch("method-missing", "a request without Mcp-Method is refused", discover, "",
			http.Header{headerMethod: nil}),
		mismatch("method-mismatch", "a header with another method than the body is refused",
			discover, "", http.Header{headerMethod: {spec.MethodToolsList}}),
		mismatch("name-mismatch", "a header with another name than the body is refused",
			spec.MethodToolsCall, named, http.Header{headerName: {"another"}}),
	}
}
