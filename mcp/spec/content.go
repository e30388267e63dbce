package spec

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The types of Content. The last two are for sampling only.
const (
	TypeText         = "text"
	TypeImage        = "image"
	TypeAudio        = "audio"
	TypeResourceLink = "resource_link"
	TypeResource     = "resource"
	TypeToolUse      = "tool_use"
	TypeToolResult   = "tool_result"
)

// Content is one block of content. Its Type says which members it has: the
// encoder writes those and no others, the decoder reads those and no others. No
// Type is TypeText.
type Content struct {
	Type string

	Text string // text

	Data     []byte // image, audio
	MIMEType string // image, audio, resource_link

	URI         string // resource_link, as the following
	Name        string // also of tool_use
	Title       string
	Description string
	Size        *int64
	Icons       []Icon

	Resource *ResourceContents // resource

	ID    string      // tool_use
	Input jsonrpc.Raw // tool_use: an object

	ToolUseID         string      // tool_result, as the following
	Content           []Content   // of any type but the two for sampling
	StructuredContent jsonrpc.Raw // nil: none
	IsError           bool

	Annotations *Annotations // of all but the two for sampling
	Meta        Meta         // of all

	// Raw is the whole block as it came, when its Type is none of the above; the
	// other members are not set then.
	Raw jsonrpc.Raw
}

// contentMembers has the members of each type beside type and _meta.
var contentMembers = map[string][]string{
	TypeText:  {"text", "annotations"},
	TypeImage: {"data", "mimeType", "annotations"},
	TypeAudio: {"data", "mimeType", "annotations"},
	TypeResourceLink: {
		"uri", "name", "title", "description", "mimeType", "size", "icons",
		"annotations",
	},
	TypeResource:   {"resource", "annotations"},
	TypeToolUse:    {"id", "name", "input"},
	TypeToolResult: {"toolUseId", "content", "structuredContent", "isError"},
}

// AppendJSON appends the block as JSON. An Annotations or Meta that is no JSON is
// left out; MarshalJSON reports it.
func (c *Content) AppendJSON(dst []byte) []byte {
	w := writer{dst: dst}
	c.write(&w)
	return w.dst
}

// MarshalJSON returns the block as JSON.
func (c Content) MarshalJSON() ([]byte, error) {
	var w writer
	c.write(&w)
	return w.bytes()
}

func (c *Content) write(w *writer) {
	if c.Raw != nil {
		w.dst = append(w.dst, c.Raw...)
		return
	}
	w.open()
	w.text("type", cmp.Or(c.Type, TypeText))
	switch c.Type {
	case TypeText, "":
		w.text("text", c.Text)
	case TypeImage, TypeAudio:
		w.base64("data", c.Data)
		w.text("mimeType", c.MIMEType)
	case TypeResourceLink:
		c.writeLink(w)
	case TypeResource:
		w.name("resource")
		resource := c.Resource
		if resource == nil {
			resource = &ResourceContents{}
		}
		resource.write(w)
	case TypeToolUse:
		w.text("id", c.ID)
		w.text("name", c.Name)
		w.raw("input", orEmpty(c.Input))
	case TypeToolResult:
		w.text("toolUseId", c.ToolUseID)
		w.blocks("content", c.Content)
		w.rawIf("structuredContent", c.StructuredContent)
		w.flagIf("isError", c.IsError)
	}
	if c.Type != TypeToolUse && c.Type != TypeToolResult && c.Annotations != nil {
		w.put("annotations", c.Annotations)
	}
	w.meta(c.Meta)
	w.close()
}

func (c *Content) writeLink(w *writer) {
	w.text("uri", c.URI)
	w.text("name", c.Name)
	w.textIf("title", c.Title)
	w.textIf("description", c.Description)
	w.textIf("mimeType", c.MIMEType)
	if c.Size != nil {
		w.put("size", *c.Size)
	}
	if c.Icons != nil {
		w.put("icons", &c.Icons)
	}
}

func orEmpty(raw jsonrpc.Raw) jsonrpc.Raw {
	if raw == nil {
		return jsonrpc.Raw("{}")
	}
	return raw
}

// UnmarshalJSON stores the block b and does not keep b.
func (c *Content) UnmarshalJSON(b []byte) error { return c.read(b, "") }

// read stores the block b that is inside content of another type, if any. What
// cannot be there is kept as Raw, so that nothing is ever nested twice.
func (c *Content) read(b []byte, inside string) error {
	*c = Content{}
	if err := c.readType(b); err != nil {
		return err
	}
	members, known := contentMembers[c.Type]
	if !known || inside == TypeToolResult && (c.Type == TypeToolUse || c.Type == TypeToolResult) {
		c.Raw = bytes.Clone(b)
		return nil
	}
	places := []place{
		{"text", &c.Text},
		{"data", &c.Data},
		{"mimeType", &c.MIMEType},
		{"annotations", &c.Annotations},
		{"uri", &c.URI},
		{"name", &c.Name},
		{"title", &c.Title},
		{"description", &c.Description},
		{"size", &c.Size},
		{"icons", &c.Icons},
		{"resource", &c.Resource},
		{"id", &c.ID},
		{"toolUseId", &c.ToolUseID},
		{"structuredContent", &c.StructuredContent},
		{"isError", &c.IsError},
		{"_meta", &c.Meta},
	}
	return object(c.Type, b, func(key, value []byte) error {
		switch name := string(key); {
		case name != "_meta" && !slices.Contains(members, name):
		case name == "content":
			return readBlocks(&c.Content, value, c.Type)
		case name != "input":
			return readMember(places, key, value)
		case !isNull(value):
			c.Input = bytes.Clone(value)
		}
		return nil
	})
}

// readType stores the type alone, which most write first.
func (c *Content) readType(b []byte) error {
	value := scan.Member(b, "type")
	if value != nil && readText(&c.Type, value) != nil || c.Type == "" {
		return errNoType
	}
	return nil
}

// ResourceContents is what a resource holds: bytes when Blob is not nil, else
// text.
type ResourceContents struct {
	URI      string
	MIMEType string
	Text     string
	Blob     []byte
	Meta     Meta
}

// AppendJSON appends the contents as JSON. A Meta that is no JSON is left out;
// MarshalJSON reports it.
func (r *ResourceContents) AppendJSON(dst []byte) []byte {
	w := writer{dst: dst}
	r.write(&w)
	return w.dst
}

// MarshalJSON returns the contents as JSON.
func (r ResourceContents) MarshalJSON() ([]byte, error) {
	var w writer
	r.write(&w)
	return w.bytes()
}

func (r *ResourceContents) write(w *writer) {
	w.open()
	w.text("uri", r.URI)
	w.textIf("mimeType", r.MIMEType)
	if r.Blob != nil {
		w.base64("blob", r.Blob)
	} else {
		w.text("text", r.Text)
	}
	w.meta(r.Meta)
	w.close()
}

// UnmarshalJSON stores the contents b and does not keep b.
func (r *ResourceContents) UnmarshalJSON(b []byte) error {
	*r = ResourceContents{}
	return members("resource contents", b, []place{
		{"uri", &r.URI},
		{"mimeType", &r.MIMEType},
		{"text", &r.Text},
		{"blob", &r.Blob},
		{"_meta", &r.Meta},
	})
}
