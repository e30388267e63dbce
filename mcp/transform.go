package mcp

import (
	"cmp"
	"context"
	"errors"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/internal/object"
)

// A Transform says in which form a tool is shown. The zero value of a field leaves what it is about
// as it is.
type Transform struct {
	// Name, Title and Description are shown in place of those of the tool.
	Name, Title, Description string
	// Arguments says what becomes of arguments, by the names that the tool has for them. Each must be
	// among the properties of the tool's input schema. With keywords beside the properties that may
	// name arguments, such as anyOf and if, none can be renamed or hidden.
	Arguments map[string]Argument
	// Wrap returns what is called in place of the tool: next is the tool. Both take the arguments as
	// the tool has them. It is called once. The context of next must derive from that of its caller;
	// the error of next is the tool's own, and [Elicit] and its like work on both sides of it. What is
	// returned must fit the output schema of the tool.
	Wrap func(next ToolHandler) ToolHandler
}

// An Argument says what becomes of an argument of a tool. The zero value leaves it as it is.
type Argument struct {
	// Name and Description are shown in place of those of the tool.
	Name, Description string
	// Default is what the tool gets when the caller leaves the argument out, which is optional then.
	// It marshals to JSON that fits the schema of the argument. Nil: there is none.
	Default any
	// Fixed is what the tool gets in any case; the argument is hidden then. As Default.
	Fixed any
	// Hidden does not show the argument: a caller that gives it is refused. The tool gets the Default,
	// or none, if it does not require the argument.
	Hidden bool
}

// Transform shows a tool in another form, now and whenever AddTool or a mounted server adds it
// again: all go on to speak of it by its own name, and RemoveTool does, too. What is published, and
// what validates arguments first, is the new form; the tool then gets arguments as it knows them.
// What was reported about the tool before is replaced; Transform{} leaves nothing of it. To have
// both forms, mount a server that has one of them.
//
// It panics when the server has no such tool, when t does not fit it, and when the new name is
// taken. It panics, too, in AddTool and its like when a tool is added again that t does not fit.
func (s *Server) Transform(name string, t Transform) {
	s.checkMade()
	s.offer(listTools, func() {
		shown, ok := s.tools.addedLocked(s, name)
		if !ok {
			misuse("Transform: %s has no tool %q; add it, or mount its server, before", s.label(), name)
		}
		old, had := s.transforms[name]
		done := false
		defer func() {
			if !done {
				delete(s.transforms, name)
				if had {
					s.transforms[name] = old
				}
			}
		}()
		if s.transforms == nil {
			s.transforms = map[string]*Transform{}
		}
		s.transforms[name] = &t
		value := shown.original()
		s.tools.setLocked(s, name, value.of, &value)
		done = true
	})
}

// original returns the tool as it was added.
func (t *tool) original() *tool {
	if t.from != nil {
		return t.from
	}
	return t
}

func (t *tool) origin() string { return t.original().spec.Name }

// arranged returns the tool in the form in which the server shows it.
func (t *tool) arranged(s *Server) *tool {
	tr := s.transforms[t.spec.Name]
	if tr == nil {
		return t
	}
	shown, form, err := tr.compile(t.spec)
	if err != nil {
		misuse("Transform: the tool %q of %s: %v", t.spec.Name, s.label(), err)
	}
	own := &tool{spec: shown, part: t.part, from: t, form: form, typed: t.typed, run: runForm}
	if !validToolName(shown.Name) {
		misuse("Transform: the tool name %q must be 1 to 128 characters of A-Z a-z 0-9 _ - and .", shown.Name)
	}
	if own.input, err = validate.Compile(shown.InputSchema, validate.Limits{OptionalNulls: t.typed}); err == nil {
		own.headers, err = schema.Headers(shown.InputSchema)
	}
	if err == nil && tr.Wrap != nil && shown.OutputSchema != nil && !s.opts.SkipOutputValidation {
		own.output, err = validate.Compile(shown.OutputSchema, validate.Limits{})
	}
	if err != nil { // never: they are schemas of tools
		misuse("Transform: the tool %q of %s: %v", t.spec.Name, s.label(), err)
	}
	if tr.Wrap != nil {
		if own.wrapped = tr.Wrap(own.next); own.wrapped == nil {
			misuse("Transform: Wrap returned no handler for the tool %q", shown.Name)
		}
	}
	return own
}

