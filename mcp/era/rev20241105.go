package era

import (
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var rev20241105 = &Revision{
	Name: spec.Revision20241105,

	Handshake:    true,
	HTTPSSE:      true,
	PingAllowed:  true,
	SetLevel:     true,
	Subscribe:    true,
	RootsChanged: true,

	ResourceNotFound:   -32002,
	UnsupportedVersion: jsonrpc.InvalidParams,
}
