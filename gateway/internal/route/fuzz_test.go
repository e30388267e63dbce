package route

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func FuzzCursor(f *testing.F) {
	f.Add("", 0, 0, uint64(0))
	f.Add(position{1, 2, 3, 4}.cursor(tools), 1, 300, uint64(7))
	f.Add("AQ", 1<<30, 1<<30, ^uint64(0))
	f.Fuzz(func(t *testing.T, text string, source, item int, sum uint64) {
		if p, err := readCursor(tools, text); err == nil && p.cursor(tools) != text {
			t.Errorf("%q is read as %+v, which is %q", text, p, p.cursor(tools))
		}
		if source < 0 || item < 0 || source > 1<<30 || item > 1<<30 {
			return
		}
		p := position{source, item, sum, ^sum}
		if got, err := readCursor(tools, p.cursor(tools)); err != nil || got != p {
			t.Errorf("%+v becomes %+v, %v", p, got, err)
		}
		if _, err := readCursor(prompts, p.cursor(tools)); err == nil {
			t.Error("a cursor of another list is accepted")
		}
	})
}

func FuzzSetMember(f *testing.F) {
	f.Add(`{"name":"x","description":"d"}`, "y")
	f.Add(` { } `, "\x00\"")
	f.Add(`{"na\u006de" : {"name":1} , "a":[{}]}`, "ü")
	f.Add(`[1]`, "")
	f.Fuzz(func(t *testing.T, text, value string) {
		raw := jsonrpc.Raw(text)
		if _, fault := scan.Text(raw, 100); fault != scan.OK {
			_ = setMember(raw, "name", value) // whatever it does, it returns
			return
		}
		out := setMember(raw, "name", value)
		if i := scan.Space(raw, 0); raw[i] != '{' {
			if string(out) != text {
				t.Errorf("%s becomes %s", text, out)
			}
			return
		}
		if _, fault := scan.Text(out, 100); fault != scan.OK {
			t.Fatalf("%s becomes %s: %v", text, out, fault)
		}
		var got string
		if err := json.Unmarshal(scan.Member(out, "name"), &got); err != nil ||
			got != strings.ToValidUTF8(value, "\uFFFD") && utf8.ValidString(value) {
			t.Errorf("%s has the name %q, %v; want %q", out, got, err, value)
		}
		// What is before and behind the value is as it was.
		start, end, _, _ := locate(raw, "name")
		if !strings.HasPrefix(string(out), text[:start]) || !strings.HasSuffix(string(out), text[end:]) {
			t.Errorf("%s becomes %s", text, out)
		}
		if again := setMember(out, "name", value); string(again) != string(out) {
			t.Errorf("twice: %s and %s", out, again)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add("f:{x}{?q}", "f:a?q=1")
	f.Add("{+x}{/y*}", "a/b")
	f.Add("{", "")
	f.Fuzz(func(t *testing.T, text, uri string) {
		if len(text) > 200 || len(uri) > 200 {
			return
		}
		tmpl, ok := newTemplate(text)
		if !ok {
			return
		}
		got := tmpl.match(uri)
		if !strings.ContainsAny(text, "{}") && got != (text == uri) {
			t.Errorf("%q, %q: %v", text, uri, got)
		}
		if all, ok := newTemplate(text + "{+rest}"); ok && got && !all.match(uri+"/?#") {
			t.Errorf("%q has %q, but with more at its end it has not", text, uri)
		}
	})
}

func FuzzDigest(f *testing.F) {
	f.Add(`[{"name":"a"},{"name":"a"},{"name":1},[]]`)
	f.Add(`[{"name":"a","name":"b"},{"name":"\ud800"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		var l List
		for item := range scan.Elements([]byte(text)) {
			l.Items = append(l.Items, item)
		}
		filter := newFilter(
			&Filter{
				Deny: []string{"*x*"}, Rename: map[string]string{"a": "b"},
				Describe: map[string]string{"a": "d"},
			})
		d := digestOf(tools, filter, &l)
		if len(d.names) != len(d.entries) || len(d.plains) != len(d.entries) {
			t.Errorf("%d, %d and %d names", len(d.names), len(d.plains), len(d.entries))
		}
		for _, e := range d.entries {
			var got struct{ Name string }
			if err := json.Unmarshal(e.shown, &got); err != nil || strings.Contains(e.name, "x") {
				t.Errorf("%s: %v", e.shown, err)
			}
			if string(scan.Unquote(scan.Member(e.shown, "name"))) != e.plain {
				t.Errorf("%s is to be %q", e.shown, e.plain)
			}
		}
	})
}
