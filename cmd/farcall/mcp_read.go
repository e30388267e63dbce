package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPReadCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	cmd := &cobra.Command{
		Use:   "read TARGET URI",
		Short: "Read a resource and print it",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, uri, rest, err := m.named(cmd, args, "URI")
			if err == nil {
				err = none(cmd, rest)
			}
			if err != nil {
				return err
			}
			return m.read(cmd.Context(), t, uri)
		},
		ValidArgsFunction: m.completer(resourceNames),
	}
	m.flags(cmd)
	m.askFlags(cmd)
	m.outputFlag(cmd)
	return cmd
}

func resourceNames(ctx context.Context, s *mcpSession) (names []string) {
	all, _ := s.Resources(ctx) // none are offered
	for i := range all {
		names = append(names, tame(all[i].URI)+"\t"+firstLine(all[i].Title, all[i].Name))
	}
	return names
}

func promptNames(ctx context.Context, s *mcpSession) (names []string) {
	all, _ := s.Prompts(ctx) // none are offered
	for i := range all {
		names = append(names, tame(all[i].Name)+"\t"+firstLine(all[i].Title, all[i].Description))
	}
	return names
}

// ask makes one call of a method and hands over its result.
func (m *mcpRemote) ask(ctx context.Context, t *target.Target, what, method string, params any, show func(raw jsonrpc.Raw) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	s, err := m.open(ctx, t)
	if err != nil {
		return err
	}
	defer s.end()
	var raw jsonrpc.Raw
	err = s.Request(mcp.OnProgress(ctx, m.progress), method, params, &raw)
	m.screen.clear()
	if err = cmp.Or(s.asked.failed(), err); err != nil {
		return withHint(s.failure(ctx, what, err), s.listHint(method, err))
	}
	if m.asJSON {
		return m.printJSON(raw)
	}
	return show(raw)
}

// decodeResult reads a result for printing.
func decodeResult[T any](what string, raw jsonrpc.Raw) (*T, error) {
	r := new(T)
	if err := jsonv2.Unmarshal(raw, r); err != nil {
		return nil, &exitError{code: exitProtocol, err: fmt.Errorf("%s: the result is not valid: %w", what, err), hint: "--json shows it as it came."}
	}
	return r, nil
}

func (m *mcpRemote) read(ctx context.Context, t *target.Target, uri string) error {
	return m.ask(ctx, t, uri, spec.MethodResourcesRead, &spec.ReadResourceRequestParams{URI: uri}, func(raw jsonrpc.Raw) error {
		r, err := decodeResult[spec.ReadResourceResult](uri, raw)
		if err != nil {
			return err
		}
		for i := range r.Contents {
			c := &r.Contents[i]
			if c.Blob != nil && m.output == "" && !m.isTTY {
				if _, err := m.stdout.Write(c.Blob); err != nil {
					return err
				}
				continue
			}
			if err := m.printContent([]spec.Content{{Type: spec.TypeResource, Resource: c}}); err != nil {
				return err
			}
		}
		return nil
	})
}

func newMCPPromptCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	cmd := &cobra.Command{
		Use:   "prompt TARGET PROMPT [name=value ...]",
		Short: "Fill in a prompt and print its messages",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, name, words, err := m.named(cmd, args, "prompt")
			if err != nil {
				return err
			}
			return m.prompt(cmd.Context(), t, name, words)
		},
		ValidArgsFunction: m.completer(promptNames),
	}
	m.flags(cmd)
	m.askFlags(cmd)
	m.outputFlag(cmd)
	return cmd
}

func (m *mcpRemote) prompt(ctx context.Context, t *target.Target, name string, words []string) error {
	p := &spec.GetPromptRequestParams{Name: name}
	if len(words) > 0 {
		p.Arguments = map[string]string{}
	}
	for _, word := range words {
		key, value, err := textArgument(word)
		if err != nil {
			return err
		}
		p.Arguments[key] = value
	}
	return m.ask(ctx, t, name, spec.MethodPromptsGet, p, func(raw jsonrpc.Raw) error {
		r, err := decodeResult[spec.GetPromptResult](name, raw)
		if err != nil {
			return err
		}
		for i := range r.Messages {
			msg := &r.Messages[i]
			fmt.Fprintf(m.stdout, "%s:\n", m.paint(colourName, tame(msg.Role)))
			if err := m.printContent([]spec.Content{msg.Content}); err != nil {
				return err
			}
		}
		return nil
	})
}

// textArgument reads name=value.
func textArgument(word string) (name, value string, err error) {
	name, value, ok := strings.Cut(word, "=")
	if !ok || name == "" {
		return "", "", usagef("Write it as name=value.", "%q is not an argument", word)
	}
	return name, value, nil
}

func newMCPCompleteCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	cmd := &cobra.Command{
		Use:   "complete TARGET prompt|resource NAME [KNOWN=VALUE ...] ARGUMENT=VALUE",
		Short: "List what an argument of a prompt or a resource template may become",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := m.target(cmd, args)
			if err != nil {
				return err
			}
			p, err := completion(cmd, t, rest)
			if err != nil {
				return err
			}
			return m.complete(cmd.Context(), t, p)
		},
	}
	m.flags(cmd)
	return cmd
}

// completion reads what is to be completed.
func completion(cmd *cobra.Command, t *target.Target, words []string) (*spec.CompleteRequestParams, error) {
	hint := "For example: " + commandLine(cmd.CommandPath(), t, "prompt NAME ARGUMENT=VALUE")
	p := new(spec.CompleteRequestParams)
	switch {
	case len(words) == 0:
		return nil, usagef(hint, "neither prompt nor resource")
	case words[0] != "prompt" && words[0] != "resource":
		return nil, usagef(hint, "there is no completion of %q, only of prompt and resource", words[0])
	case len(words) < 3:
		return nil, usagef(hint, "what is to be completed takes a name and ARGUMENT=VALUE")
	case words[0] == "prompt":
		p.Ref = spec.CompleteReference{Type: spec.RefPrompt, Name: words[1]}
	default:
		p.Ref = spec.CompleteReference{Type: spec.RefResource, URI: words[1]}
	}
	last := len(words) - 1
	for i, word := range words[2:] {
		name, value, err := textArgument(word)
		if err != nil {
			return nil, err
		}
		if i+2 == last {
			p.Argument = spec.CompleteArgument{Name: name, Value: value}
			continue
		}
		if p.Context == nil {
			p.Context = &spec.CompleteContext{Arguments: map[string]string{}}
		}
		p.Context.Arguments[name] = value
	}
	return p, nil
}

func (m *mcpRemote) complete(ctx context.Context, t *target.Target, p *spec.CompleteRequestParams) error {
	return m.ask(ctx, t, p.Argument.Name, spec.MethodCompletionComplete, p, func(raw jsonrpc.Raw) error {
		r, err := decodeResult[spec.CompleteResult](p.Argument.Name, raw)
		if err != nil {
			return err
		}
		c := &r.Completion
		for _, value := range c.Values {
			if _, err := fmt.Fprintln(m.stdout, m.plain(value)); err != nil {
				return err
			}
		}
		switch {
		case c.Total != nil && *c.Total > int64(len(c.Values)):
			m.screen.printf("%d of %d", len(c.Values), *c.Total)
		case c.HasMore:
			m.screen.printf("There are more.")
		case len(c.Values) == 0:
			m.screen.printf("Nothing fits.")
		}
		return nil
	})
}
