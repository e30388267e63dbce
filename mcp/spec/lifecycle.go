package spec

// InitializeParams are the params of initialize. Legacy.
type InitializeParams struct {
	Meta            Meta               `json:"_meta,omitzero"`
	ProtocolVersion string             `json:"protocolVersion"`
	Capabilities    ClientCapabilities `json:"capabilities"`
	ClientInfo      Implementation     `json:"clientInfo"`
}

// InitializeResult is the result of initialize. Legacy.
type InitializeResult struct {
	Meta            Meta               `json:"_meta,omitzero"`
	ProtocolVersion string             `json:"protocolVersion"`
	Capabilities    ServerCapabilities `json:"capabilities"`
	ServerInfo      Implementation     `json:"serverInfo"`
	Instructions    string             `json:"instructions,omitzero"`
}

// SetLevelParams are the params of logging/setLevel. Legacy.
type SetLevelParams struct {
	Meta  Meta   `json:"_meta,omitzero"`
	Level string `json:"level"`
}

// SubscribeParams are the params of resources/subscribe and
// resources/unsubscribe. Legacy.
type SubscribeParams struct {
	Meta Meta   `json:"_meta,omitzero"`
	URI  string `json:"uri"`
}
