package mcp

import (
	"context"
	"reflect"
	"sync/atomic"

	"github.com/farcall-dev/farcall/mcp/internal/arguments"
)

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
		misuse("the prompt %q has Arguments: leave them out, since the type of its function says them", p.Name)
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
			c.srv.logger().WarnContext(c, "mcp: an unknown argument of a prompt was dropped; ServerOptions.Arguments: Strict refuses it",
				"prompt", p.spec.Name, "argument", name)
		}
	}
	var in In
	if err := h.texts.Bind(reflect.ValueOf(&in).Elem(), args); err != nil {
		return nil, invalidParams("%s", err.Error())
	}
	return h.f(c, in)
}
