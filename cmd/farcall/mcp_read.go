package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
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
	return m.onName("read TARGET URI", "Read a resource and print it", "URI", resourceNames, m.read)
}

func resourceNames(ctx context.Context, s *mcpSession) []string {
	all, _ := s.Resources(ctx) // none are offered
	return mapped(all, func(r mcp.Resource) string { return offered(r.URI, r.Title, r.Name) })
}

func promptNames(ctx context.Context, s *mcpSession) []string {
	all, _ := s.Prompts(ctx) // none are offered
	return mapped(all, func(p mcp.Prompt) string { return offered(p.Name, p.Title, p.Description) })
}

// ask makes one call of a method and hands over its result.
func (m *mcpRemote) ask(
	ctx context.Context, t *target.Target, what, method string, params any,
	show func(raw jsonrpc.Raw) error,
) error {
	return m.with(ctx, t, func(ctx context.Context, s *mcpSession) error {
		var raw jsonrpc.Raw
		err := s.Request(mcp.OnProgress(ctx, m.progress), method, params, &raw)
		m.screen.clear()
		if err = cmp.Or(s.asked.failed(), err); err != nil {
			return withHint(s.failure(ctx, what, err), s.listHint(method, err))
		}
		if m.asJSON {
			return m.printJSON(raw)
		}
		return show(raw)
	})
}

// decodeResult reads a result for printing.
func decodeResult[T any](what string, raw jsonrpc.Raw) (*T, error) {
	r := new(T)
	if err := jsonv2.Unmarshal(raw, r); err != nil {
		return nil, &exitError{
			code: exitProtocol,
			err:  fmt.Errorf("%s: the result is not valid: %w", what, err),
			hint: "--json shows it as it came.",
		}
	}
	return r, nil
}

