package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// An outputForm is what an override of an endpoint leaves of the results of a tool.
type outputForm struct {
	// of structured results, with dots between the names of members: "items.id"; empty: all
	Fields []string
	Max    int64 // bytes of a result; 0: no bound
}

// noteSize is room for the note about what was left out, in the least that a bound may be.
const noteSize = 500

// narrow returns the result of a call as the endpoint shows it. What asks, or is a task, is not a
// result yet.
func (o *outputForm) narrow(result jsonrpc.Raw) jsonrpc.Raw {
	if o == nil {
		return result
	}
	if kind, ok := text(result, "resultType"); ok && kind != spec.ResultComplete ||
		scan.Member(result, "task") != nil {
		return result
	}
	if len(o.Fields) > 0 && string(scan.Member(result, "isError")) != "true" {
		result = o.chosen(result)
	}
	if o.Max > 0 && int64(len(result)) > o.Max {
		result = o.cut(result)
	}
	return result
}

// chosen leaves the fields, in the structured content and in each text that is JSON.
func (o *outputForm) chosen(result jsonrpc.Raw) jsonrpc.Raw {
	if s := scan.Member(result, "structuredContent"); s != nil {
		result = withMember(result, "structuredContent", only(s, o.Fields))
	}
	return withMember(result, "content", eachContent(result, func(c jsonrpc.Raw) jsonrpc.Raw {
		said, ok := text(c, "text")
		if _, fault := scan.Text([]byte(said), 512); !ok || fault != scan.OK {
			return c
		}
		at := scan.Space([]byte(said), 0)
		if said[at] != '{' && said[at] != '[' {
			return c
		}
		return withMember(c, "text", jsonrpc.AppendString(nil, string(only([]byte(said[at:]), o.Fields))))
	}))
}

// only returns the fields of a JSON value. An array has those of its elements.
func only(value []byte, fields []string) jsonrpc.Raw {
	switch value[0] {
	case '[':
		out := jsonrpc.Raw{'['}
		for one := range scan.Elements(value) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, only(one, fields)...)
		}
		return append(out, ']')
	case '{':
	default:
		return value
	}
	out := jsonrpc.Raw{'{'}
	for key, member := range scan.Members(value) {
		var below []string
		for _, f := range fields {
			if rest, ok := strings.CutPrefix(f, string(key)+"."); ok {
				below = append(below, rest)
			}
		}
		switch {
		case slices.Contains(fields, string(key)):
			out = appendMember(out, string(key), member)
		case len(below) > 0:
			out = appendMember(out, string(key), only(member, below))
		}
	}
	return append(out, '}')
}

// eachContent returns the contents of a result with each replaced by what f makes of it; nil leaves
// it out.
func eachContent(result jsonrpc.Raw, f func(jsonrpc.Raw) jsonrpc.Raw) jsonrpc.Raw {
	out := jsonrpc.Raw{'['}
	for c := range scan.Elements(scan.Member(result, "content")) {
		made := f(c)
		if made != nil && len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, made...)
	}
	return append(out, ']')
}

// cut bounds a result: it has the contents that fit, and a note in place of the others, after as
// much of a text as fits. The structured content is left out, and a long _meta; of a result with
// other long members all but content is.
func (o *outputForm) cut(result jsonrpc.Raw) jsonrpc.Raw {
	left := int(o.Max) - noteSize
	bare := without(result, "structuredContent", "content")
	if len(bare) > left/2 {
		bare = without(bare, "_meta")
	}
	if len(bare) > left/2 {
		bare = only(result, []string{"resultType", "isError"})
	}
	if len(bare) > left/2 { // they are not what they should be
		bare = jsonrpc.Raw("{}")
	}
	left -= len(bare)
	note := func(said string) jsonrpc.Raw {
		return textContent(said + fmt.Sprintf(
			"\n[The rest of %d bytes is left out: the limit of a result is %d bytes.]", len(result), o.Max))
	}
	noted := false
	contents := eachContent(result, func(c jsonrpc.Raw) jsonrpc.Raw {
		if noted {
			return nil
		}
		if len(c) < left {
			left -= len(c) + 1
			return c
		}
		noted = true
		said, _ := text(c, "text")
		for kept := min(len(said), max(left, 0)); ; kept /= 2 {
			for kept > 0 && kept < len(said) && !utf8.RuneStart(said[kept]) {
				kept--
			}
			if c = note(said[:kept]); len(c) <= left+noteSize || kept == 0 {
				return c
			}
		}
	})
	if !noted { // what is left out is no content
		contents = bytes.TrimSuffix(contents, []byte("]"))
		if len(contents) > 1 {
			contents = append(contents, ',')
		}
		contents = append(append(contents, note("")...), ']')
	}
	return withMember(bare, "content", contents)
}

// textContent is a content that is a text.
func textContent(text string) jsonrpc.Raw {
	return append(jsonrpc.AppendString([]byte(`{"type":"text","text":`), text), '}')
}

// output reads what is left of results.
func (r *reader) output(f *toolForm) take {
	return func(n *node, path string) {
		f.Output = &outputForm{}
		r.fields(n, path,
			map[string]take{"fields": r.texts(&f.Output.Fields), "max": r.size(&f.Output.Max)})
	}
}

// output checks what is left of results.
func (c *checker) output(path string, o *outputForm) {
	if o == nil {
		return
	}
	if len(o.Fields) == 0 && o.Max == 0 {
		c.problem(path, "it leaves everything", "add fields or max, or remove it")
	}
	for i, f := range o.Fields {
		if slices.Contains(strings.Split(f, "."), "") {
			c.problem(fmt.Sprintf("%s.fields[%d]", path, i), c.quote(path, f)+" is no name of a member",
				"write names with dots between them, as in items.id")
		}
	}
}
