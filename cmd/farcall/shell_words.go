package main

import (
	"context"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// splitLine splits a line into words as a shell does, up to the first | outside of them. A word, or
// the value of name=, that begins with { or [ is JSON up to its end, without quotes.
func splitLine(line string) (words []string, piped string, err error) {
	var word []byte
	in := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == ' ' || c == '\t':
			if in {
				words, word, in = append(words, string(word)), nil, false
			}
			continue
		case c == '|' && !in:
			return pipedTo(words, strings.TrimSpace(line[i+1:]))
		case c == '\'' || c == '"':
			if word, i = unquoted(word, line, i); i == len(line) {
				return nil, "", usagef("", "unterminated quote")
			}
		case c == '\\' && i+1 < len(line) && in:
			i++
			word = append(word, line[i])
		case (c == '{' || c == '[') && (!in || strings.HasSuffix(string(word), "=")):
			n := jsonEnd(line[i:])
			word = append(word, line[i:i+n]...)
			i += n - 1
		default:
			word = append(word, c)
		}
		in = true
	}
	if in {
		words = append(words, string(word))
	}
	return words, "", nil
}

// pipedTo ends a line with the program that gets what its command prints.
func pipedTo(words []string, program string) ([]string, string, error) {
	if program == "" || len(words) == 0 {
		return nil, "", usagef("For example: tools | grep add",
			"| stands between a command and a program")
	}
	return words, program, nil
}

// unquoted appends what is in the quotes that begin at line[i], and returns where they end.
func unquoted(word []byte, line string, i int) ([]byte, int) {
	n := i + 1
	for ; n < len(line) && line[n] != line[i]; n++ {
		if line[i] == '"' && line[n] == '\\' && n+1 < len(line) {
			n++
		}
		word = append(word, line[n])
	}
	return word, n
}

// jsonEnd is the length of the JSON at the beginning of a text; of what is cut off, everything.
func jsonEnd(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(jsonrpc.Raw(text), i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// complete offers the words that may stand at the end of a line: commands, names, arguments and
// their values. Those that would have to be quoted are left out.
func (s *shell) complete(line string) (start int, words []string) {
	start = strings.LastIndexAny(line, " \t") + 1
	if _, piped, _ := splitLine(line + "x"); piped != "" {
		return start, nil // the shell of the user gets it
	}
	word := line[start:]
	before := strings.Fields(line[:start])
	if len(before) > 1 && before[0] == `\watch` {
		before = before[2:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*completionTimeout) //nolint:forbidigo // x/term has none
	defer cancel()
	var all []string
	switch {
	case len(before) == 0:
		for _, c := range s.commands(s.stdout, false).Commands() {
			all = append(all, c.Name())
		}
		for _, own := range []string{`\watch`, `\reconnect`, `\?`, `\q`} {
			if strings.HasPrefix(own, word) {
				words = append(words, own)
			}
		}
		all = append(all, s.things(ctx, "call")...)
	case strings.HasPrefix(word, "-"):
		if c, _, err := s.commands(s.stdout, false).Find(before); err == nil {
			for _, name := range flagNames(c) {
				all = append(all, "--"+name)
			}
		}
	case len(before) == 1 && s.things(ctx, before[0]) != nil:
		all = s.things(ctx, before[0])
	default:
		all = s.values(ctx, before, word)
	}
	for _, w := range all {
		odd := tame(w) != w || strings.ContainsAny(w, " \t\n'\"\\|") // a server's, maybe
		if !odd && strings.HasPrefix(w, word) && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return start, words
}

// things are the names that a command takes.
func (s *shell) things(ctx context.Context, command string) (names []string) {
	switch k := s.kept; {
	case k.mcp == nil && s.doc != nil &&
		slices.Contains([]string{"call", "notify", "stream", "discover"}, command):
		return s.doc.names()
	case k.mcp == nil:
	case command == "call" || command == "tools":
		names = toolNames(ctx, k.mcp)
	case command == "read":
		names = resourceNames(ctx, k.mcp)
	case command == "prompt":
		names = promptNames(ctx, k.mcp)
	}
	for i := range names {
		names[i], _, _ = strings.Cut(names[i], "\t") // the description
	}
	return names
}

// values are the arguments of a tool, a method or a prompt that are not on the line yet, or the
// values of the one that is being typed.
func (s *shell) values(ctx context.Context, before []string, word string) (all []string) {
	verb, rest := before[0], before[1:]
	if s.things(ctx, verb) == nil {
		verb, rest = "call", before
	}
	if len(rest) == 0 {
		return nil
	}
	name, _, typing := strings.Cut(word, "=")
	for _, f := range s.fields(ctx, verb, rest[0]) {
		given := slices.ContainsFunc(rest[1:], func(w string) bool {
			return strings.HasPrefix(w, f.name+"=")
		})
		switch {
		case !typing && !given:
			all = append(all, f.name+"=")
		case typing && f.name == name:
			for _, v := range s.choices(ctx, verb, rest, f, strings.TrimPrefix(word, name+"=")) {
				all = append(all, name+"="+v)
			}
		}
	}
	return all
}

// fields are the arguments of a tool, a method or a prompt.
func (s *shell) fields(ctx context.Context, verb, name string) (all []toolField) {
	switch k := s.kept; {
	case k.mcp == nil && s.doc != nil:
		for i := range s.doc.Methods {
			if m := &s.doc.Methods[i]; m.Name == name {
				for _, p := range m.Params {
					all = append(all, toolField{name: p.Name, schema: p.Schema})
				}
			}
		}
	case k.mcp == nil:
	case verb == "prompt":
		prompts, _ := k.mcp.Prompts(ctx) // none are offered
		for i := range prompts {
			for _, a := range prompts[i].Arguments {
				if prompts[i].Name == name {
					all = append(all, toolField{name: a.Name})
				}
			}
		}
	default:
		tools, _ := k.mcp.Tools(ctx) // none are offered
		for i := range tools {
			if tools[i].Name == name {
				return toolFields(tools[i].InputSchema)
			}
		}
	}
	return all
}

// choices are the values that an argument may have: those of its schema, or those that the server
// completes for a prompt.
func (s *shell) choices(
	ctx context.Context, verb string, rest []string, f toolField, text string,
) []string {
	if verb == "prompt" {
		p := &spec.CompleteRequestParams{
			Ref:      spec.CompleteReference{Type: spec.RefPrompt, Name: rest[0]},
			Argument: spec.CompleteArgument{Name: f.name, Value: text},
			Context:  &spec.CompleteContext{Arguments: map[string]string{}},
		}
		for _, word := range rest[1:] {
			if name, value, ok := strings.Cut(word, "="); ok {
				p.Context.Arguments[name] = value
			}
		}
		r, err := s.kept.mcp.Complete(ctx, p)
		if err != nil {
			return nil
		}
		return r.Completion.Values
	}
	var schema struct {
		Type string   `json:"type"`
		Enum []string `json:"enum"`
	}
	if jsonv2.Unmarshal(f.schema, &schema) == nil && schema.Type == "boolean" {
		return []string{"true", "false"}
	}
	return schema.Enum
}
