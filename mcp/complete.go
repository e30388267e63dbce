package mcp

import (
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// complete serves completion/complete.
func (s *Server) complete(c *call) (answer, error) {
	var p spec.CompleteRequestParams
	if err := jsonv2.Unmarshal(c.params, &p); err != nil || p.Argument.Name == "" {
		return answer{}, invalidParams(`completion/complete needs a "ref" and an "argument" with name and value`)
	}
	m, name, err := s.reference(c, &p.Ref)
	switch {
	case err != nil:
		return answer{}, err
	case m != nil:
		return m.serve(c, name, (*Server).complete)
	}
	var r *spec.CompleteResult
	if s.opts.Complete != nil { // else only a mounted server completes
		r, err = s.opts.Complete(c, &p)
	}
	if err != nil {
		return answer{}, err
	}
	out := spec.CompleteResult{}
	if r != nil {
		out = *r
	}
	// 2026-07-28, server/utilities/completion, "Completion Results".
	if n := int64(len(out.Completion.Values)); n > spec.MaxCompletions {
		out.Completion.Values, out.Completion.HasMore = out.Completion.Values[:spec.MaxCompletions], true
		if out.Completion.Total == nil {
			out.Completion.Total = &n
		}
	}
	raw, err := jsonv2.Append(nil, out)
	return answer{raw: raw}, err
}

// reference refuses what is not there for the caller. It returns the mounted server that has it, if one
// does, and the name of a prompt there.
func (s *Server) reference(c *call, ref *spec.CompleteReference) (m *mounted, name string, err error) {
	switch ref.Type {
	case spec.RefPrompt:
		p, ok := s.prompts.find(c, s, []byte(ref.Name))
		if !ok {
			return nil, "", invalidParams("unknown prompt: %s", ref.Name)
		}
		if p.of != nil {
			name = p.base.key()
		}
		return p.of, name, nil
	case spec.RefResource:
		if t, ok := s.templates.find(c, s, []byte(ref.URI)); ok {
			return t.of, "", nil
		}
		r, ok := s.reader(c, []byte(ref.URI))
		if !ok {
			return nil, "", invalidParams("unknown resource or template: %s", ref.URI)
		}
		return r.of, "", nil
	default:
		return nil, "", invalidParams("the type of ref is %q; it must be %q or %q", ref.Type, spec.RefPrompt, spec.RefResource)
	}
}