// compile returns the tool in its new form, and what makes its arguments out of those of the form.
func (t *Transform) compile(of Tool) (Tool, *arguments.Form, error) {
	changes := make(map[string]arguments.Change, len(t.Arguments))
	for name, a := range t.Arguments {
		changes[name] = arguments.Change(a)
	}
	var form *arguments.Form
	var err error
	of.Name = cmp.Or(t.Name, of.Name)
	of.Title, of.Description = cmp.Or(t.Title, of.Title), cmp.Or(t.Description, of.Description)
	of.InputSchema, form, err = arguments.NewForm(of.InputSchema, changes)
	return of, form, err
}

// Apply returns the form of a tool that t describes, and a function that makes arguments of the
// tool out of those of that form, which are an object. The function refuses, and describes,
// arguments that the form hides; it does not validate them by the schema. Wrap is not a part of it.
func (t *Transform) Apply(of Tool) (Tool, func(arguments jsonrpc.Raw) (jsonrpc.Raw, error), error) {
	shown, form, err := t.compile(of)
	if err != nil {
		return Tool{}, nil, err
	}
	return shown, func(arguments jsonrpc.Raw) (jsonrpc.Raw, error) {
		if err := form.Check(arguments); err != nil {
			return nil, err
		}
		return form.Arguments(arguments), nil
	}, nil
}

// runForm runs a tool that is shown in another form.
func runForm(c *call, t *tool, given jsonrpc.Raw) (answer, error) {
	own := t.form.Arguments(given)
	if t.wrapped == nil {
		return t.runOriginal(c, c.Parent(), own)
	}
	result, err := t.wrapped(c, own)
	if err != nil {
		return answer{}, err
	}
	return t.result(result)
}

// next is what Wrap gets: the tool as it was added.
func (t *tool) next(ctx context.Context, arguments jsonrpc.Raw) (*ToolResult, error) {
	c := callFrom(ctx)
	if c == nil || c.isOver() {
		return nil, errNoCall
	}
	a, err := t.runOriginal(c, ctx, object.OrEmpty(arguments))
	if err == nil {
		err = a.failure
	}
	if err != nil {
		return nil, err
	}
	r := new(ToolResult)
	return r, jsonv2.Unmarshal(a.raw, r)
}

var errNoCall = errors.New("mcp: Transform: next was called outside of its call; give it a context that derives from that of the handler")

// runOriginal runs the tool as it was added. What it asks is a part of the call.
func (t *tool) runOriginal(c *call, ctx context.Context, arguments jsonrpc.Raw) (answer, error) { //nolint:revive // ctx may derive from c
	if c.mayAsk {
		if _, err := c.rounds(); err != nil { // one for both
			return answer{}, err
		}
	}
	d := c.below(c.mounted, ctx)
	defer d.end()
	d.nested, d.mayAsk, d.asks, d.task, d.shown = true, c.mayAsk, c.asks, c.task, c.shownName(t)
	if err := d.setParams("arguments", arguments); err != nil {
		return answer{}, err
	}
	if t.of != nil {
		return t.of.serve(d, t.base.key(), (*Server).callTool)
	}
	return t.from.call(d)
}

// startsLater reports whether a tool becomes a task by StartTask only.
func (t *tool) startsLater(s *Server) bool {
	switch {
	case s.tasks.isLater(t.origin()):
		return true
	case t.of != nil:
		return t.base.startsLater(t.of.inner)
	}
	return false
}
