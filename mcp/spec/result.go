package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// Result is the known common part of a result, and the
// whole of an empty one.
type Result struct {
	Meta       Meta   `json:"_meta,omitzero"`
	ResultType string `json:"resultType,omitzero"`
}

// InputRequiredResult is the answer of a server that needs something of its
// client first (basic/patterns/mrtr). At least one member is set.
type InputRequiredResult struct {
	Meta          Meta                    `json:"_meta,omitzero"`
	ResultType    string                  `json:"resultType,omitzero"` // ResultInputRequired
	InputRequests map[string]InputRequest `json:"inputRequests,omitzero"`
	RequestState  string                  `json:"requestState,omitzero"`
}

// InputRequest is one thing that a server asks of its client:
// elicitation/create, sampling/createMessage or roots/list. The response to it is
// the method's result.
type InputRequest struct {
	Method string      `json:"method"`
	Params jsonrpc.Raw `json:"params,omitzero"`
}
