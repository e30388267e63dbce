package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/edits"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPCallCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	const use, short = "call TARGET TOOL [ARGUMENTS]", "Call a tool and print its result"
	return m.onName(use, short, "tool", toolNames, m.call)
}

func toolNames(ctx context.Context, s *mcpSession) []string {
	all, _ := s.Tools(ctx) // none are offered
	return mapped(all, func(t mcp.Tool) string { return offered(t.Name, t.Title, t.Description) })
}

// offered is a name that is offered to the shell, with its description.
func offered(name string, about ...string) string { return tame(name) + "\t" + firstLine(about...) }

func (m *mcpRemote) call(ctx context.Context, t *target.Target, tool string, words []string) error {
	given, err := m.arguments(ctx, words)
	if err != nil {
		return err
	}
	return m.with(ctx, t, func(ctx context.Context, s *mcpSession) error {
		arguments, near, err := s.fit(ctx, tool, given)
		if err != nil {
			return err
		}
		result, err := s.CallTool(mcp.OnProgress(ctx, m.progress), tool, arguments)
		m.screen.clear()
		if err = cmp.Or(s.asked.failed(), err); err != nil {
			return withHint(s.failure(ctx, tool, err), near)
		}
		return withHint(m.printToolResult(tool, result), near)
	})
}

// arguments reads what can be read without the tool's schema: JSON, wherever it
// is. Otherwise the words are all name=value.
func (m *mcpRemote) arguments(ctx context.Context, words []string) (toolArguments, error) {
	a := toolArguments{words: words}
	if len(words) == 0 {
		raw, err := m.pipedParams(ctx)
		if err == nil && raw != nil && raw[0] != '{' {
			err = usagef("",
				"standard input: a tool takes its arguments by name: they must be a JSON object, not %s",
				excerpt(raw))
		}
		return toolArguments{json: raw}, err
	}
	for _, w := range words {
		if !namedParam.MatchString(w) {
			raw, err := parseParams(words, m.stdin)
			if err == nil && raw[0] != '{' {
				err = usagef("Write name=value, or a JSON object.",
					"a tool takes its arguments by name: %q has none", words[0])
			}
			return toolArguments{json: raw}, err
		}
	}
	return a, nil
}

// toolArguments are a JSON object, or words that become one.
type toolArguments struct {
	json  jsonrpc.Raw
	words []string
}

// fit makes the arguments of a tool. near is a hint in case the server refuses
// them: for a tool that there is not, or has other arguments.
func (s *mcpSession) fit(
	ctx context.Context, tool string, given toolArguments,
) (arguments any, near string, err error) {
	tools, err := s.Tools(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, "", s.failure(ctx, spec.MethodToolsList, err)
	}
	var names []string
	schema := jsonrpc.Raw("{}") // of a tool that is not listed
	for i := range tools {
		names = append(names, tools[i].Name)
		if tools[i].Name == tool {
			schema = tools[i].InputSchema
		}
	}
	if !slices.Contains(names, tool) {
		near = nearestTool(tool, names)
	}
	switch {
	case given.json != nil:
		return given.json, near, nil
	case near == "" && misnamed(schema, given.words):
		near = fmt.Sprintf("'%s' shows its arguments.", commandLine("farcall mcp tools", s.target, tool))
	}
	if len(given.words) == 0 {
		return nil, near, nil
	}
	raw, err := typedArguments(given.words, schema)
	return raw, near, err
}

// misnamed reports whether name=value words lack an argument that a schema
// requires, or have one that it does not know.
func misnamed(schema jsonrpc.Raw, words []string) bool {
	given := map[string]bool{}
	for _, word := range words {
		given[namedParam.FindStringSubmatch(word)[1]] = true
	}
	for _, f := range toolFields(schema) {
		if f.required && !given[f.name] {
			return true
		}
		delete(given, f.name)
	}
	return len(given) > 0
}

