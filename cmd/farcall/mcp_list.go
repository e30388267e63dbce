package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPToolsCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	const short = "List the tools of a server, or show one in full"
	cmd := m.onTarget("tools TARGET [TOOL]", short, 1, m.tools)
	cmd.ValidArgsFunction = m.completer(toolNames)
	return cmd
}

func (m *mcpRemote) tools(ctx context.Context, t *target.Target, name []string) error {
	return m.list(ctx, t, spec.MethodToolsList, "tools", func(l *mcpList) error {
		tools, err := decodeAll[spec.Tool](l.items)
		if err != nil {
			return err
		}
		if len(name) == 0 {
			if m.asJSON {
				return m.printJSON(l.document())
			}
			return m.printTools(tools)
		}
		i := slices.IndexFunc(tools, func(t spec.Tool) bool { return t.Name == name[0] })
		if i < 0 {
			names := mapped(tools, func(t spec.Tool) string { return t.Name })
			return &exitError{
				code: exitAnswered, err: fmt.Errorf("there is no tool %q", name[0]),
				hint: nearestTool(name[0], names),
			}
		}
		if m.asJSON {
			return m.printJSON(l.items[i])
		}
		return m.printTool(&tools[i])
	})
}

// list gets all pages of a list, says which servers it lacks, and shows it.
func (m *mcpRemote) list(
	ctx context.Context, t *target.Target, method, key string, show func(*mcpList) error,
) error {
	return m.with(ctx, t, func(ctx context.Context, s *mcpSession) error {
		all, err := s.all(ctx, method, key)
		var wire *jsonrpc.Error
		switch {
		case errors.As(err, &wire) && wire.Code == jsonrpc.MethodNotFound && !s.lists(method):
			all = &mcpList{key: key}
		case err != nil:
			return s.failure(ctx, method, err)
		}
		m.sayMissing(all.missing)
		return show(all)
	})
}

// lists reports whether the server says that it has a list.
func (s *mcpSession) lists(method string) bool {
	switch caps := s.Server().Capabilities; method {
	case spec.MethodToolsList:
		return caps.Tools != nil
	case spec.MethodPromptsList:
		return caps.Prompts != nil
	default:
		return caps.Resources != nil
	}
}

func decodeAll[T any](raw []jsonrpc.Raw) ([]T, error) {
	all := make([]T, len(raw))
	for i := range raw {
		if err := jsonv2.Unmarshal(raw[i], &all[i]); err != nil {
			return nil, &exitError{
				code: exitProtocol,
				err:  fmt.Errorf("element %d of the list is not valid: %w", i+1, err),
				hint: "--json shows the list as it came.",
			}
		}
	}
	return all, nil
}

// table prints rows, the first column as names and the last one faintly.
func (m *mcpRemote) table(rows [][]string, nothing string) error {
	if len(rows) == 0 {
		m.screen.printf("%s", nothing)
		return nil
	}
	rows = filled(rows)
	return columns(m.stdout, rows, func(row, col int, text string) string {
		switch {
		case text == "":
			return text
		case col == 0:
			name, rest, ok := strings.Cut(text, "(")
			if !ok {
				return m.paint(colourName, text)
			}
			return m.paint(colourName, name) + "(" + rest
		case col == len(rows[row])-1:
			return m.paint(colourFaint, text)
		}
		return text
	})
}

// filled leaves out the columns in which no row has anything, and puts each row on one line.
func filled(rows [][]string) [][]string {
	used := map[int]bool{}
	for _, row := range rows {
		for i, cell := range row {
			used[i] = used[i] || cell != ""
		}
	}
	all := make([][]string, len(rows))
	for r, row := range rows {
		for i, cell := range row {
			if used[i] {
				all[r] = append(all[r], strings.ReplaceAll(cell, "\n", " "))
			}
		}
	}
	return all
}

// toolSignature is a tool as it might be declared.
func toolSignature(t *spec.Tool) string {
	var params []string
	for _, a := range toolFields(t.InputSchema) {
		params = append(params, a.label()+": "+a.kind)
	}
	s := tame(t.Name) + "(" + strings.Join(params, ", ") + ")"
	if t.OutputSchema != nil {
		p := descriptor{Schema: t.OutputSchema}
		kind := p.kind()
		if len(kind) > mostKind && kind[0] == '{' {
			kind = "{…}"
		}
		s += " -> " + kind
	}
	return s
}

