package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// Meta is a _meta member: what the protocol and others attach to a message. The
// constants Meta… are the protocol's keys.
type Meta map[string]any

// JSONObject is an object with the members that the protocol does not define. Where it
// declares a capability, {} says yes and nil says no.
type JSONObject map[string]any

// RequestMetaObject is the _meta of a request, as far as the protocol defines it:
// for reading. What else is there is in the Meta of the same bytes.
type RequestMetaObject struct {
	ProtocolVersion    string              `json:"io.modelcontextprotocol/protocolVersion,omitzero"`
	ClientInfo         *Implementation     `json:"io.modelcontextprotocol/clientInfo,omitzero"`
	ClientCapabilities *ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities,omitzero"`
	LogLevel           string              `json:"io.modelcontextprotocol/logLevel,omitzero"`
	ProgressToken      jsonrpc.Raw         `json:"progressToken,omitzero"` // a string or an integer
}

// ResultMetaObject is the _meta of a result, as far as the protocol defines it.
type ResultMetaObject struct {
	ServerInfo     *Implementation `json:"io.modelcontextprotocol/serverInfo,omitzero"`
	SubscriptionID jsonrpc.ID      `json:"io.modelcontextprotocol/subscriptionId,omitzero"` // of subscriptions/listen
}

// NotificationMetaObject is the _meta of a notification, as far as the protocol
// defines it.
type NotificationMetaObject struct {
	SubscriptionID jsonrpc.ID `json:"io.modelcontextprotocol/subscriptionId,omitzero"`
}

// RequestParams are the params of a request without other params.
type RequestParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// PaginatedRequestParams are the params of the requests that list something page
// by page. A cursor comes from the page before; it is opaque.
type PaginatedRequestParams struct {
	Meta   Meta   `json:"_meta,omitzero"`
	Cursor string `json:"cursor,omitzero"`
}

// InputResponseRequestParams is what the params of a request have in common that
// may be asked for more and is then sent again (basic/patterns/mrtr).
type InputResponseRequestParams struct {
	Meta           Meta                   `json:"_meta,omitzero"`
	InputResponses map[string]jsonrpc.Raw `json:"inputResponses,omitzero"`
	RequestState   string                 `json:"requestState,omitzero"`
}

// Implementation describes a client or a server.
type Implementation struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"`
	Version     string `json:"version"`
	Description string `json:"description,omitzero"`
	WebsiteURL  string `json:"websiteUrl,omitzero"`
	Icons       []Icon `json:"icons,omitzero"`
}

// Icon is a picture that a user interface may show.
type Icon struct {
	Src      string   `json:"src"` // an https: or data: URI
	MIMEType string   `json:"mimeType,omitzero"`
	Sizes    []string `json:"sizes,omitzero"` // "48x48", or "any"
	Theme    string   `json:"theme,omitzero"` // "light" or "dark"
}

// Annotations tell a client how to use or show content.
type Annotations struct {
	Audience     []string `json:"audience,omitzero"`     // roles
	Priority     *float64 `json:"priority,omitzero"`     // from 0, least, to 1, effectively required
	LastModified string   `json:"lastModified,omitzero"` // ISO 8601
}
