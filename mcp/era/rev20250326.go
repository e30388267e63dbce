package era

import (
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var rev20250326 = &Revision{
	Name: spec.Revision20250326,

	Handshake:             true,
	Batch:                 true,
	StreamableHTTP:        true,
	SessionHeader:         true,
	ResumableStreams:      true,
	PingAllowed:           true,
	SetLevel:              true,
	Subscribe:             true,
	RootsChanged:          true,
	ProgressMessage:       true,
	CompletionsCapability: true,
	Audio:                 true,
	ToolAnnotations:       true,

	ResourceNotFound:   -32002,
	UnsupportedVersion: jsonrpc.InvalidParams,
}

// step20250326: audio, annotations of tools, a message in progress.
var step20250326 = step{
	down: toward(nil,
		rule{"Audio content becomes a text that names its type and size.", edits{
			{content, ofType("audio", replaced(audioText))},
		}},
		rule{"A tool loses its `annotations`.", edits{{tool, drop("annotations")}}},
		rule{
			"A progress notification loses its `message`.",
			edits{{messages(Notification, "notifications/progress"), drop("message")}},
		},
		rule{
			"Server capabilities lose `completions`; completion is offered all the same.",
			edits{{serverCan, drop("completions")}},
		},
	),
	up: toward(nil),
}
