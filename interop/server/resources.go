package main

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall/mcp"
)

func addResources(s *mcp.Server) {
	static := func(uri, name, description string, contents mcp.ResourceContents) {
		r := mcp.Resource{URI: uri, Name: name, Description: description, MIMEType: contents.MIMEType}
		s.AddResource(r, func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{contents}, nil
		})
	}
	static("test://static-text", "Static text", "A text that does not change", mcp.ResourceContents{
		MIMEType: "text/plain", Text: "This is the content of the static text resource.",
	})
	static("test://static-binary", "Static binary", "An image that does not change",
		mcp.ResourceContents{
			MIMEType: "image/png", Blob: pixel,
		})
	static("test://watched-resource", "Watched resource", "A text to subscribe to",
		mcp.ResourceContents{
			MIMEType: "text/plain", Text: "This is the content of the watched resource.",
		})
	s.AddTemplate(mcp.ResourceTemplate{
		URITemplate: "test://template/{id}/data", Name: "Template", Description: "Data by its id",
		MIMEType: "application/json",
	}, func(_ context.Context, _ string, vars mcp.Vars) ([]mcp.ResourceContents, error) {
		text := fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, vars.Get("id"),
			vars.Get("id"))
		return []mcp.ResourceContents{{Text: text}}, nil
	})
}
