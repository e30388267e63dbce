package gateway

import (
	"fmt"

	"github.com/farcall-dev/farcall/mcp/openapi"
)

// slims are the words for what is shown of schemas.
var slims = map[string]openapi.Slim{"on": openapi.SlimOn, "off": openapi.SlimOff, "hard": openapi.SlimHard}

// openAPI reads an HTTP API: the path or address of its document, or a map.
func (r *reader) openAPI(u *Upstream, n *node, path string) {
	u.OpenAPI = &OpenAPI{}
	x := &u.OpenAPI.Options
	var slim string
	var text int64
	if n.kind == scalarNode {
		r.documentAt(&u.OpenAPI.Document)(n, path)
		return
	}
	r.fields(n, path, map[string]take{
		"document":         r.documentAt(&u.OpenAPI.Document),
		"refresh":          r.duration(&u.OpenAPI.Refresh),
		"servers":          r.oneOrMore(&x.Servers),
		"variables":        r.table(&x.Variables),
		"allow_private":    r.flag(&x.AllowPrivate),
		"read_only":        r.flag(&x.ReadOnly),
		"max_tools":        r.count(&x.MaxTools),
		"max_name":         r.count(&x.MaxName),
		"max_text":         r.size(&text),
		"optional_headers": r.flag(&x.OptionalHeaders),
		"slim":             r.text(&slim),
		"inline_refs":      r.flag(&x.InlineRefs),
		"output_schemas":   r.flag(&x.OutputSchemas),
		"media_types":      r.table(&x.MediaTypes),
		"index_arrays":     r.flag(&x.IndexArrays),
	})
	x.MaxText = int(text)
	if value, known := slims[slim]; known {
		x.Slim = value
	} else if slim != "" {
		r.problem(path+".slim", fmt.Sprintf("there is no kind of schemas %q", slim), "use "+either("on", "off", "hard"))
	}
}

// documentAt reads the path or the address of a document.
func (r *reader) documentAt(dst *string) take {
	return func(n *node, path string) {
		if text, ok := r.value(n, path); ok && text != "" {
			*dst = text
			if !isURL(text) {
				*dst = r.beside(text)
			}
		}
	}
}

// documents makes a change of a document one of the configuration.
func (r *reader) documents(all []*Upstream, apis map[*Upstream]*openapi.API) {
	for _, u := range all {
		if doc := apis[u]; doc != nil {
			u.documents = doc.Digest()
			r.read = append(r.read, doc.Files()...)
		}
	}
}
