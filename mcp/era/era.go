// Package era answers one question: how do MCP's revisions differ?
//
// It has one table of facts, one row per revision, and translators between
// neighbouring revisions, which are composed for every other pair. All of it is
// pure: messages go in as bytes and come out as bytes, and what a translator
// does not know passes untouched. No other package names a revision or compares
// two: code asks a fact ("does this revision have audio?").
//
// A new revision is one file, with its facts and its differences from the
// revision before it, and one row in the table.
package era

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// Revision is one revision of the protocol and the facts about it. Revisions
// are never changed, and there is one of each: compare the pointers.
type Revision struct {
	// Name is the revision's name on the wire.
	Name string

	// Handshake: a connection begins with initialize, and requests belong to the
	// session that it opens; otherwise there is server/discover, and each request
	// stands alone.
	Handshake bool
	// RequestMeta: every request carries revision, client and capabilities in _meta.
	RequestMeta bool
	// InputRounds: a server asks its client by a result, input_required, and the
	// client calls again with the answers; otherwise by its own requests.
	InputRounds bool
	// ResultTypes: results have a resultType, and serverInfo in _meta.
	ResultTypes bool
	// CacheHints: lists and resources say how long, and by which callers, they may be kept.
	CacheHints bool
	// ListenStream: there is subscriptions/listen, with a stream that reports changes.
	ListenStream bool
	// MirroredHeaders: HTTP requests repeat the method, the name and marked arguments
	// in headers.
	MirroredHeaders bool
	// ReservedCodes: the error codes from -32099 to -32020 are MCP's.
	ReservedCodes bool

	// Batch: JSON-RPC batches may be sent.
	Batch bool
	// HTTPSSE: the HTTP transport is GET /sse and POST of each message to the
	// address that it gives.
	HTTPSSE bool
	// StreamableHTTP: the HTTP transport has one address; an answer is JSON or an
	// event stream.
	StreamableHTTP bool
	// SessionHeader: a server may give a session in Mcp-Session-Id.
	SessionHeader bool
	// VersionHeader: HTTP requests carry MCP-Protocol-Version.
	VersionHeader bool
	// ResumableStreams: a broken event stream is resumed with Last-Event-ID.
	ResumableStreams bool
	// PollingStreams: a server may close an event stream at will, after an event
	// that has an id and no data; the client comes back for the rest.
	PollingStreams bool

	// PingAllowed: there is ping, in both directions.
	PingAllowed bool
	// SetLevel: there is logging/setLevel.
	SetLevel bool
	// MetaLogLevel: the log level is in each request's _meta, and without it nothing
	// is logged.
	MetaLogLevel bool
	// Subscribe: there are resources/subscribe and resources/unsubscribe.
	Subscribe bool
	// RootsChanged: there is notifications/roots/list_changed.
	RootsChanged bool
	// ProgressMessage: a progress notification may have a message.
	ProgressMessage bool
	// CompletionsCapability: a server that completes arguments says so in its
	// capabilities.
	CompletionsCapability bool
	// CompletionContext: completion/complete carries the arguments known so far.
	CompletionContext bool
	// Extensions: capabilities have extensions.
	Extensions bool

	// Audio: content may be audio.
	Audio bool
	// ResourceLinks: content may be a link to a resource.
	ResourceLinks bool
	// ToolAnnotations: tools have annotations (readOnlyHint and others).
	ToolAnnotations bool
	// StructuredContent: a tool's result may have structuredContent.
	StructuredContent bool
	// OutputSchema: a tool may have an outputSchema.
	OutputSchema bool
	// AnyStructured: structuredContent is any JSON value and outputSchema any
	// schema; otherwise both are about an object.
	AnyStructured bool
	// Titles: tools, resources, prompts, arguments and implementations have a title.
	Titles bool
	// Icons: tools, resources, prompts and implementations have icons.
	Icons bool

	// Elicitation: a server may ask the user to fill in a form.
	Elicitation bool
	// ElicitationURL: a server may ask the user to visit an address.
	ElicitationURL bool
	// ElicitationComplete: visiting an address has an elicitationId, and
	// notifications/elicitation/complete tells of its end.
	ElicitationComplete bool
	// ElicitationDefaults: every kind of form field has a default.
	ElicitationDefaults bool
	// ElicitationEnums: choices have titles in JSON Schema's own terms, and more
	// than one may be chosen.
	ElicitationEnums bool
	// SamplingTools: sampling knows tools, and a message may have several contents.
	SamplingTools bool
	// LegacyTasks: tasks are part of the protocol: the client asks for one with the
	// request's task member.
	LegacyTasks bool
	// TasksExtension: tasks are an extension: the server makes one when it sees fit.
	TasksExtension bool

	// ResourceNotFound is the code of the error for a resource that is not there.
	ResourceNotFound jsonrpc.Code
	// UnsupportedVersion is the code of the error for a revision that is not spoken.
	UnsupportedVersion jsonrpc.Code
	// URLElicitationRequired is the code of the error that asks the user to visit an
	// address first; 0: there is none.
	URLElicitationRequired jsonrpc.Code
}

// A row is a revision and its step to the one before.
type row struct {
	revision *Revision
	step     step
}

// table has all revisions, oldest first.
var table = []row{
	{revision: rev20241105},
	{rev20250326, step20250326},
	{rev20250618, step20250618},
	{rev20251125, step20251125},
	{rev20260728, step20260728},
}

// Revisions returns all revisions, oldest first.
func Revisions() []*Revision { return slices.Clone(revisions) }

// Lookup returns the revision with that name, or nil.
func Lookup(name string) *Revision {
	for _, r := range revisions {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Latest returns the newest revision.
func Latest() *Revision { return revisions[len(revisions)-1] }

// LatestLegacy returns the newest revision that has a handshake.
func LatestLegacy() *Revision {
	_, legacy := split()
	return legacy[0]
}

// Select returns the revisions that pin allows, best first: all of them for
// "auto" or "", the stateless ones for "modern", those with a handshake for
// "legacy", or the one that is named.
func Select(pin string) (modern, legacy []*Revision, err error) {
	modern, legacy = split()
	switch pin {
	case "", "auto":
		return modern, legacy, nil
	case "modern":
		return modern, nil, nil
	case "legacy":
		return nil, legacy, nil
	}
	only := func(all []*Revision) []*Revision {
		return slices.DeleteFunc(all, func(r *Revision) bool { return r.Name != pin })
	}
	modern, legacy = only(modern), only(legacy)
	if len(modern)+len(legacy) == 0 {
		return nil, nil, fmt.Errorf("unknown MCP revision %q: want auto, modern, legacy or one of %s",
			pin, names())
	}
	return modern, legacy, nil
}

// split returns the revisions of both kinds, newest first.
func split() (modern, legacy []*Revision) {
	for _, r := range slices.Backward(revisions) {
		if r.Handshake {
			legacy = append(legacy, r)
		} else {
			modern = append(modern, r)
		}
	}
	return modern, legacy
}

func names() string {
	var all []string
	for _, r := range revisions {
		all = append(all, r.Name)
	}
	return strings.Join(all, ", ")
}
