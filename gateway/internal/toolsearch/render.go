package toolsearch

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The limits of an answer.
const (
	Budget           = 8 << 10 // bytes of the structured form, and of the text
	schemaBudget     = 1 << 10 // of an input schema, unless the query asks for schemas
	schemasByDefault = 3
	longestText      = 200 // bytes of a description
	longestSignature = 300
)

// The values of Form.Detail.
const (
	DetailAuto      = "auto" // the first tools with their input schemas, the others with signatures
	DetailSignature = "signature"
	DetailSchema    = "schema"
)

// A Form says how a result is written.
type Form struct {
	Detail  string   // "": DetailAuto
	Missing []string // servers that could not be asked
	Servers []string // the caller's, for a result without tools
}

// An Answer is a result for a model: as an object, and as a text of the same meaning.
type Answer struct {
	Structured jsonrpc.Raw
	Text       string
}

// Answer writes a result. Neither form is longer than the Budget: schemas are left out from the
// last tool on, and then tools, which count as More. The first tool that was asked for by its name
// with DetailSchema keeps its schema, however long.
func (x *Index) Answer(r *Result, form *Form) Answer {
	lines := make([]line, 0, len(r.Tools))
	for n, i := range r.Tools {
		lines = append(lines,
			x.line(i, form.Detail == DetailSchema || form.Detail != DetailSignature && n < schemasByDefault,
				form.Detail))
	}
	more, keep := r.More, 0
	if form.Detail == DetailSchema {
		keep = min(r.Exact, 1)
	}
	for last := len(lines) - 1; ; last-- {
		a := Answer{structured(lines, r, more, form), text(lines, r, more, form)}
		switch {
		case len(a.Structured) <= Budget && len(a.Text) <= Budget,
			keep > 0 && last < keep && len(lines) == keep:
			return a
		case last >= keep:
			lines[last].schema = nil
		case len(lines) > keep:
			lines = lines[:len(lines)-1]
			more++
		default:
			form = &Form{} // it has too many servers
		}
	}
}

// A line is a tool in an answer.
type line struct {
	tool      *entry
	signature string
	lossy     bool // the signature does not say all about the parameters
	schema    jsonrpc.Raw
	about     string
}

func (x *Index) line(i int, withSchema bool, detail string) line {
	t := &x.tools[i]
	l := line{tool: t, about: cut(sentence(t.description), longestText)}
	l.signature, l.lossy = signature(t.schema)
	if withSchema && (len(t.schema) <= schemaBudget || detail == DetailSchema) {
		l.schema = t.schema
	}
	return l
}

func structured(lines []line, r *Result, more int, form *Form) jsonrpc.Raw {
	out := jsonrpc.Raw(`{"tools":[`)
	for n := range lines {
		if n > 0 {
			out = append(out, ',')
		}
		l := &lines[n]
		out = jsonrpc.AppendString(append(out, `{"name":`...), l.tool.Name)
		out = jsonrpc.AppendString(append(out, `,"server":`...), l.tool.Server)
		out = jsonrpc.AppendString(append(out, `,"signature":`...), l.signature)
		if l.about != "" {
			out = jsonrpc.AppendString(append(out, `,"description":`...), l.about)
		}
		if l.tool.readOnly {
			out = append(out, `,"readOnly":true`...)
		}
		if l.schema != nil {
			out = append(append(out, `,"inputSchema":`...), l.schema...)
		}
		out = append(out, '}')
	}
	out = strconv.AppendBool(append(out, `],"weak":`...), r.Weak)
	out = strconv.AppendInt(append(out, `,"more":`...), int64(more), 10)
	if len(form.Missing) > 0 {
		out = append(out, `,"missing":[`...)
		for i, name := range form.Missing {
			if i > 0 {
				out = append(out, ',')
			}
			out = jsonrpc.AppendString(out, name)
		}
		out = append(out, ']')
	}
	return append(out, '}')
}

