package era

import (
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var rev20250618 = &Revision{
	Name: spec.Revision20250618,

	Handshake:             true,
	StreamableHTTP:        true,
	SessionHeader:         true,
	VersionHeader:         true,
	ResumableStreams:      true,
	PingAllowed:           true,
	SetLevel:              true,
	Subscribe:             true,
	RootsChanged:          true,
	ProgressMessage:       true,
	CompletionsCapability: true,
	CompletionContext:     true,
	Audio:                 true,
	ResourceLinks:         true,
	ToolAnnotations:       true,
	StructuredContent:     true,
	OutputSchema:          true,
	Titles:                true,
	Elicitation:           true,

	ResourceNotFound:   -32002,
	UnsupportedVersion: jsonrpc.InvalidParams,
}

// step20250618: structured results, links to resources, titles, elicitation.
var step20250618 = step{
	down: toward([]string{"elicitation/create"},
		rule{"A tool's result loses its `structuredContent`. It is written into a text when there is " +
			"no other content.", edits{
			{toolResult, unstructure(func(jsonrpc.Raw) bool { return true })},
		}},
		rule{"A tool loses its `outputSchema`.", edits{{tool, drop("outputSchema")}}},
		rule{"A `resource_link` becomes a text with its name and address.", edits{
			{content, ofType("resource_link", replaced(linkText))},
		}},
		rule{
			"A tool's `title` moves into its `annotations`, which have one.",
			edits{{tool, titleToAnnotations}},
		},
		rule{"The `title` of a resource, a template, a prompt, an argument, a reference or an " +
			"implementation is dropped.", edits{
			{resource, drop("title")},
			{template, drop("title")},
			{prompt, all(drop("title"), path(each(drop("title")), "arguments"))},
			{reference, drop("title")},
			{implementation, drop("title")},
		}},
		rule{"Roots lose their `_meta`. All other `_meta` stays: no schema forbids it, and hosts look " +
			"in that of tools and contents for MCP Apps.", edits{
			{root, drop("_meta")},
		}},
		rule{"`annotations` of contents, resources and templates lose `lastModified`.", edits{
			{content, path(drop("lastModified"), "annotations")},
			{resource, path(drop("lastModified"), "annotations")},
			{template, path(drop("lastModified"), "annotations")},
		}},
		rule{"`completion/complete` loses the `context` of arguments known so far.", edits{
			{messages(Params, "completion/complete"), drop("context")},
		}},
		rule{"Client capabilities lose `elicitation`.", edits{{clientCan, drop("elicitation")}}},
	),
	up: toward(nil),
}
