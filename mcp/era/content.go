package era

import (
	"bytes"
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// This file has what becomes of contents for which a revision has no type: a
// text that says what they are.

// replaced is an edit that puts the text that words writes about a content into
// its place, with the annotations it had.
func replaced(words func(v jsonrpc.Raw) string) edit {
	return edit{do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		return textBlock(words(v), scan.Member(v, "annotations")), nil
	}}
}

func textBlock(s string, annotations jsonrpc.Raw) jsonrpc.Raw {
	out := scan.AppendQuoted([]byte(`{"type":"text","text":`), s)
	if annotations != nil {
		out = append(append(out, `,"annotations":`...), annotations...)
	}
	return append(out, '}')
}

func audioText(v jsonrpc.Raw) string { return binaryText("audio", v) }

// binaryText says what an image or a sound is that cannot be shown.
func binaryText(kind string, v jsonrpc.Raw) string {
	data := bytes.TrimRight([]byte(text(scan.Member(v, "data"))), "=")
	return "[" + kind + ": " + text(scan.Member(v, "mimeType")) + ", " + strconv.Itoa(len(data)*3/4) +
		" bytes]"
}

// linkText names a resource by its title or its name.
func linkText(v jsonrpc.Raw) string {
	name := text(scan.Member(v, "title"))
	if name == "" {
		name = text(scan.Member(v, "name"))
	}
	s := text(scan.Member(v, "uri"))
	if name != "" {
		s = name + " <" + s + ">"
	}
	if description := text(scan.Member(v, "description")); description != "" {
		s += ": " + description
	}
	return s
}

func toolUseText(v jsonrpc.Raw) string {
	return "[tool call " + text(scan.Member(v, "id")) + ": " + text(scan.Member(v, "name")) + " " +
		string(scan.Member(v, "input")) + "]"
}

func toolResultText(v jsonrpc.Raw) string {
	s := "[result of tool call " + text(scan.Member(v, "toolUseId"))
	if string(scan.Member(v, "isError")) == "true" {
		s += ", failed"
	}
	body := joinedText(scan.Member(v, "content"))
	if structured := scan.Member(v, "structuredContent"); body == "" && structured != nil {
		body = string(structured)
	}
	return s + "]\n" + body
}

// joinedText says in words what a content or an array of them is.
func joinedText(v jsonrpc.Raw) string {
	var all []byte
	_, _ = each(edit{do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		if len(all) > 0 {
			all = append(all, '\n')
		}
		all = append(all, blockText(v)...)
		return v, nil
	}}).do(v)
	return string(all)
}

func blockText(v jsonrpc.Raw) string {
	switch kind := text(scan.Member(v, "type")); kind {
	case "image", "audio":
		return binaryText(kind, v)
	case "resource_link":
		return linkText(v)
	case "resource":
		resource := scan.Member(v, "resource")
		if s := text(scan.Member(resource, "text")); s != "" {
			return s
		}
		return linkText(resource)
	case "tool_use":
		return toolUseText(v)
	default:
		return text(scan.Member(v, "text"))
	}
}

// unstructure drops structuredContent when lost is true. When there is no
// other content it becomes a text.
func unstructure(lost func(structured jsonrpc.Raw) bool) edit {
	return when("structuredContent", func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		structured := scan.Member(v, "structuredContent")
		if structured == nil || !lost(structured) {
			return v, nil
		}
		v, err := drop("structuredContent").do(v)
		if err != nil {
			return nil, err
		}
		content := scan.Member(v, "content")
		if begins(content, '[') && content[scan.Space(content, 1)] != ']' {
			return v, nil
		}
		if content != nil {
			v, _ = drop("content").do(v)
		}
		block := textBlock(string(structured), nil)
		return with(v, "content", append(append(jsonrpc.Raw{'['}, block...), ']')), nil
	})
}

func notObject(structured jsonrpc.Raw) bool { return !begins(structured, '{') }

// splitMessage makes of a sampling message with several contents several
// messages with one. The first one keeps all other members.
func splitMessage(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	contents, role := scan.Member(v, "content"), scan.Member(v, "role")
	if !begins(contents, '[') || !is(role, "user") && !is(role, "assistant") {
		return v, nil
	}
	head, _ := drop("content").do(v)
	out := make(jsonrpc.Raw, 0, 2*len(v))
	for block := range scan.Elements(contents) {
		if scan.Member(block, "type") == nil {
			return v, nil
		}
		if len(out) > 0 {
			out = append(out, ',')
			head = with(nil, "role", role)
		}
		out = append(out, with(head, "content", block)...)
	}
	if len(out) == 0 {
		return with(head, "content", textBlock("", nil)), nil
	}
	return out, nil
}

// joinContent makes of several contents one: the only one, or a text about all.
func joinContent(v jsonrpc.Raw) (jsonrpc.Raw, error) {
	if !begins(v, '[') {
		return v, nil
	}
	var only jsonrpc.Raw
	n := 0
	for block := range scan.Elements(v) {
		only = block
		n++
	}
	if n == 1 {
		return only, nil
	}
	return textBlock(joinedText(v), nil), nil
}
