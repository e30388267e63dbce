package mcp

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type prompt struct {
	spec  Prompt
	texts *arguments.Texts // of a typed prompt: what its arguments are; else nil
	get   func(c *call, p *prompt, args map[string]string) (*PromptResult, error)
	part[*prompt]
}

func (p *prompt) key() string                 { return p.spec.Name }
func (p *prompt) kind() string                { return "prompt" }
func (p *prompt) shown() (modern, legacy any) { return p.spec, p.spec }

func (p *prompt) origin() string           { return p.key() }
func (p *prompt) arranged(*Server) *prompt { return p }

func (p *prompt) under(m *mounted) *prompt {
	own := &prompt{spec: p.spec, part: part[*prompt]{m, p}}
	own.spec.Name = m.named(p.spec.Name)
	return own
}

func (p *prompt) visible(ctx context.Context, s *Server) bool { return visible(ctx, s, p, p.part) }

// AddPrompt adds a prompt. get is called when the arguments that it requires are
// there; others may be, too. A prompt of the same name is replaced.
func (s *Server) AddPrompt(
	p Prompt, get func(ctx context.Context, args map[string]string) (*PromptResult, error),
) {
	if get == nil {
		misuse("the prompt %q needs a function", p.Name)
	}
	s.addPrompt(
		&prompt{spec: p, get: func(c *call, _ *prompt, args map[string]string) (*PromptResult, error) {
			return get(c, args)
		}})
}

func (s *Server) addPrompt(p *prompt) {
	if p.spec.Name == "" {
		misuse("a prompt needs a name")
	}
	s.prompts.add(s, p)
	if p.texts != nil && p.texts.Completes() {
		s.typedPrompts.Store(true)
	}
}

// RemovePrompt removes a prompt.
func (s *Server) RemovePrompt(name string) {
	s.offer(listPrompts, func() {
		s.prompts.setLocked(s, name, nil, nil)
		s.completers.remove(completed{spec.RefPrompt, name})
	})
}

func (s *Server) listPrompts(c *call) (answer, error) { return s.prompts.page(s, c) }

// getPrompt serves prompts/get.
func (s *Server) getPrompt(c *call) (answer, error) {
	name, err := text("name", c.in.name)
	if err != nil {
		return answer{}, err
	}
	p, ok := s.prompts.find(c, s, name)
	if !ok {
		return answer{}, invalidParams("unknown prompt: %s", name)
	}
	if p.of != nil {
		return p.of.serve(c, p.base.key(), (*Server).getPrompt)
	}
	args, err := p.arguments(c.in.arguments)
	if err != nil {
		return answer{}, err
	}
	if err := s.openAsks(c); err != nil {
		return answer{}, err
	}
	r, err := p.get(c, p, args)
	if raw, asked := c.inputRequired(); asked {
		return answer{raw: raw}, nil
	}
	if err != nil {
		return answer{}, err
	}
	if r == nil {
		r = &PromptResult{}
	}
	raw, err := jsonv2.Append(nil, r)
	return answer{raw: raw, plain: r.ResultType == "" && r.Meta == nil}, err
}

// arguments reads the arguments and looks for those that are required.
func (p *prompt) arguments(raw jsonrpc.Raw) (map[string]string, error) {
	args := map[string]string{}
	if len(raw) > 0 && raw[0] != '{' && raw[0] != 'n' {
		return nil, invalidParams("the member \"arguments\" must be an object of strings")
	}
	for key, value := range scan.Members(raw) {
		if value[0] != '"' {
			return nil, invalidParams("the argument %q must be a string", key)
		}
		args[string(key)] = string(scan.Unquote(value))
	}
	var missing []string
	for _, a := range p.spec.Arguments {
		if _, ok := args[a.Name]; a.Required && !ok {
			missing = append(missing, a.Name)
		}
	}
	if len(missing) > 0 {
		return nil, invalidParams("the prompt %s requires the arguments %s", p.spec.Name,
			strings.Join(missing, ", "))
	}
	return args, nil
}

// AddPrompt adds a prompt that is a function of a Go type. A prompt of the same name is replaced.
//
// In is a struct with the arguments as fields, in their order: named as in encoding/json, and
// required unless they are a pointer or their tag has omitempty, omitzero or a default. The tags of
// a field are those of an argument of a tool (see [AddTool]), as far as they are for texts:
//
//	doc:"what the code is written in" title:"Language" enum:"go,rust" default:"go"
//
// Arguments of prompts are strings on the wire, so that a field has a string, a bool ("true" or
// "false"), an integer or a floating-point number (in decimal), a [time.Duration] ("1m30s"), a type
// with a method UnmarshalText, or a pointer to one of these. An optional argument that is empty
// counts as absent, because the forms of hosts send what the user has not filled in.
//
// An argument that does not fit its field is Invalid params; the message names it, its value, and
// what is allowed. So is one that the struct does not have, if ServerOptions.Arguments is Strict;
// it is dropped otherwise, and the log says so once for each prompt.
//
// An argument with an enum, and a bool, completes automatically, unless a function of
// [Server.CompletePrompt] does this; ServerOptions.Complete is not asked about it.
//
// p needs a Name. AddPrompt panics where [Server.AddPrompt] does, when p has Arguments, and when a
// field or a tag is not supported.
func AddPrompt[In any](s *Server, p Prompt, f func(context.Context, In) (*PromptResult, error)) {
	if f == nil {
		misuse("the prompt %q needs a function", p.Name)
	}
	if p.Arguments != nil {
		misuse("the prompt %q has Arguments: leave them out, since the type of its function says them",
			p.Name)
	}
	texts, err := arguments.NewTexts(reflect.TypeFor[In]())
	if err != nil {
		misuse("the arguments of the prompt %q: %v", p.Name, err)
	}
	p.Arguments = texts.Arguments()
	h := &typedPrompt[In]{f: f, texts: texts}
	s.addPrompt(&prompt{spec: p, texts: texts, get: h.get})
}

// typedPrompt fills in a prompt of a Go type.
type typedPrompt[In any] struct {
	f       func(context.Context, In) (*PromptResult, error)
	texts   *arguments.Texts
	dropped atomic.Bool // the log has that unknown arguments are dropped
}

func (h *typedPrompt[In]) get(c *call, p *prompt, args map[string]string) (*PromptResult, error) {
	if name, found := h.texts.Unknown(args); found {
		name = arguments.Clip(name)
		if c.strict() {
			return nil, invalidParams("the prompt %s has no argument %q", p.spec.Name, name)
		}
		if !h.dropped.Swap(true) {
			c.srv.logger().WarnContext(c,
				"mcp: an unknown argument of a prompt was dropped; ServerOptions.Arguments: Strict refuses it",
				"prompt", p.spec.Name, "argument", name)
		}
	}
	var in In
	if err := h.texts.Bind(reflect.ValueOf(&in).Elem(), args); err != nil {
		return nil, invalidParams("%s", err.Error())
	}
	return h.f(c, in)
}

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
	if c.all[of] == nil {
		setEntry(&c.all, of, map[string]completer{})
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
		return ok &&
			p.of == nil && slices.ContainsFunc(p.spec.Arguments, func(a spec.PromptArgument) bool {
			return a.Name == argument
		})
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
		return answer{}, invalidParams(
			`completion/complete needs a "ref" and an "argument" with name and value`)
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
func (s *Server) reference(
	c *call, ref *spec.CompleteReference,
) (m *mounted, name string, err error) {
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
		return nil, "", invalidParams("the type of ref is %q; it must be %q or %q", ref.Type,
			spec.RefPrompt, spec.RefResource)
	}
}
