package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPCallCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	cmd := &cobra.Command{
		Use:   "call TARGET TOOL [ARGUMENTS]",
		Short: "Call a tool and print its result",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, tool, words, err := m.named(cmd, args, "tool")
			if err != nil {
				return err
			}
			return m.call(cmd.Context(), t, tool, words)
		},
		ValidArgsFunction: m.completer(toolNames),
	}
	m.flags(cmd)
	m.askFlags(cmd)
	m.outputFlag(cmd)
	return cmd
}

func toolNames(ctx context.Context, s *mcpSession) []string {
	tools, err := s.Tools(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for i := range tools {
		names = append(names, tame(tools[i].Name)+"\t"+firstLine(tools[i].Title, tools[i].Description))
	}
	return names
}

func (m *mcpRemote) call(ctx context.Context, t *target.Target, tool string, words []string) error {
	given, err := m.arguments(ctx, words)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	s, err := m.open(ctx, t)
	if err != nil {
		return err
	}
	defer s.end()
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
}

// arguments reads what can be read without the tool's schema: JSON, wherever it
// is. Otherwise the words are all name=value.
func (m *mcpRemote) arguments(ctx context.Context, words []string) (toolArguments, error) {
	a := toolArguments{words: words}
	if len(words) == 0 {
		raw, err := m.pipedParams(ctx)
		if err == nil && raw != nil && raw[0] != '{' {
			err = usagef("", "standard input: a tool takes its arguments by name: they must be a JSON object, not %s", excerpt(raw))
		}
		return toolArguments{json: raw}, err
	}
	for _, w := range words {
		if !namedParam.MatchString(w) {
			raw, err := parseParams(words, m.stdin)
			if err == nil && raw[0] != '{' {
				err = usagef("Write name=value, or a JSON object.", "a tool takes its arguments by name: %q has none", words[0])
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
func (s *mcpSession) fit(ctx context.Context, tool string, given toolArguments) (arguments any, near string, err error) {
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

// nearestTool is a hint for a tool that is not there: the one that was meant, or
// what there is.
func nearestTool(name string, names []string) string {
	best, distance := "", 4
	for _, n := range names {
		if d := editDistance(strings.ToLower(name), strings.ToLower(n)); d < distance {
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

// editDistance is how many letters are to be changed, added or taken away.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
