// Package apps answers one question: how does a server show a page beside the result of a tool?
//
// It has MCP Apps (SEP-1865, revision 2026-01-26): a page is a resource with a URI that begins with
// ui://, and a tool names it in its _meta. Hosts that do not know the extension show the tool's
// result alone.
//
//	apps.AddPage(s, apps.Page{URI: "ui://weather/today", Name: "today", HTML: page})
//	s.AddTool(apps.WithPage(mcp.Tool{Name: "today"}, "ui://weather/today"), today)
package apps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/mcp"
)

const (
	// Extension is the id under which hosts declare that they show pages.
	Extension = "io.modelcontextprotocol/ui"
	// MIMEType is that of pages.
	MIMEType = "text/html;profile=mcp-app"
)

// Who may call a tool, in WithPage.
const (
	Model = "model" // the model: it is in the list of tools
	App   = "app"   // pages of the same server
)

// A Page is an HTML document that hosts show in a sandbox. The zero value of a field is the host's
// default, which allows nothing.
type Page struct {
	// URI begins with ui://; Name is for programs, Title and Description are for people.
	URI, Name, Title, Description string
	// HTML is the document. Read returns it in its place, if it is set; it may be called by any
	// number of goroutines at once.
	HTML string
	Read func(ctx context.Context) (string, error)

	// Connect are the origins that the page may fetch from, Resources those of scripts, styles, images
	// and fonts, Frames those of frames in it, and BaseURIs what its base element may have.
	Connect, Resources, Frames, BaseURIs []string
	// Permissions are what the page asks for: "camera", "microphone", "geolocation", "clipboardWrite".
	Permissions []string
	// Domain is an origin of the page's own, in the form that the host wants.
	Domain string
	// Border says whether the host draws a border. Nil: the host decides.
	Border *bool
}

// AddPage adds a page to a server. It panics where [mcp.Server.AddResource] does, when the URI does
// not begin with ui://, when there is no document, and for an unknown permission.
func AddPage(s *mcp.Server, p Page) {
	misuse(!strings.HasPrefix(p.URI, "ui://"), "the URI of the page %q must begin with ui://", p.URI)
	misuse(p.HTML == "" && p.Read == nil, "the page %s needs HTML, or Read", p.URI)
	meta := p.meta()
	r := mcp.Resource{
		URI: p.URI, Name: p.Name, Title: p.Title, Description: p.Description,
		MIMEType: MIMEType, Meta: meta,
	}
	s.AddResource(r, func(ctx context.Context, _ string) ([]mcp.ResourceContents, error) {
		html := p.HTML
		if p.Read != nil {
			var err error
			if html, err = p.Read(ctx); err != nil {
				return nil, err
			}
		}
		return []mcp.ResourceContents{{Text: html, Meta: meta}}, nil
	})
}

func misuse(wrong bool, format string, args ...any) {
	if wrong {
		panic("apps: " + fmt.Sprintf(format, args...)) //nolint:forbidigo // the mistake is in the calling code, as in package mcp
	}
}

// meta returns the _meta of the page, or nil.
func (p *Page) meta() map[string]any {
	ui, csp := map[string]any{}, map[string]any{}
	for name, origins := range map[string][]string{
		"connectDomains": p.Connect, "resourceDomains": p.Resources, "frameDomains": p.Frames,
		"baseUriDomains": p.BaseURIs,
	} {
		if len(origins) > 0 {
			csp[name] = slices.Clone(origins)
		}
	}
	if len(csp) > 0 {
		ui["csp"] = csp
	}
	permissions := map[string]any{}
	for _, name := range p.Permissions {
		known := slices.Contains([]string{"camera", "microphone", "geolocation", "clipboardWrite"}, name)
		misuse(!known,
			"the page %s asks for %q; the permissions are camera, microphone, geolocation, clipboardWrite",
			p.URI, name)
		permissions[name] = map[string]any{}
	}
	if len(permissions) > 0 {
		ui["permissions"] = permissions
	}
	if p.Domain != "" {
		ui["domain"] = p.Domain
	}
	if p.Border != nil {
		ui["prefersBorder"] = *p.Border
	}
	if len(ui) == 0 {
		return nil
	}
	return map[string]any{"ui": ui}
}

// WithPage returns a tool with results that hosts show in a page. visibility is who may call it,
// Model and App; both, if there is none. It panics when the URI does not begin with ui://, and for
// any other visibility.
func WithPage(t mcp.Tool, page string, visibility ...string) mcp.Tool {
	misuse(!strings.HasPrefix(page, "ui://"), "the URI of the page %q must begin with ui://", page)
	ui := map[string]any{"resourceUri": page}
	for _, who := range visibility {
		misuse(who != Model && who != App, "the tool %q is visible to %q; it may be %q and %q", t.Name,
			who, Model, App)
	}
	if len(visibility) > 0 {
		ui["visibility"] = slices.Clone(visibility)
	}
	meta := maps.Clone(t.Meta)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["ui"] = ui
	t.Meta = meta
	return t
}

// Shown reports whether the client with a request that is being handled shows pages. Others get
// what a tool returns.
func Shown(ctx context.Context) bool {
	c := mcp.ClientFrom(ctx)
	if c == nil {
		return false
	}
	settings, ok := c.Capabilities.Extensions[Extension].(map[string]any)
	types, _ := settings["mimeTypes"].([]any)
	return ok && slices.Contains(types, any(MIMEType))
}
