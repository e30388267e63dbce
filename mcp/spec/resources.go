package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// Resource is something that a server can read out.
type Resource struct {
	URI         string       `json:"uri"`
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"`
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"`
	Size        *int64       `json:"size,omitzero"` // bytes
	Icons       []Icon       `json:"icons,omitzero"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// ResourceTemplate describes the resources with URIs that match a template.
type ResourceTemplate struct {
	URITemplate string       `json:"uriTemplate"` // RFC 6570
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"`
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"`
	Icons       []Icon       `json:"icons,omitzero"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// ListResourcesResult is the result of resources/list.
type ListResourcesResult struct {
	Meta       Meta       `json:"_meta,omitzero"`
	ResultType string     `json:"resultType,omitzero"`
	TTLMS      *int64     `json:"ttlMs,omitzero"`
	CacheScope string     `json:"cacheScope,omitzero"`
	NextCursor string     `json:"nextCursor,omitzero"`
	Resources  []Resource `json:"resources"`
}

// ListResourceTemplatesResult is the result of resources/templates/list.
type ListResourceTemplatesResult struct {
	Meta              Meta               `json:"_meta,omitzero"`
	ResultType        string             `json:"resultType,omitzero"`
	TTLMS             *int64             `json:"ttlMs,omitzero"`
	CacheScope        string             `json:"cacheScope,omitzero"`
	NextCursor        string             `json:"nextCursor,omitzero"`
	ResourceTemplates []ResourceTemplate `json:"resourceTemplates"`
}

// ReadResourceRequestParams are the params of resources/read.
type ReadResourceRequestParams struct {
	Meta           Meta                   `json:"_meta,omitzero"`
	URI            string                 `json:"uri"`
	InputResponses map[string]jsonrpc.Raw `json:"inputResponses,omitzero"`
	RequestState   string                 `json:"requestState,omitzero"`
}

// ReadResourceResult is the result of resources/read.
type ReadResourceResult struct {
	Meta       Meta               `json:"_meta,omitzero"`
	ResultType string             `json:"resultType,omitzero"`
	TTLMS      *int64             `json:"ttlMs,omitzero"`
	CacheScope string             `json:"cacheScope,omitzero"`
	Contents   []ResourceContents `json:"contents"`
}
