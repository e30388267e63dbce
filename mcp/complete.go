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
	if err := s.checkReference(c, &p.Ref); err != nil {
		return answer{}, err
	}
	r, err := s.opts.Complete(c, &p)
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

// checkReference refuses what is not there for the caller.
func (s *Server) checkReference(c *call, ref *spec.CompleteReference) error {
	switch ref.Type {
	case spec.RefPrompt:
		if _, ok := s.prompts.find(c, s, []byte(ref.Name)); !ok {
			return invalidParams("unknown prompt: %s", ref.Name)
		}
	case spec.RefResource:
		if _, ok := s.templates.find(c, s, []byte(ref.URI)); ok {
			return nil
		}
		if _, ok := s.reader(c, []byte(ref.URI)); !ok {
			return invalidParams("unknown resource or template: %s", ref.URI)
		}
	default:
		return invalidParams("the type of ref is %q; it must be %q or %q", ref.Type, spec.RefPrompt, spec.RefResource)
	}
	return nil
}
