package openapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	maxToolSchema = 16 << 10 // bytes of the schema of one tool
	bytesPerToken = 4        // about, of JSON in English

	// How many bytes of schemas are read: of a small document, and for each byte of it. Public
	// documents need 3 at most.
	minWork = 4 << 20
	maxWork = 16
)

func newShaper(d *document, slim Slim) *shaper {
	return &shaper{
		d: d, slim: slim, components: map[string]*component{}, patterns: map[string]bool{},
		keywords: keywordWriters(),
		work:     minWork + maxWork*len(d.files[""].root.raw),
	}
}

// tool makes the tool of an operation.
func (b *builder) tool(o *operation) (*Tool, error) {
	base, err := b.baseOf(o)
	if err != nil {
		return nil, err
	}
	args, err := b.arguments(o)
	if err != nil {
		return nil, err
	}
	body, more, err := b.body(o)
	if err != nil {
		return nil, err
	}
	args = append(args, more...)
	nameArguments(args)
	schema, err := b.inputSchema(o, args)
	if err != nil {
		return nil, err
	}
	t := &Tool{Operation: clean(o.key()), Renamed: o.renamed, Security: b.security(o)}
	t.Tool = mcp.Tool{
		Name: o.name, Title: o.title(), Description: o.description() + b.links(o),
		InputSchema: schema, Annotations: annotations(o),
	}
	if b.o.OutputSchemas {
		if t.OutputSchema, err = b.outputSchema(o); err != nil {
			return nil, err
		}
	}
	output := t.OutputSchema
	if b.o.Edit != nil {
		b.o.Edit(o.key(), &t.Tool)
		if t.InputSchema, t.OutputSchema = schema, output; t.Name != o.name {
			t.Renamed = "Options.Edit"
		}
		if !validName(t.Name) {
			return nil, fmt.Errorf("Options.Edit gave it the name %q, which is no valid name of a tool",
				clip(t.Name))
		}
	}
	if t.plan, err = b.plan(o, base, body, args); err != nil {
		return nil, err
	}
	if output != nil {
		if t.plan.output, err = validate.Compile(output, validate.Limits{}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func validName(name string) bool {
	return len(name) > 0 && len(name) <= 128 && !slices.ContainsFunc([]byte(name), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' &&
			c != '-' && c != '.'
	})
}

// annotations are hints by what RFC 9110, section 9.2, says of methods, and by what the document
// says.
func annotations(o *operation) *spec.ToolAnnotations {
	a := &spec.ToolAnnotations{
		ReadOnlyHint: safe(o.method), IdempotentHint: idempotent(o.method),
		DestructiveHint: new(!safe(o.method)), OpenWorldHint: new(true),
	}
	if v, ok := o.extensionHint("readOnlyHint"); ok {
		a.ReadOnlyHint = v
	}
	if v, ok := o.extensionHint("idempotentHint"); ok {
		a.IdempotentHint = v
	}
	if v, ok := o.extensionHint("destructiveHint"); ok {
		a.DestructiveHint = new(v)
	}
	if v, ok := o.extensionHint("openWorldHint"); ok {
		a.OpenWorldHint = new(v)
	}
	return a
}

// inputSchema puts the arguments and the components that they refer to into one schema. Where that
// is too large, the components that are deepest inside are left open, then descriptions and
// optional arguments are left out.
func (b *builder) inputSchema(o *operation, args []*argument) ([]byte, error) {
	schema, cut, err := b.assemble(args, false)
	if err != nil {
		return nil, err
	}
	if len(schema) > maxToolSchema {
		if schema, cut, err = b.assemble(args, true); err != nil {
			return nil, err
		}
	}
	if over := len(schema) - maxToolSchema; over > 0 {
		cut = "optional arguments"
		if schema, _, err = b.assemble(withoutOptional(args, over), true); err != nil {
			return nil, err
		}
	}
	if len(schema) > maxToolSchema {
		return nil, refusal(
			fmt.Sprintf("the schema of its required arguments has %d bytes; %d are allowed", len(schema),
				maxToolSchema))
	}
	if cut != "" {
		b.warn(o, "its schema is larger than %d bytes: %s are not shown", maxToolSchema, cut)
	}
	schema = b.inlined(o, schema)
	if _, err := validate.Compile(schema, validate.Limits{}); err != nil {
		return nil, refusal("its schema: " + clip(err.Error()))
	}
	return schema, nil
}

// withoutOptional leaves out the last optional arguments, of size bytes together.
func withoutOptional(args []*argument, size int) []*argument {
	args = slices.Clone(args)
	for i := len(args) - 1; i >= 0 && size > 0; i-- {
		if !args[i].required {
			size -= len(args[i].name) + len(withoutDescriptions(args[i].schema.raw)) + len(`"":,`)
			args = slices.Delete(args, i, i+1)
		}
	}
	return args
}

// assemble writes the schema of a tool. bare leaves descriptions out.
func (b *builder) assemble(args []*argument, bare bool) (schema []byte, cut string, err error) {
	w := schemaWriter{shaper: b.shaper}
	var names []string
	w.out = append(w.out, `{"type":"object","properties":{`...)
	for _, a := range args {
		raw := a.schema.raw
		if bare {
			raw, cut = withoutDescriptions(raw), "descriptions"
		}
		w.raw(a.name, raw)
		if a.required {
			names = append(names, a.name)
		}
		for _, c := range a.schema.refs {
			if !slices.Contains(w.refs, c) {
				w.refs = append(w.refs, c)
			}
		}
	}
	w.close()
	if len(names) > 0 {
		w.key("required")
		w.list(names)
	}
	w.out = append(w.out, `,"additionalProperties":false`...)
	if more, err := w.definitions(bare); err != nil {
		return nil, "", err
	} else if more != "" {
		cut = more
	}
	w.close()
	return w.out, cut, nil
}

// definitions writes the components, from the outermost to the innermost. One that has no room, and
// those that only it refers to, become schemas that take anything.
func (w *schemaWriter) definitions(bare bool) (cut string, err error) {
	if len(w.refs) == 0 {
		return "", nil
	}
	w.out = append(w.out, `,"$defs":{`...)
	queued := map[*component]bool{}
	for _, c := range w.refs {
		queued[c] = true
	}
	left := maxToolSchema - len(w.out)
	for i := 0; i < len(w.refs); i++ { // it grows
		c := w.refs[i]
		if err := w.shape(c); err != nil {
			return "", err
		}
		raw := c.shape.raw
		if bare {
			raw = withoutDescriptions(raw)
		}
		// A stub for each one that waits must have room, too.
		waiting := 60 * (len(w.refs) - i - 1 + len(c.shape.refs))
		if size := len(raw) + len(c.name) + 4; size+waiting > left {
			raw, cut = []byte(`{"description":"…"}`), "parts of it"
			left -= len(raw) + len(c.name) + 4
		} else {
			left -= size
			for _, next := range c.shape.refs {
				if !queued[next] {
					queued[next] = true
					w.refs = append(w.refs, next)
				}
			}
		}
		w.raw(c.name, raw)
	}
	w.close()
	return cut, nil
}

// withoutDescriptions removes descriptions at any depth, but no property of that name.
func withoutDescriptions(raw []byte) []byte { return dropDescriptions(nil, raw, true) }

func dropDescriptions(out, raw []byte, schema bool) []byte {
	return rewrite(out, raw, schema, dropDescriptions, func(name, value []byte) bool {
		return string(name) == "description" && value[0] == '"'
	})
}

// A rewriter writes JSON, which is a schema or an object of schemas, in another form.
type rewriter func(out, raw []byte, schema bool) []byte

// rewrite has inner write what JSON has in it. Members of a schema that drop selects are left out;
// those with values that are no schemas stay as they are.
func rewrite(
	out, raw []byte, schema bool, inner rewriter, drop func(name, value []byte) bool,
) []byte {
	switch raw[0] {
	case '{':
		return append(rewriteMembers(append(out, '{'), raw, schema, inner, drop), '}')
	case '[':
		out = append(out, '[')
		for value := range scan.Elements(raw) {
			if out[len(out)-1] != '[' {
				out = append(out, ',')
			}
			out = inner(out, value, true)
		}
		return append(out, ']')
	default:
		return append(out, raw...)
	}
}

// rewriteMembers writes the members of an object: see rewrite.
func rewriteMembers(
	out, raw []byte, schema bool, inner rewriter, drop func(name, value []byte) bool,
) []byte {
	for name, value := range scan.Members(raw) {
		if schema && drop(name, value) {
			continue
		}
		out = scan.AppendMember(out, name, nil)
		member := ""
		if schema {
			member = string(name)
		}
		switch member {
		case "enum", "const", "default", "examples", "required":
			out = append(out, value...)
		case "properties", "patternProperties", "dependentSchemas":
			out = inner(out, value, false)
		default:
			out = inner(out, value, true)
		}
	}
	return out
}

// size is how many bytes the tool has in a list.
func (t *Tool) size() int {
	raw, err := jsonv2.Append(nil, t.Tool)
	if err != nil {
		return len(t.InputSchema) + len(t.Description)
	}
	return len(raw)
}

// reservedNames are those of tools that find and call others.
var reservedNames = map[string]bool{"search_tools": true, "describe_tools": true, "call_tool": true}

// nameTools names the tools of operations. A name depends on the operation alone, not on
// the order, so an added operation renames only those that it collides with: all of these
// get a suffix from their method and path.
func nameTools(all []*operation, limit int) {
	same := map[string][]*operation{}
	for _, o := range all {
		o.name, o.renamed = toolName(o, limit)
		key := foldName(o.name)
		same[key] = append(same[key], o)
	}
	for _, group := range same {
		for _, o := range group {
			switch {
			case len(group) > 1:
				o.name, o.renamed = suffixed(o.name, o, limit), "other operations have this name"
			case reservedNames[foldName(o.name)]:
				o.name, o.renamed = suffixed(o.name, o, limit), "the name is reserved"
			}
		}
	}
}

// foldName is what hosts take for the same name.
func foldName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

func toolName(o *operation, limit int) (name, renamed string) {
	source := cmp.Or(o.extension("name"), o.id)
	if source == "" {
		source, renamed = o.method+pathWords(o.path), "there is no operationId"
		source = strings.ToLower(source[:len(o.method)]) + source[len(o.method):]
	}
	name = cmp.Or(slug(source), slug(strings.ToLower(o.method)+pathWords(o.path)))
	if name[0] >= '0' && name[0] <= '9' {
		name = "op_" + name
	}
	if len(name) > limit {
		return suffixed(name, o, limit), "longer than the limit"
	}
	if name != source && renamed == "" {
		renamed = "characters that are not allowed"
	}
	return name, renamed
}

// pathWords writes /pets/{id} as _pets_by_id.
func pathWords(path string) string {
	return "_" + strings.NewReplacer("{", "by_", "}", "").Replace(path)
}

// slug keeps letters and digits, with one underscore between words.
func slug(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.TrimRight(b.String(), "_")
}

// suffixed adds eight digits of the operation's hash, for which it makes room at the end
// of a word.
func suffixed(name string, o *operation, limit int) string {
	if room := limit - 9; len(name) > room {
		whole := name[room] == '_'
		name = name[:room]
		if at := strings.LastIndexByte(name, '_'); at > room/2 && !whole {
			name = name[:at]
		}
	}
	return strings.TrimRight(name, "_") + "_" + hash8(o.key())
}

func hash8(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// argumentName makes of a parameter's name one that every host accepts as a property.
func argumentName(wire string) string {
	name := strings.NewReplacer("<", "_lt", ">", "_gt", "[]", "").Replace(wire)
	var b strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.',
			r == '_':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	name = b.String()
	if trimmed := strings.Trim(name, "_"); trimmed != "" && name != wire {
		name = trimmed
	}
	if len(name) > 64 {
		name = name[:55] + "_" + hash8(wire)
	}
	if name == "" || name == "_" {
		name = "arg_" + hash8(wire)
	}
	return name
}

// nameArguments gives each argument its own name: the first keeps its name, and those
// after it are prefixed with where they belong. Path parameters come first.
func nameArguments(args []*argument) {
	taken := map[string]bool{}
	for _, a := range args {
		name := argumentName(a.wire)
		if a.in == inWhole {
			name = a.wire
			if taken[name] {
				name = "request_body"
			}
		}
		if taken[name] {
			name = a.in.String() + "_" + name
		}
		if taken[name] {
			name = name[:min(len(name), 55)] + "_" + hash8(a.in.String()+a.wire)
		}
		taken[name] = true
		a.name = name
	}
}