// How much of a description and of the type of a result stands in a list, in characters.
const (
	mostAbout = 100
	mostKind  = 60
)

// shorten cuts a text that is longer than a number of characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// toolField is an argument of a tool.
type toolField struct {
	name, kind, about string
	required          bool
	schema            jsonrpc.Raw
}

func (a *toolField) label() string {
	if a.required {
		return tame(a.name)
	}
	return tame(a.name) + "?"
}

// toolFields are the arguments that a schema describes, in its order.
func toolFields(schema jsonrpc.Raw) []toolField {
	var required []string
	_ = jsonv2.Unmarshal(member(schema, "required"), &required) // none where that is no list
	var all []toolField
	for name, s := range members(member(schema, "properties")) {
		p := descriptor{Schema: s}
		about, _ := unquote(member(s, "description"))
		title, _ := unquote(member(s, "title"))
		all = append(all, toolField{
			name: name, kind: p.kind(), about: firstLine(about, title),
			required: slices.Contains(required, name), schema: s,
		})
	}
	return all
}

func (m *mcpRemote) printTools(tools []spec.Tool) error {
	var rows [][]string
	for i := range tools {
		t := &tools[i]
		about := firstLine(t.Description, t.Title)
		if title := firstLine(t.Title); !startsWith(about, title) {
			about = title + ": " + about
		}
		rows = appendSignature(rows, toolSignature(t), shorten(about, mostAbout))
	}
	return m.table(rows, "The server has no tools.")
}

// startsWith reports whether a description says what the title does.
func startsWith(about, title string) bool {
	return strings.HasPrefix(strings.ToLower(about), strings.ToLower(title))
}

// printTool shows one tool in full.
func (m *mcpRemote) printTool(t *spec.Tool) error {
	fmt.Fprintln(m.stdout, toolSignature(t))
	for _, s := range []string{t.Title, t.Description} {
		if s != "" && (s != t.Title || !startsWith(t.Description, s)) {
			fmt.Fprintln(m.stdout, "  "+strings.ReplaceAll(m.plain(s), "\n", "\n  "))
		}
	}
	if hints := toolHints(t); hints != "" {
		fmt.Fprintln(m.stdout, "  hints: "+hints)
	}
	var rows [][]string
	for _, a := range toolFields(t.InputSchema) {
		rows = append(rows,
			[]string{"  " + a.label(), a.kind, a.about, string(appendTame(nil, compact(a.schema)))})
	}
	if t.OutputSchema != nil {
		p := descriptor{Schema: t.OutputSchema}
		rows = append(rows,
			[]string{"  ->", p.kind(), "", string(appendTame(nil, compact(t.OutputSchema)))})
	}
	if len(rows) == 0 {
		return nil
	}
	return m.table(rows, "")
}

// toolHints are the annotations in words.
func toolHints(t *spec.Tool) string {
	var hints []string
	if a := t.Annotations; a != nil {
		if a.ReadOnlyHint {
			hints = append(hints, "read-only")
		} else if a.DestructiveHint != nil {
			hints = append(hints,
				map[bool]string{true: "destructive", false: "not destructive"}[*a.DestructiveHint])
		}
		if a.IdempotentHint {
			hints = append(hints, "idempotent")
		}
		if a.OpenWorldHint != nil {
			hints = append(hints,
				map[bool]string{true: "open world", false: "closed world"}[*a.OpenWorldHint])
		}
	}
	if t.Execution != nil && t.Execution.TaskSupport != "" {
		hints = append(hints, "task "+tame(t.Execution.TaskSupport))
	}
	return strings.Join(hints, ", ")
}

// newListCmd is a command that lists one kind of thing.
func newListCmd[T any](
	e *env, kind, short, method, key string, row func(*T) []string,
) *cobra.Command {
	m := newMCPRemote(e)
	show := func(ctx context.Context, t *target.Target, _ []string) error {
		return m.list(ctx, t, method, key, func(l *mcpList) error {
			if m.asJSON {
				return m.printJSON(l.document())
			}
			all, err := decodeAll[T](l.items)
			if err != nil {
				return err
			}
			rows := mapped(all, func(one T) []string { return row(&one) })
			return m.table(rows, "The server has no "+kind+".")
		})
	}
	return m.onTarget(kind+" TARGET", short, 0, show)
}

