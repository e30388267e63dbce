package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// Tool describes a tool that a server offers.
type Tool struct {
	Name         string           `json:"name"`
	Title        string           `json:"title,omitzero"`
	Description  string           `json:"description,omitzero"`
	InputSchema  jsonrpc.Raw      `json:"inputSchema"` // JSON Schema 2020-12 of an object
	OutputSchema jsonrpc.Raw      `json:"outputSchema,omitzero"`
	Icons        []Icon           `json:"icons,omitzero"`
	Annotations  *ToolAnnotations `json:"annotations,omitzero"`
	Execution    *ToolExecution   `json:"execution,omitzero"` // legacy
	Meta         Meta             `json:"_meta,omitzero"`
}

// ToolAnnotations are hints about what a tool does. None is a promise.
type ToolAnnotations struct {
	Title           string `json:"title,omitzero"`
	ReadOnlyHint    bool   `json:"readOnlyHint,omitzero"`
	DestructiveHint *bool  `json:"destructiveHint,omitzero"` // nil: true
	IdempotentHint  bool   `json:"idempotentHint,omitzero"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitzero"` // nil: true
}

// ListToolsResult is the result of tools/list.
type ListToolsResult struct {
	Meta       Meta   `json:"_meta,omitzero"`
	ResultType string `json:"resultType,omitzero"`
	TTLMS      *int64 `json:"ttlMs,omitzero"`
	CacheScope string `json:"cacheScope,omitzero"`
	NextCursor string `json:"nextCursor,omitzero"`
	Tools      []Tool `json:"tools"`
}

// CallToolRequestParams are the params of tools/call.
type CallToolRequestParams struct {
	Meta           Meta                   `json:"_meta,omitzero"`
	Name           string                 `json:"name"`
	Arguments      jsonrpc.Raw            `json:"arguments,omitzero"`
	InputResponses map[string]jsonrpc.Raw `json:"inputResponses,omitzero"`
	RequestState   string                 `json:"requestState,omitzero"`
	Task           *TaskMetadata          `json:"task,omitzero"` // legacy
}

// CallToolResult is the result of tools/call. An error of the tool itself, which
// the model is to see, is a result with IsError.
type CallToolResult struct {
	Meta              Meta
	ResultType        string
	Content           []Content
	StructuredContent jsonrpc.Raw // any JSON value; nil: none
	IsError           bool
}

// AppendJSON appends the result as JSON. A Meta or Annotations that is no JSON is
// left out; MarshalJSON reports it.
func (r *CallToolResult) AppendJSON(dst []byte) []byte {
	w := writer{dst: dst}
	r.write(&w)
	return w.dst
}

// MarshalJSON returns the result as JSON.
func (r CallToolResult) MarshalJSON() ([]byte, error) {
	var w writer
	r.write(&w)
	return w.bytes()
}

func (r *CallToolResult) write(w *writer) {
	w.open()
	w.textIf("resultType", r.ResultType)
	w.blocks("content", r.Content)
	w.rawIf("structuredContent", r.StructuredContent)
	w.flagIf("isError", r.IsError)
	w.meta(r.Meta)
	w.close()
}

// UnmarshalJSON stores the result b and does not keep b.
func (r *CallToolResult) UnmarshalJSON(b []byte) error {
	*r = CallToolResult{}
	return members("tool result", b, []place{
		{"content", &r.Content},
		{"structuredContent", &r.StructuredContent},
		{"resultType", &r.ResultType},
		{"isError", &r.IsError},
		{"_meta", &r.Meta},
	})
}