func text(lines []line, r *Result, more int, form *Form) string {
	var b strings.Builder
	lossy := false
	for i := range lines {
		l := &lines[i]
		b.WriteString(l.tool.Name + l.signature)
		if l.about != "" {
			b.WriteString(" - " + l.about)
		}
		if l.tool.readOnly {
			b.WriteString(" [read-only]")
		}
		b.WriteByte('\n')
		switch {
		case l.lossy && l.schema != nil:
			b.WriteString("  input schema: " + string(l.schema) + "\n")
		case l.lossy:
			lossy = true
		}
	}
	switch {
	case len(lines) == 0 && more == 0:
		b.WriteString("No tool has these words.")
		if len(form.Servers) > 0 {
			b.WriteString(" There are tools on: " + strings.Join(form.Servers, ", ") + ".")
		}
		b.WriteByte('\n')
	case r.Weak:
		b.WriteString("These may not fit: they have few of the words.\n")
	}
	if more > 0 {
		b.WriteString(strconv.Itoa(more) + " more fit: use other words, or a larger limit.\n")
	}
	if lossy {
		b.WriteString(
			"A signature with … is not whole: search for the exact name alone with detail \"schema\".\n")
	}
	if len(form.Missing) > 0 {
		b.WriteString("These servers cannot be asked now: " + strings.Join(form.Missing, ", ") + ".\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// signature returns the parameters of an input schema in the form "(required: string, optional?:
// int)".
func signature(schema []byte) (s string, lossy bool) {
	required := map[string]bool{}
	for name := range scan.Elements(scan.Member(schema, "required")) {
		required[textOf(name)] = true
	}
	var first, rest []string
	for key, property := range scan.Members(scan.Member(schema, "properties")) {
		name := plain(string(key))
		kind, whole := kindOf(property)
		lossy = lossy || !whole
		if required[name] {
			first = append(first, name+": "+kind)
		} else {
			rest = append(rest, name+"?: "+kind)
		}
	}
	all := strings.Join(append(first, rest...), ", ")
	if short := cut(all, longestSignature); short != all {
		all, lossy = short, true
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf", "$ref"} {
		if lossy = lossy || scan.Member(schema, word) != nil; lossy && !strings.HasSuffix(all, "…") {
			all = strings.TrimPrefix(all+", …", ", ")
		}
	}
	return "(" + all + ")", lossy
}

// kindOf returns the type of a parameter, and whether that is all.
func kindOf(property []byte) (kind string, whole bool) {
	if values := scan.Member(property, "enum"); values != nil {
		var all []string
		for one := range scan.Elements(values) {
			all = append(all, plain(string(one)))
		}
		if s := strings.Join(all, "|"); len(s) <= 80 {
			return s, true
		}
		return "enum", false
	}
	name := textOf(scan.Member(property, "type"))
	switch name {
	case "integer":
		return "int", true
	case "boolean":
		return "bool", true
	case "string", "number", "null":
		return name, true
	case "array":
		kind, whole = kindOf(scan.Member(property, "items"))
		return kind + "[]", whole
	case "object":
		return name, scan.Member(property, "properties") == nil
	}
	if types := scan.Member(property, "type"); bytes.HasPrefix(types, []byte{'['}) {
		var all []string
		for one := range scan.Elements(types) {
			if name := textOf(one); name != "null" {
				all = append(all, plain(name))
			}
		}
		if len(all) == 1 && all[0] != "object" && all[0] != "array" {
			return all[0], true
		}
	}
	return "any", false
}

// plain returns a text on one line, without characters that cannot be seen.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case r == utf8.RuneError, unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs):
			return -1
		}
		return r
	}, s)
	if !strings.Contains(s, "  ") {
		return strings.TrimSpace(s)
	}
	return strings.Join(strings.Fields(s), " ")
}

// cut shortens a text to n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n -= len("…"); !utf8.RuneStart(s[n]); {
		n--
	}
	return s[:n] + "…"
}
