// Package openapi answers one question: how do the operations of an HTTP API become
// MCP tools?
//
// An OpenAPI document (3.0, 3.1, or Swagger 2.0; JSON or YAML) is read once. Each of its
// operations becomes a tool; its calls are requests to the API:
//
//	api, err := openapi.New(document, &openapi.Options{BaseURL: "https://api.example.com/v1"})
//	if err != nil {
//		return err
//	}
//	server := mcp.NewServer("example", "1.0.0", nil)
//	api.AddTo(server)
//
// What has no counterpart in MCP is left out, operation by operation: [API.Problems] says
// what and why. Schemas, requests and names are made when the document is read; a call
// validates its arguments and sends a request.
//
// # Arguments
//
// The parameters of an operation and the properties of its body are the arguments of the
// tool, side by side. Where two have one name, a path parameter keeps it, and the others
// are prefixed with where they belong: query_id, header_id, cookie_id, body_id. A body
// that is not an object, or one of several forms, is the argument body. A file is an
// object with its data in base64.
//
// # Results
//
// JSON is returned as text and as structured content, images and audio as such, other
// media as an embedded resource. A response of 400 and above is a result with IsError,
// for the model to read.
//
// # Security
//
// A document and the API behind it are not trusted. References to other documents are
// refused, except files below the folder of [Open]. Requests go to one origin, with the
// credentials of [Options] for that origin alone; a redirect to another origin is not
// followed. When the origin is the document's own choice, it must be https and only
// public addresses are dialled. Texts lose control characters.
package openapi
