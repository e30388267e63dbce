package era

import "github.com/farcall-dev/farcall/jsonrpc"

var rev20241105 = &Revision{
	Name: "2024-11-05",

	Handshake:    true,
	HTTPSSE:      true,
	PingAllowed:  true,
	SetLevel:     true,
	Subscribe:    true,
	RootsChanged: true,

	ResourceNotFound:   -32002,
	UnsupportedVersion: jsonrpc.InvalidParams,
}
