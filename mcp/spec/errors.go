//nolint:errname // codes are called what the specification calls them
package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// The codes of errors that the protocol adds to those of JSON-RPC.
const (
	HeaderMismatch                  jsonrpc.Code = -32020
	MissingRequiredClientCapability jsonrpc.Code = -32021 // with MissingRequiredClientCapabilityData
	UnsupportedProtocolVersion      jsonrpc.Code = -32022 // with UnsupportedProtocolVersionData

	ResourceNotFound       jsonrpc.Code = -32002 // legacy; now jsonrpc.InvalidParams
	URLElicitationRequired jsonrpc.Code = -32042 // legacy, with URLElicitationRequiredData
)

// UnsupportedProtocolVersionData is the data of the error
// UnsupportedProtocolVersion.
type UnsupportedProtocolVersionData struct {
	Requested string   `json:"requested"`
	Supported []string `json:"supported"`
}

// MissingRequiredClientCapabilityData is the data of the error
// MissingRequiredClientCapability.
type MissingRequiredClientCapabilityData struct {
	RequiredCapabilities ClientCapabilities `json:"requiredCapabilities"`
}

// URLElicitationRequiredData is the data of the error URLElicitationRequired.
// Legacy.
type URLElicitationRequiredData struct {
	Elicitations []ElicitRequestParams `json:"elicitations"`
}
