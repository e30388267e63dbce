package era

import "github.com/farcall-dev/farcall/mcp/spec"

var rev20250326 = after(rev20241105, func(r *Revision) {
	r.Name = spec.Revision20250326
	r.Batch = true
	r.StreamableHTTP = true
	r.SessionHeader = true
	r.ResumableStreams = true
	r.ProgressMessage = true
	r.CompletionsCapability = true
	r.Audio = true
	r.ToolAnnotations = true
	r.HTTPSSE = false
})

// step20250326: audio, annotations of tools, a message in progress.
var step20250326 = step{
	down: toward(nil,
		rule{"Audio content becomes a text that names its type and size.", edits{
			{content, ofType("audio", replaced(audioText))},
		}},
		rule{"A tool loses its `annotations`.", edits{{tool, drop("annotations")}}},
		rule{"A progress notification loses its `message`.", edits{{messages(Notification, "notifications/progress"), drop("message")}}},
		rule{"Server capabilities lose `completions`; completion is offered all the same.", edits{{serverCan, drop("completions")}}},
	),
	up: toward(nil),
}
