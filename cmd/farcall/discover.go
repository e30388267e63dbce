package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func newDiscoverCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var asText, asJSON bool
	cmd := command("discover TARGET [METHOD]", "List the methods of a server that describes itself",
		func(cmd *cobra.Command, args []string) error {
			return r.discover(cmd, args, asText || e.isTTY && !asJSON)
		})
	cmd.ValidArgsFunction = r.completeSecond(r.methodNames)
	r.flags(cmd, defaultTimeout)
	r.verboseFlag(cmd)
	cmd.Flags().BoolVar(&asText, "text", false, "print signatures")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the OpenRPC document")
	cmd.MarkFlagsMutuallyExclusive("text", "json")
	return cmd
}

func (r *remote) discover(cmd *cobra.Command, args []string, text bool) error {
	t, rest, err := r.split(cmd, args)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return usagef("For example: "+cmd.CommandPath()+" localhost:7331 math/add",
			"one METHOD at most, not %q", rest)
	}
	return r.with(cmd.Context(), t, nil, func(ctx, limited context.Context, s *session) error {
		doc, err := discover(limited, s)
		if errors.Is(err, jsonrpc.MethodNotFound) {
			return failf(exitAnswered, "Its methods can be called all the same: farcall call TARGET METHOD.",
				"%s does not describe itself: it has no method rpc.discover", t)
		}
		if err != nil {
			return callFailure(ctx, "rpc.discover", t, s, err)
		}
		switch {
		case len(rest) == 1:
			return r.printMethod(doc, rest[0], text)
		case text:
			return r.printSignatures(doc)
		}
		return r.printJSON(doc.raw)
	})
}

// openRPC is what the list of methods needs of an OpenRPC document.
type openRPC struct {
	Methods    []method `json:"methods"`
	Components struct {
		ContentDescriptors map[string]descriptor  `json:"contentDescriptors"`
		Schemas            map[string]jsonrpc.Raw `json:"schemas"`
	} `json:"components"`
	raw jsonrpc.Raw
}

type method struct {
	Name        string       `json:"name"`
	Summary     string       `json:"summary"`
	Description string       `json:"description"`
	Params      []descriptor `json:"params"`
	Result      *descriptor  `json:"result"`
	Deprecated  bool         `json:"deprecated"`
	Streaming   bool         `json:"x-farcall-streaming"`
	Whole       jsonrpc.Raw  `json:"x-farcall-params"` // schema of params that are no list of named ones
}

// whole is the type of params that are no list of named ones: a list of any length, or a map. ""
// for others.
func (m *method) whole() string {
	if kind := (&descriptor{Schema: m.Whole}).kind(); len(m.Params) == 0 && kind != "any" {
		return kind
	}
	return ""
}

type descriptor struct {
	Ref         string      `json:"$ref"`
	Name        string      `json:"name"`
	Summary     string      `json:"summary"`
	Description string      `json:"description"`
	Required    bool        `json:"required"`
	Schema      jsonrpc.Raw `json:"schema"`
}

// discover asks for the description of a server.
func discover(ctx context.Context, c farcall.Caller) (*openRPC, error) {
	var doc openRPC
	if err := c.Call(ctx, "rpc.discover", nil, &doc.raw); err != nil {
		return nil, err
	}
	if err := jsonv2.Unmarshal(doc.raw, &doc); err != nil {
		return nil, fmt.Errorf("%w: the answer of rpc.discover is no OpenRPC document: %w",
			farcall.ErrProtocol, err)
	}
	for i := range doc.Methods {
		m := &doc.Methods[i]
		for j := range m.Params {
			m.Params[j] = doc.resolve(m.Params[j])
		}
		if m.Result != nil {
			*m.Result = doc.resolve(*m.Result)
		}
	}
	return &doc, nil
}

func (d *openRPC) resolve(p descriptor) descriptor {
	if name, ok := strings.CutPrefix(p.Ref, "#/components/contentDescriptors/"); ok {
		return d.Components.ContentDescriptors[name]
	}
	return p
}

// about is a line that says what a method does.
func (m *method) about() string {
	line, _, _ := strings.Cut(strings.TrimSpace(m.Summary+"\n"+m.Description), "\n")
	return tame(line)
}

// signature is a method as it might be declared.
func (m *method) signature() string {
	var b strings.Builder
	b.WriteString(tame(m.Name) + "(" + m.whole())
	for i, p := range m.Params {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(tame(p.Name))
		if !p.Required {
			b.WriteByte('?')
		}
		b.WriteString(": " + p.kind())
	}
	b.WriteByte(')')
	if m.Result != nil {
		b.WriteString(" -> " + m.resultKind())
	}
	return b.String()
}

func (m *method) resultKind() string {
	kind := m.Result.kind()
	if item, ok := strings.CutSuffix(kind, "[]"); ok && m.Streaming {
		return "stream of " + item
	}
	return kind
}

func (p *descriptor) kind() string {
	var schema any
	if jsonv2.Unmarshal(p.Schema, &schema) != nil {
		return "any"
	}
	return tame(schemaText(schema, 0))
}