func newMCPResourcesCmd(e *env) *cobra.Command {
	return newListCmd(e, "resources", "List the resources of a server", spec.MethodResourcesList,
		"resources", func(r *spec.Resource) []string {
			size := ""
			if r.Size != nil {
				size = strconv.FormatInt(*r.Size, 10)
			}
			return []string{
				tame(r.URI), tame(r.Name), tame(r.MIMEType), size,
				firstLine(r.Title, r.Description),
			}
		})
}

func newMCPTemplatesCmd(e *env) *cobra.Command {
	return newListCmd(e, "templates", "List the resource templates of a server",
		spec.MethodResourcesTemplatesList, "resourceTemplates", func(t *spec.ResourceTemplate) []string {
			return []string{
				tame(t.URITemplate), tame(t.Name), tame(t.MIMEType),
				firstLine(t.Title, t.Description),
			}
		})
}

func newMCPPromptsCmd(e *env) *cobra.Command {
	return newListCmd(e, "prompts", "List the prompts of a server", spec.MethodPromptsList, "prompts",
		func(p *spec.Prompt) []string {
			var args []string
			for _, a := range p.Arguments {
				if a.Required {
					args = append(args, tame(a.Name))
				} else {
					args = append(args, tame(a.Name)+"?")
				}
			}
			return []string{
				tame(p.Name) + "(" + strings.Join(args, ", ") + ")",
				firstLine(p.Title, p.Description),
			}
		})
}

// mcpList is a list, of all its pages.
type mcpList struct {
	key     string        // the member of a page that has the elements
	items   []jsonrpc.Raw // as they came
	pages   int
	last    jsonrpc.Raw // page; nil: there is none
	missing []missingServer
}

// missingServer says what a gateway's list lacks: its member farcall.dev/missing.
type missingServer struct {
	Upstream string `json:"upstream"`
	State    string `json:"state"`
	Reason   string `json:"reason"` // "": the gateway does not tell
}

const maxPages = 10_000

// all gets all pages of a list.
func (s *mcpSession) all(ctx context.Context, method, key string) (*mcpList, error) {
	l := &mcpList{key: key}
	var params any
	for range maxPages {
		var page jsonrpc.Raw
		if err := s.Request(ctx, method, params, &page); err != nil {
			return nil, err
		}
		next := l.add(page)
		if next == "" {
			return l, nil
		}
		params = &spec.PaginatedRequestParams{Cursor: next}
	}
	return nil, fmt.Errorf("the list has more than %d pages", maxPages)
}

// add adds a page and returns the cursor of the next.
func (l *mcpList) add(page jsonrpc.Raw) (next string) {
	l.last = page
	l.pages++
	l.items = append(l.items, elements(member(page, l.key))...)
	for _, raw := range elements(member(member(page, "_meta"), "farcall.dev/missing")) {
		var one missingServer
		if jsonv2.Unmarshal(raw, &one) == nil && one.Upstream != "" && !slices.Contains(l.missing, one) {
			l.missing = append(l.missing, one)
		}
	}
	next, _ = unquote(member(page, "nextCursor"))
	return next
}

// document returns the list as it came: its page, or the last one with the elements of all.
func (l *mcpList) document() jsonrpc.Raw {
	if l.pages == 1 {
		return l.last
	}
	parts := mapped(l.items, func(item jsonrpc.Raw) []byte { return item })
	all := slices.Concat([]byte{'['}, bytes.Join(parts, []byte{','}), []byte{']'})
	out := appendMember(jsonrpc.Raw{'{'}, l.key, all)
	for name, value := range members(l.last) {
		if name != l.key && name != "nextCursor" {
			out = appendMember(out, name, value)
		}
	}
	return append(out, '}')
}

// sayMissing says on standard error which servers a list lacks, and why.
func (m *mcpRemote) sayMissing(missing []missingServer) {
	for _, one := range missing {
		what := map[string]string{
			"stale":   "what %s offers may have changed since",
			"partial": "the list has not all that %s offers",
		}[one.State]
		if what == "" {
			what = "the list lacks what %s offers"
		}
		text := fmt.Sprintf(what, tame(one.Upstream))
		if one.Reason != "" {
			text += ": " + firstLine(one.Reason)
		}
		m.screen.printf("farcall: warning: %s", text)
	}
}
