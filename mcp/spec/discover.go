package spec

// ClientCapabilities says what a client can do.
type ClientCapabilities struct {
	Elicitation  *ElicitationCapability `json:"elicitation,omitzero"`
	Sampling     *SamplingCapability    `json:"sampling,omitzero"`
	Roots        *RootsCapability       `json:"roots,omitzero"`
	Tasks        *TasksCapability       `json:"tasks,omitzero"` // legacy
	Extensions   map[string]any         `json:"extensions,omitzero"`
	Experimental map[string]any         `json:"experimental,omitzero"`
}

// ElicitationCapability says which modes of elicitation a client knows. With
// neither it knows the form.
type ElicitationCapability struct {
	Form JSONObject `json:"form,omitzero"`
	URL  JSONObject `json:"url,omitzero"`
}

// SamplingCapability says what a client's sampling takes.
type SamplingCapability struct {
	Context JSONObject `json:"context,omitzero"` // includeContext
	Tools   JSONObject `json:"tools,omitzero"`
}

// RootsCapability is declared by a client that has roots.
type RootsCapability struct {
	ListChanged bool `json:"listChanged,omitzero"` // legacy
}

// ServerCapabilities says what a server can do.
type ServerCapabilities struct {
	Tools        *ToolsCapability     `json:"tools,omitzero"`
	Resources    *ResourcesCapability `json:"resources,omitzero"`
	Prompts      *PromptsCapability   `json:"prompts,omitzero"`
	Completions  JSONObject           `json:"completions,omitzero"`
	Logging      JSONObject           `json:"logging,omitzero"`
	Tasks        *TasksCapability     `json:"tasks,omitzero"` // legacy
	Extensions   map[string]any       `json:"extensions,omitzero"`
	Experimental map[string]any       `json:"experimental,omitzero"`
}

// ToolsCapability is declared by a server that has tools.
type ToolsCapability struct {
	ListChanged bool `json:"listChanged,omitzero"`
}

// ResourcesCapability is declared by a server that has resources.
type ResourcesCapability struct {
	Subscribe   bool `json:"subscribe,omitzero"`
	ListChanged bool `json:"listChanged,omitzero"`
}

// PromptsCapability is declared by a server that has prompts.
type PromptsCapability struct {
	ListChanged bool `json:"listChanged,omitzero"`
}

// DiscoverResult is the result of server/discover. Who the server is stands in
// its _meta: MetaServerInfo.
type DiscoverResult struct {
	Meta              Meta               `json:"_meta,omitzero"`
	ResultType        string             `json:"resultType,omitzero"`
	TTLMS             *int64             `json:"ttlMs,omitzero"`
	CacheScope        string             `json:"cacheScope,omitzero"`
	SupportedVersions []string           `json:"supportedVersions"`
	Capabilities      ServerCapabilities `json:"capabilities"`
	Instructions      string             `json:"instructions,omitzero"`
}
