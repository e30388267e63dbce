package mcp

import "github.com/farcall-dev/farcall/mcp/spec"

//nolint:revive // the comments are where the types are
type (
	Tool             = spec.Tool
	ToolResult       = spec.CallToolResult
	Content          = spec.Content
	Resource         = spec.Resource
	ResourceTemplate = spec.ResourceTemplate
	ResourceContents = spec.ResourceContents
	Prompt           = spec.Prompt
	PromptMessage    = spec.PromptMessage
	PromptResult     = spec.GetPromptResult
	Root             = spec.Root
)

// Text returns content that is text.
func Text(s string) Content { return Content{Type: spec.TypeText, Text: s} }

// Image returns content that is an image of a MIME type such as "image/png".
func Image(data []byte, mime string) Content {
	return Content{Type: spec.TypeImage, Data: data, MIMEType: mime}
}

// Audio returns content that is sound of a MIME type such as "audio/wav".
// Clients of revisions without audio get a text that says so.
func Audio(data []byte, mime string) Content {
	return Content{Type: spec.TypeAudio, Data: data, MIMEType: mime}
}

// Link returns content that points to a resource. Clients of revisions without
// links get a text.
func Link(r Resource) Content {
	return Content{
		Type: spec.TypeResourceLink, URI: r.URI, Name: r.Name, Title: r.Title,
		Description: r.Description, MIMEType: r.MIMEType, Size: r.Size,
		Icons: r.Icons, Annotations: r.Annotations, Meta: r.Meta,
	}
}

// Embed returns content that is a resource.
func Embed(c ResourceContents) Content { return Content{Type: spec.TypeResource, Resource: &c} }