// withHint adds a hint to an exit for an error that the server answered.
func withHint(err error, hint string) error {
	if e, ok := err.(*exitError); ok && hint != "" && e.code == exitAnswered { //nolint:errorlint // it is what failure returns
		e.hint = hint
	}
	return err
}

// nearestTool is a hint for a tool that is not there: the one that was meant, or what there is.
func nearestTool(name string, names []string) string {
	best, distance := "", 4
	for _, n := range names {
		if d := edits.Distance(strings.ToLower(name), strings.ToLower(n)); d < distance {
			best, distance = n, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("Did you mean %q?", tame(best))
	case len(names) == 0:
		return "The server has no tools."
	case len(names) > 20:
		return fmt.Sprintf("The server has %d tools; 'farcall mcp tools' lists them.", len(names))
	}
	return fmt.Sprintf("Its tools are: %s.", tame(strings.Join(names, ", ")))
}

// typedArguments makes an object of name=value words, with the types that a schema has for them.
func typedArguments(words []string, schema jsonrpc.Raw) (jsonrpc.Raw, error) {
	var root map[string]any
	if err := jsonv2.Unmarshal(schema, &root); err != nil {
		root = nil
	}
	properties, _ := root["properties"].(map[string]any)
	return joinNamed(words, "argument", func(name, text string) (jsonrpc.Raw, error) {
		return typedValue(name, text, schemaKinds(root, properties[name], 0))
	})
}

// typedValue makes a value of a word. kinds are the types that it may have; none means any.
func typedValue(name, text string, kinds []string) (jsonrpc.Raw, error) {
	if len(kinds) == 0 {
		return appendWord(nil, text), nil
	}
	raw := jsonrpc.Raw(strings.TrimSpace(text))
	if jsonrpc.Valid(raw) == nil {
		if kind := jsonv2.KindOf(raw); kind != "string" &&
			(slices.Contains(kinds, kind) || kind == "number" && slices.Contains(kinds, "integer")) {
			return raw, nil
		}
	}
	if slices.Contains(kinds, "string") {
		return jsonrpc.AppendString(nil, text), nil
	}
	example := map[string]string{
		"number": name + "=1.5", "integer": name + "=3",
		"boolean": name + "=true", "array": name + `='["a","b"]'`, "object": name + `='{"a":1}'`,
		"null": name + "=null",
	}
	return nil, usagef(
		fmt.Sprintf("For example %s. To send it all the same: %s:='%s'.", example[kinds[0]], name,
			jsonrpc.AppendString(nil, text)),
		"the argument %q must be of type %s, and %s is not", name, strings.Join(kinds, " or "),
		excerpt([]byte(text)),
	)
}

const maxSchemaDepth = 16

// schemaKinds are the types that a schema allows, as far as it says so.
func schemaKinds(root map[string]any, schema any, depth int) []string {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxSchemaDepth {
		return nil
	}
	var kinds []string
	add := func(more ...string) {
		for _, k := range more {
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	switch kind := s["type"].(type) {
	case string:
		return []string{kind}
	case []any:
		for _, k := range kind {
			if k, ok := k.(string); ok {
				add(k)
			}
		}
		return kinds
	}
	if ref, ok := s["$ref"].(string); ok {
		return schemaKinds(root, pointed(root, ref), depth+1)
	}
	if values, ok := s["enum"].([]any); ok {
		for _, v := range values {
			add(jsonv2.KindOf([]byte(literal(v))))
		}
		return kinds
	}
	if v, ok := s["const"]; ok {
		return []string{jsonv2.KindOf([]byte(literal(v)))}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		choices, _ := s[key].([]any)
		for _, choice := range choices {
			of := schemaKinds(root, choice, depth+1)
			if of == nil {
				return nil // anything
			}
			add(of...)
		}
	}
	return kinds
}

// pointed is what a reference within a schema refers to.
func pointed(root map[string]any, ref string) any {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	var at any = root
	for part := range strings.SplitSeq(path, "/") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}