// schemaText writes a JSON Schema as a type.
func schemaText(schema any, depth int) string {
	s, ok := schema.(map[string]any)
	if !ok || depth > 8 {
		return "any"
	}
	if ref, ok := s["$ref"].(string); ok {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	if values, ok := s["enum"].([]any); ok {
		return alternatives(values, func(v any) string { return literal(v) })
	}
	if v, ok := s["const"]; ok {
		return literal(v)
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if choices, ok := s[key].([]any); ok {
			return alternatives(choices, func(v any) string { return schemaText(v, depth+1) })
		}
	}
	switch kind := s["type"].(type) {
	case []any:
		return alternatives(kind, func(v any) string { return typeText(s, fmt.Sprint(v), depth) })
	case string:
		return typeText(s, kind, depth)
	}
	return "any"
}

func typeText(s map[string]any, kind string, depth int) string {
	switch kind {
	case "array":
		item := schemaText(s["items"], depth+1)
		if strings.Contains(item, "|") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case "object":
		return objectText(s, depth)
	}
	return kind
}

// objectText shows the members of a small object and the name of a large one.
func objectText(s map[string]any, depth int) string {
	members, _ := s["properties"].(map[string]any)
	title, _ := s["title"].(string)
	switch {
	case title != "":
		return title
	case len(members) == 0 || depth > 1:
		return "object"
	case len(members) > 6:
		return fmt.Sprintf("object of %d members", len(members))
	}
	required, _ := s["required"].([]any)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		mark := "?"
		if slices.Contains(required, any(name)) {
			mark = ""
		}
		parts = append(parts, name+mark+": "+schemaText(members[name], depth+1))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func alternatives(values []any, text func(any) string) string {
	var parts []string
	for _, v := range values {
		if t := text(v); !slices.Contains(parts, t) {
			parts = append(parts, t)
		}
	}
	return strings.Join(parts, " | ")
}

func literal(v any) string {
	b, err := jsonv2.Append(nil, v)
	if err != nil {
		return "any"
	}
	return string(b)
}

// appendSignature appends a signature with its description, on the next line when it is long.
func appendSignature(rows [][]string, signature, about string) [][]string {
	const widest = 56
	if len(signature) > widest && about != "" {
		return append(rows, []string{signature}, []string{"", about})
	}
	return append(rows, []string{signature, about})
}

// printSignatures lists the methods.
func (r *remote) printSignatures(doc *openRPC) error {
	var rows [][]string
	for i := range doc.Methods {
		m := &doc.Methods[i]
		about := m.about()
		if m.Deprecated {
			about = strings.TrimSpace("(deprecated) " + about)
		}
		rows = appendSignature(rows, m.signature(), about)
	}
	return columns(r.stdout, rows, func(_, col int, text string) string {
		if col == 1 {
			return r.paint(colourFaint, text)
		}
		name, rest, ok := strings.Cut(text, "(")
		if !ok {
			return text
		}
		return r.paint(colourName, name) + "(" + rest
	})
}

// names lists the names of the methods.
func (d *openRPC) names() []string {
	return mapped(d.Methods, func(m method) string { return m.Name })
}

// printMethod shows one method in full.
func (r *remote) printMethod(doc *openRPC, name string, text bool) error {
	i := slices.IndexFunc(doc.Methods, func(m method) bool { return m.Name == name })
	if i < 0 {
		hint := "Without METHOD, discover lists all methods that the server describes."
		if near := nearestWord(name, doc.names()); near != "" {
			hint = fmt.Sprintf("Did you mean %q? %s", tame(near), hint)
		}
		return &exitError{
			code: exitAnswered, err: fmt.Errorf("the server does not describe a method %q", name),
			hint: hint,
		}
	}
	if !text {
		return r.printJSON(doc.element(i))
	}
	m := &doc.Methods[i]
	fmt.Fprintln(r.stdout, m.signature())
	for _, s := range []string{m.Summary, m.Description} {
		if s != "" {
			fmt.Fprintln(r.stdout, "  "+tame(s))
		}
	}
	rows := [][]string{}
	add := func(name, kind string, p *descriptor) {
		schema := string(appendTame(nil, compact(doc.schema(p.Schema))))
		rows = append(rows,
			[]string{"  " + name, kind, tame(strings.TrimSpace(p.Summary + " " + p.Description)), schema})
	}
	if kind := m.whole(); kind != "" {
		add("params", kind, &descriptor{Schema: m.Whole})
	}
	for i := range m.Params {
		add(tame(m.Params[i].Name), m.Params[i].kind(), &m.Params[i])
	}
	if m.Result != nil {
		add("->", m.resultKind(), m.Result)
	}
	return columns(r.stdout, rows, func(_, col int, text string) string {
		if col == 3 {
			return r.paint(colourFaint, text)
		}
		return text
	})
}

// schema is a schema, or what it refers to.
func (d *openRPC) schema(raw jsonrpc.Raw) jsonrpc.Raw {
	var s struct {
		Ref string `json:"$ref"`
	}
	if jsonv2.Unmarshal(raw, &s) == nil {
		if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok &&
			d.Components.Schemas[name] != nil {
			return d.Components.Schemas[name]
		}
	}
	return raw
}

// element is the description of a method as it came.
func (d *openRPC) element(i int) jsonrpc.Raw {
	var raw struct {
		Methods []jsonrpc.Raw `json:"methods"`
	}
	if jsonv2.Unmarshal(d.raw, &raw) != nil || i >= len(raw.Methods) {
		return nil
	}
	return raw.Methods[i]
}
