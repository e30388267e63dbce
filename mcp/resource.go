package mcp

import (
	"context"
	"errors"
	"io/fs"

	"github.com/farcall-dev/farcall/internal/uritemplate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// ErrNotFound is what a function that reads a resource returns, or wraps, when
// there is no such resource. An error that is fs.ErrNotExist says the same.
var ErrNotFound = errors.New("mcp: there is no such resource")

type resource struct {
	spec Resource
	read func(ctx context.Context, uri string) ([]ResourceContents, error)
	part[*resource]
}

func (r *resource) key() string                 { return r.spec.URI }
func (r *resource) kind() string                { return "resource" }
func (r *resource) shown() (modern, legacy any) { return r.spec, r.spec }

func (r *resource) origin() string             { return r.key() }
func (r *resource) arranged(*Server) *resource { return r }

func (r *resource) under(m *mounted) *resource {
	return &resource{spec: r.spec, part: part[*resource]{m, r}}
}

func (r *resource) visible(ctx context.Context, s *Server) bool {
	return visible(ctx, s, r, r.part)
}

type template struct {
	spec  ResourceTemplate
	match *uritemplate.Template
	read  func(ctx context.Context, uri string, vars Vars) ([]ResourceContents, error)
	part[*template]
}

// Vars are what the variables of a template stand for in a URI, decoded.
type Vars struct{ values []uritemplate.Value }

// Get returns the value of a variable, or "" when it is not in the URI. Several
// values are joined as they are in the URI: those of an exploded path, {/path*}, by
// slashes, others by commas. A value may contain what joins them: see List.
func (v Vars) Get(name string) string {
	value, _ := v.find(name)
	return value.Text
}

// List returns the values of a variable, or nil when it is not in the URI.
func (v Vars) List(name string) []string {
	value, _ := v.find(name)
	return value.List
}

// Has reports whether a variable is in the URI.
func (v Vars) Has(name string) bool {
	_, ok := v.find(name)
	return ok
}

func (v Vars) find(name string) (uritemplate.Value, bool) {
	for _, one := range v.values {
		if one.Name == name {
			return one, true
		}
	}
	return uritemplate.Value{}, false
}

func (t *template) key() string                 { return t.spec.URITemplate }
func (t *template) kind() string                { return "template" }
func (t *template) shown() (modern, legacy any) { return t.spec, t.spec }

func (t *template) origin() string             { return t.key() }
func (t *template) arranged(*Server) *template { return t }

func (t *template) under(m *mounted) *template {
	return &template{spec: t.spec, match: t.match, part: part[*template]{m, t}}
}

func (t *template) visible(ctx context.Context, s *Server) bool {
	return visible(ctx, s, t, t.part)
}

// AddResource adds a resource. What read returns needs no URI and MIMEType where
// they are those of the resource. A resource of the same URI is replaced.
func (s *Server) AddResource(
	r Resource, read func(ctx context.Context, uri string) ([]ResourceContents, error),
) {
	if r.URI == "" || r.Name == "" || read == nil {
		misuse("the resource %q needs a URI, a name and a function that reads it", r.URI)
	}
	s.resources.add(s, &resource{spec: r, read: read})
}

// AddTemplate adds the resources with URIs that match a template (RFC 6570), with what
// its variables stand for. In a URI, characters that have to be encoded may stand
// as they are, and the parameters of a query, {?q,r}, in any order. A resource that
// was added by its URI goes first, and so does a template that was added earlier. A
// template that is the same is replaced. AddTemplate panics if it is not valid.
func (s *Server) AddTemplate(
	t ResourceTemplate,
	read func(ctx context.Context, uri string, vars Vars) ([]ResourceContents, error),
) {
	if t.Name == "" || read == nil {
		misuse("the resource template %q needs a name and a function that reads resources", t.URITemplate)
	}
	match, err := uritemplate.Parse(t.URITemplate)
	if err != nil {
		misuse("the resource template %v", err)
	}
	s.templates.add(s, &template{spec: t, match: match, read: read})
}

// RemoveResource removes a resource.
func (s *Server) RemoveResource(uri string) { s.resources.remove(s, uri) }

// RemoveTemplate removes a template.
func (s *Server) RemoveTemplate(uriTemplate string) {
	s.offer(listResources, func() {
		s.templates.setLocked(s, uriTemplate, nil, nil)
		s.completers.remove(completed{spec.RefResource, uriTemplate})
	})
}

func (s *Server) listResources(c *call) (answer, error) { return s.resources.page(s, c) }
func (s *Server) listTemplates(c *call) (answer, error) { return s.templates.page(s, c) }

// A reader reads one resource.
type reader struct {
	of   *mounted // the mounted server that has it; then the others are empty
	mime string
	read func(ctx context.Context) ([]ResourceContents, error)
}

// reader finds what reads a URI for the caller.
func (s *Server) reader(ctx context.Context, uri []byte) (r reader, ok bool) {
	if one, ok := s.resources.find(ctx, s, uri); ok {
		if one.of != nil {
			return reader{of: one.of}, true
		}
		return reader{nil, one.spec.MIMEType, func(ctx context.Context) ([]ResourceContents, error) {
			return one.read(ctx, one.spec.URI)
		}}, true
	}
	for t := range s.templates.values() {
		values, ok := t.match.Match(string(uri))
		if !ok || !t.visible(ctx, s) {
			continue
		}
		if t.of != nil {
			return reader{of: t.of}, true
		}
		own := string(uri)
		return reader{nil, t.spec.MIMEType, func(ctx context.Context) ([]ResourceContents, error) {
			return t.read(ctx, own, Vars{values})
		}}, true
	}
	return reader{}, false
}

// readResource serves resources/read.
func (s *Server) readResource(c *call) (answer, error) {
	uri, err := text("uri", c.in.uri)
	if err != nil {
		return answer{}, err
	}
	r, ok := s.reader(c, uri)
	if !ok {
		return answer{}, c.resourceNotFound(uri)
	}
	if r.of != nil {
		return r.of.serve(c, "", (*Server).readResource)
	}
	if err := s.openAsks(c); err != nil {
		return answer{}, err
	}
	contents, err := r.read(c)
	if raw, asked := c.inputRequired(); asked {
		return answer{raw: raw}, nil
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return answer{}, c.resourceNotFound(uri)
	}
	if err != nil {
		return answer{}, err
	}
	out := []byte(`{"contents":[`)
	for i := range contents {
		one := contents[i]
		setDefault(&one.URI, string(uri))
		setDefault(&one.MIMEType, r.mime)
		if i > 0 {
			out = append(out, ',')
		}
		out = one.AppendJSON(out)
	}
	return answer{raw: append(out, "]}"...), plain: true}, nil
}

// resourceNotFound is the error for a resource that does not exist, in the
// revision of the call.
func (c *call) resourceNotFound(uri []byte) error {
	return &jsonrpc.Error{
		Code: c.rev.ResourceNotFound, Message: "Resource not found",
		Data: append(jsonrpc.AppendString([]byte(`{"uri":`), string(uri)), '}'),
	}
}
