package mcp

import (
	"context"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A completer suggests values of one argument: see Server.CompletePrompt.
type completer = func(ctx context.Context, value string, others map[string]string) ([]string, error)

// completers holds the completers of a server. It is safe for concurrent use.
type completers struct {
	mu  sync.RWMutex
	all map[completed]map[string]completer // by argument
}

// completed is a prompt, by its name, or a template, by its URI template.
type completed struct{ kind, name string }

func (c *completers) set(of completed, argument string, f completer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[completed]map[string]completer{}
	}
	if c.all[of] == nil {
		c.all[of] = map[string]completer{}
	}
	c.all[of][argument] = f
}

func (c *completers) remove(of completed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, of)
}

// find returns nil when there is no completer.
func (c *completers) find(of completed, argument string) completer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.all[of][argument]
}

func (c *completers) any() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.all) > 0
}

// CompletePrompt has f suggest values for an argument of a prompt, in place of
// ServerOptions.Complete. f gets what the user has written of the value so far, and the
// arguments that already have a value, which clients send from 2025-06-18 on. f returns all
// values that match, the best first; the client gets the first 100 and the total. The context of f
// ends with the request. Calls of f may be concurrent.
//
// A suggestion for the same argument is replaced. It stays when AddPrompt replaces the prompt, and
// ends with RemovePrompt. CompletePrompt panics when the prompt, without those of mounted servers,
// does not declare the argument.
func (s *Server) CompletePrompt(prompt, argument string,
	f func(ctx context.Context, value string, others map[string]string) ([]string, error),
) {
	s.addCompleter(completed{spec.RefPrompt, prompt}, argument, f, func() bool {
		p, ok := s.prompts.get([]byte(prompt))
		return ok && p.of == nil && slices.ContainsFunc(p.spec.Arguments, func(a spec.PromptArgument) bool { return a.Name == argument })
	})
}

// CompleteTemplate has f suggest values for a variable of a resource template. Its contract is that
// of [Server.CompletePrompt], with AddTemplate and RemoveTemplate.
func (s *Server) CompleteTemplate(uriTemplate, variable string,
	f func(ctx context.Context, value string, others map[string]string) ([]string, error),
) {
	s.addCompleter(completed{spec.RefResource, uriTemplate}, variable, f, func() bool {
		t, ok := s.templates.get([]byte(uriTemplate))
		return ok && t.of == nil && t.match.Has(variable)
	})
}

// addCompleter adds a completer of what the server has.
func (s *Server) addCompleter(of completed, argument string, f completer, has func() bool) {
	s.checkMade()
	if f == nil {
		misuse("the completion of %q of %q needs a function", argument, of.name)
	}
	s.offering.Lock()
	defer s.offering.Unlock()
	if !has() {
		misuse("%s has nothing to complete: add %q, with %q, before", s.label(), of.name, argument)
	}
	s.completers.set(of, argument, f)
}

// suggest asks the completer of an argument, else the type of a prompt, else
// ServerOptions.Complete. Without any of them, only a mounted server completes.
func (s *Server) suggest(c *call, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
	of := completed{spec.RefPrompt, p.Ref.Name}
	if p.Ref.Type == spec.RefResource {
		of = completed{spec.RefResource, p.Ref.URI}
	}
	f := s.completers.find(of, p.Argument.Name)
	if f != nil {
		var others map[string]string
		if p.Context != nil {
			others = p.Context.Arguments
		}
		values, err := f(c, p.Argument.Value, others)
		return completionOf(values), err
	}
	if values, known := s.typedValues(p); known {
		return completionOf(values), nil
	}
	if s.opts.Complete != nil {
		return s.opts.Complete(c, p)
	}
	return nil, nil
}

// completionOf returns the result that has all values there are.
func completionOf(values []string) *spec.CompleteResult {
	n := int64(len(values))
	return &spec.CompleteResult{Completion: spec.Completion{Values: values, Total: &n}}
}

// typedValues returns the values of an argument of a prompt that the type of the prompt knows.
func (s *Server) typedValues(p *spec.CompleteRequestParams) (values []string, known bool) {
	if p.Ref.Type != spec.RefPrompt {
		return nil, false
	}
	to, ok := s.prompts.get([]byte(p.Ref.Name))
	if !ok || to.texts == nil {
		return nil, false
	}
	return to.texts.Complete(p.Argument.Name, p.Argument.Value)
}

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
	r, err := s.suggest(c, &p)
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

// reference refuses what is not there for the caller. It returns the mounted server that has it, if
// one does, and the name of a prompt there.
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