func (m *mcpRemote) read(ctx context.Context, t *target.Target, uri string, _ []string) error {
	return m.ask(ctx, t, uri, spec.MethodResourcesRead, &spec.ReadResourceRequestParams{URI: uri},
		func(raw jsonrpc.Raw) error {
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
	const use, short = "prompt TARGET PROMPT [name=value ...]",
		"Fill in a prompt and print its messages"
	return m.onName(use, short, "prompt", promptNames, m.prompt)
}

func (m *mcpRemote) prompt(
	ctx context.Context, t *target.Target, name string, words []string,
) error {
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
	cmd := command("complete TARGET prompt|resource NAME [KNOWN=VALUE ...] ARGUMENT=VALUE",
		"List what an argument of a prompt or a resource template may become",
		func(cmd *cobra.Command, args []string) error {
			t, rest, err := m.target(cmd, args)
			if err != nil {
				return err
			}
			p, err := completion(cmd, t, rest)
			if err != nil {
				return err
			}
			return m.complete(cmd.Context(), t, p)
		})
	m.flags(cmd)
	return cmd
}

// completion reads what is to be completed.
func completion(
	cmd *cobra.Command, t *target.Target, words []string,
) (*spec.CompleteRequestParams, error) {
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

func (m *mcpRemote) complete(
	ctx context.Context, t *target.Target, p *spec.CompleteRequestParams,
) error {
	return m.ask(ctx, t, p.Argument.Name, spec.MethodCompletionComplete, p,
		func(raw jsonrpc.Raw) error {
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

// printToolResult prints the result of a tool. The tool's own failure is the program's.
func (m *mcpRemote) printToolResult(tool string, r *mcp.ToolResult) error {
	if m.asJSON {
		if err := m.printJSON(r.AppendJSON(nil)); err != nil || !r.IsError {
			return err
		}
		return &exitError{code: exitAnswered}
	}
	if r.IsError {
		var texts []string
		for i := range r.Content {
			texts = append(texts, m.describe(&r.Content[i]))
		}
		text := strings.Join(texts, "\n")
		if text == "" && r.StructuredContent != nil {
			text = string(appendTame(nil, compact(r.StructuredContent)))
		}
		text = cmp.Or(text, "the tool failed and does not say why")
		return &exitError{code: exitAnswered, err: fmt.Errorf("%s: %s", tool, clean(text))}
	}
	if r.StructuredContent != nil && redundant(r) {
		return m.printJSON(r.StructuredContent)
	}
	return m.printContent(r.Content)
}

// redundant reports whether the content says nothing beyond the structured content.
func redundant(r *mcp.ToolResult) bool {
	for i := range r.Content {
		c := &r.Content[i]
		if c.Type != spec.TypeText || jsonrpc.Valid([]byte(c.Text)) != nil ||
			string(compact([]byte(c.Text))) != string(compact(r.StructuredContent)) {
			return false
		}
	}
	return true
}

// printContent prints blocks of content, one after the other.
func (m *mcpRemote) printContent(content []spec.Content) error {
	unsaved := false
	for i := range content {
		c := &content[i]
		text := m.describe(c)
		data, kind := contentBytes(c)
		unsaved = unsaved || data != nil && m.output == ""
		if m.output != "" && data != nil {
			path, err := m.save(data, kind)
			if err != nil {
				return err
			}
			text = fmt.Sprintf("%s, saved as %s", strings.TrimSuffix(text, "]"), path) + "]"
		}
		if _, err := fmt.Fprintln(m.stdout, text); err != nil {
			return err
		}
	}
	if unsaved && m.isTTY {
		m.screen.printf("--output DIRECTORY saves what is not text.")
	}
	return nil
}

// contentBytes are the bytes of a block that is not text.
func contentBytes(c *spec.Content) (data []byte, mimeType string) {
	switch {
	case c.Type == spec.TypeImage || c.Type == spec.TypeAudio:
		return c.Data, c.MIMEType
	case c.Type == spec.TypeResource && c.Resource != nil && c.Resource.Blob != nil:
		return c.Resource.Blob, c.Resource.MIMEType
	}
	return nil, ""
}

// describe is a block of content as text: text is as it is, the rest described.
func (m *mcpRemote) describe(c *spec.Content) string {
	switch c.Type {
	case spec.TypeText:
		return m.plain(c.Text)
	case spec.TypeImage, spec.TypeAudio:
		return fmt.Sprintf("[%s %s, %d bytes]", c.Type, tame(c.MIMEType), len(c.Data))
	case spec.TypeResourceLink:
		return "[" +
			strings.TrimSpace(
				strings.Join([]string{"link", tame(c.URI), tame(c.Name), tame(c.MIMEType)}, " ")) + "]"
	case spec.TypeResource:
		if c.Resource == nil {
			break
		}
		if c.Resource.Blob != nil {
			return fmt.Sprintf("[resource %s %s, %d bytes]", tame(c.Resource.URI), tame(c.Resource.MIMEType),
				len(c.Resource.Blob))
		}
		return m.plain(c.Resource.Text)
	}
	return string(appendTame(nil, compact(c.AppendJSON(nil))))
}

// plain is a text as it is, but on a terminal without what that would obey.
func (m *mcpRemote) plain(text string) string {
	if !m.isTTY {
		return text
	}
	return clean(text)
}

// clean takes out what a terminal would obey, but for lines and tabs.
func clean(text string) string {
	parts := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\t")
	for i := range parts {
		parts[i] = tame(parts[i])
	}
	return strings.Join(parts, "\t")
}

// fileEndings are those of types that are common among tools.
var fileEndings = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp",
	"image/svg+xml": ".svg",
	"audio/wav":     ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg",
	"audio/flac": ".flac",
	"video/mp4":  ".mp4", "application/pdf": ".pdf", "application/json": ".json",
	"application/zip": ".zip",
	"text/plain":      ".txt", "text/html": ".html", "text/csv": ".csv", "text/markdown": ".md",
}

// save writes bytes to a new file in the output directory. Its name is made
// here: the server has no say in it.
func (m *mcpRemote) save(data []byte, mimeType string) (path string, err error) {
	if err := os.MkdirAll(m.output, 0o750); err != nil {
		return "", fmt.Errorf("cannot save the content: %w", err)
	}
	kind, _, _ := strings.Cut(mimeType, ";")
	ending, ok := fileEndings[strings.TrimSpace(kind)]
	if !ok {
		ending = ".bin"
	}
	name, _, _ := strings.Cut(kind, "/")
	if name != "image" && name != "audio" && name != "video" {
		name = "content"
	}
	for n := 1; ; n++ {
		path = filepath.Join(m.output, fmt.Sprintf("%s-%d%s", name, n, ending))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cannot save the content: %w", err)
		}
		_, err = f.Write(data)
		return path, errors.Join(err, f.Close())
	}
}

// members are those of a JSON object, in its order. Anything else has none.
func members(raw jsonrpc.Raw) iter.Seq2[string, jsonrpc.Raw] {
	return func(yield func(string, jsonrpc.Raw) bool) {
		depth, name := 0, ""
		var value jsonrpc.Raw
		for t := range tokens(raw) {
			if depth == 0 && t[0] != '{' {
				return
			}
			end := t[0] == '}' || t[0] == ']'
			if end {
				depth--
			}
			switch {
			case depth == 1 && (t[0] == ',' || t[0] == ':'):
				if t[0] == ':' {
					name, _ = unquote(value)
				} else if !yield(name, value) {
					return
				}
				value = nil
			case depth > 0:
				value = append(value, t...)
			}
			if !end && (t[0] == '{' || t[0] == '[') {
				depth++
			}
		}
		if value != nil {
			yield(name, value)
		}
	}
}

// member is one member of an object, or nil.
func member(raw jsonrpc.Raw, name string) jsonrpc.Raw {
	for n, value := range members(raw) {
		if n == name {
			return value
		}
	}
	return nil
}

// elements are those of a JSON array. Anything else has none.
func elements(raw jsonrpc.Raw) []jsonrpc.Raw {
	var all []jsonrpc.Raw
	if jsonv2.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}

// unquote is the text of a JSON string.
func unquote(raw jsonrpc.Raw) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return text, jsonv2.Unmarshal(raw, &text) == nil
}
