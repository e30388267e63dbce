package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// Prompt describes a prompt that a server offers.
type Prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitzero"`
	Description string           `json:"description,omitzero"`
	Arguments   []PromptArgument `json:"arguments,omitzero"`
	Icons       []Icon           `json:"icons,omitzero"`
	Meta        Meta             `json:"_meta,omitzero"`
}

// PromptArgument describes an argument of a prompt.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"`
	Description string `json:"description,omitzero"`
	Required    bool   `json:"required,omitzero"`
}

// PromptMessage is one message of a prompt.
type PromptMessage struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

// ListPromptsResult is the result of prompts/list.
type ListPromptsResult struct {
	Meta       Meta     `json:"_meta,omitzero"`
	ResultType string   `json:"resultType,omitzero"`
	TTLMS      *int64   `json:"ttlMs,omitzero"`
	CacheScope string   `json:"cacheScope,omitzero"`
	NextCursor string   `json:"nextCursor,omitzero"`
	Prompts    []Prompt `json:"prompts"`
}

// GetPromptRequestParams are the params of prompts/get.
type GetPromptRequestParams struct {
	Meta           Meta                   `json:"_meta,omitzero"`
	Name           string                 `json:"name"`
	Arguments      map[string]string      `json:"arguments,omitzero"`
	InputResponses map[string]jsonrpc.Raw `json:"inputResponses,omitzero"`
	RequestState   string                 `json:"requestState,omitzero"`
}

// GetPromptResult is the result of prompts/get.
type GetPromptResult struct {
	Meta        Meta            `json:"_meta,omitzero"`
	ResultType  string          `json:"resultType,omitzero"`
	Description string          `json:"description,omitzero"`
	Messages    []PromptMessage `json:"messages"`
}
