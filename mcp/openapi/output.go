package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/mcp"
)

const (
	maxLinks     = 5   // that a description names
	maxLinksText = 400 // bytes of them
)

// links names the tools that go on from a result of an operation: the links of its successful
// responses.
func (b *builder) links(o *operation) string {
	var hints []string
	b.successes(o, func(_ string, r node) {
		r.get("links").each(func(_ string, link node) bool {
			link, err := b.d.deref(link)
			if err != nil {
				return true
			}
			to := b.linked(link)
			if to == nil {
				return true
			}
			var values []string
			link.get("parameters").each(func(name string, value node) bool {
				_, name, _ = cutLast(name) // it may be "path.id"
				values = append(values, clean(name)+" = "+shorten(clean(value.text()), 60))
				return len(values) < maxLinks
			})
			hint := to.name + "(" + strings.Join(values, ", ") + ")"
			if !slices.Contains(hints, hint) {
				hints = append(hints, hint)
			}
			return len(hints) < maxLinks
		})
	})
	if len(hints) == 0 {
		return ""
	}
	return "\nThen: " + shorten(strings.Join(hints, "; "), maxLinksText)
}

// cutLast cuts around the last dot of a text.
func cutLast(s string) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return "", s, false
}

// linked returns the operation that a link leads to, if it is a tool.
func (b *builder) linked(link node) *operation {
	id, ref := link.get("operationId").text(), link.get("operationRef").text()
	for _, o := range b.chosen {
		if id != "" && o.id == id || ref != "" && ref == "#/paths/"+escapePointer(o.path)+"/"+strings.ToLower(o.method) {
			return o
		}
	}
	return nil
}

func escapePointer(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// successes calls f with the responses of 2xx.
func (b *builder) successes(o *operation, f func(status string, response node)) {
	o.node.get("responses").each(func(status string, r node) bool {
		if !strings.HasPrefix(status, "2") {
			return true
		}
		if r, err := b.d.deref(r); err == nil {
			f(status, r)
		}
		return true
	})
}

// outputSchema returns the schema of a successful answer, where there is one kind of them and it is
// an object in JSON, with the components that it refers to. Nil: there is none that can be shown.
func (b *builder) outputSchema(o *operation) ([]byte, error) {
	var found node
	n := 0
	b.successes(o, func(_ string, r node) {
		n++
		if b.swagger {
			found = r.get("schema")
			return
		}
		r.get("content").each(func(media string, m node) bool {
			if isJSON(mediaName(media)) {
				found = m.get("schema")
			} else {
				n++
			}
			return true
		})
	})
	if n != 1 || !found.there() {
		return nil, nil
	}
	schema, err := b.d.deref(found)
	object := schema.get("type").text() == "object" || !schema.get("type").there() && schema.get("properties").there()
	if err != nil || !object {
		return nil, nil //nolint:nilerr // only the tool's results are not described
	}
	if b.answers == nil {
		b.answers = newShaper(b.d, b.o.Slim)
		b.answers.response = true
	}
	w := schemaWriter{shaper: b.answers}
	if err := w.schema(schema, 0); err != nil {
		return nil, err
	}
	if string(scan.Member(w.out, "type")) != `"object"` {
		w.out = append([]byte(`{"type":"object",`), w.out[1:]...)
	}
	w.out = w.out[:len(w.out)-1]
	if _, err := w.definitions(false); err != nil {
		return nil, err
	}
	w.close()
	if _, err := validate.Compile(w.out, validate.Limits{}); err != nil || len(w.out) > maxToolSchema {
		b.warn(o, "the schema of its answer is larger than %d bytes, or cannot be checked: it is not shown", maxToolSchema)
		return nil, nil //nolint:nilerr // as above
	}
	return w.out, nil
}

// fitting returns the result of a tool with an output schema: an error, with the text, when it does
// not fit.
func (p *plan) fitting(r *mcp.ToolResult) *mcp.ToolResult {
	if p.output == nil || r.IsError {
		return r
	}
	why := "it is no JSON object"
	if r.StructuredContent != nil {
		err := p.output.Validate(r.StructuredContent)
		if err == nil {
			return r
		}
		why = err.Error()
	}
	out := errorResult("The API's answer is not what its document says: " + shorten(clean(why), 300))
	out.Content = append(out.Content, r.Content...)
	return out
}

// knownExtensions are the members of extensions for MCP that are read.
func knownExtensions() map[string][]string {
	return map[string][]string{
		"x-mcp":           {"skip", "name", "title", "description", "annotations"},
		"x-speakeasy-mcp": {"disabled", "name", "title", "description", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"},
	}
}

// ignored lists what a node says about MCP and what is not read.
func ignored(n node) (names []string) {
	known := knownExtensions()
	n.each(func(name string, value node) bool {
		if members, ok := known[name]; ok {
			value.each(func(member string, _ node) bool {
				if !slices.Contains(members, member) {
					names = append(names, clip(name+"."+member))
				}
				return len(names) < maxLinks
			})
		} else if strings.HasPrefix(name, "x-mcp") || strings.HasPrefix(name, "x-fastmcp") || strings.HasPrefix(name, "x-speakeasy-mcp") {
			names = append(names, clip(name))
		}
		return len(names) < maxLinks
	})
	return names
}

// warnIgnored reports what is not read of an operation, or of the document.
func (b *builder) warnIgnored(o *operation, n node) {
	if names := ignored(n); len(names) > 0 {
		b.warn(o, "%s", fmt.Sprintf("ignored: %s; x-mcp: {skip, name, title, description, annotations} is read", strings.Join(names, ", ")))
	}
}
