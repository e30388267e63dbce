package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestFieldParse(t *testing.T) {
	tests := []struct {
		schema, typed, want, complaint string
	}{
		{`{"type":"string"}`, "Ada", `"Ada"`, ""},
		{`{"type":"string"}`, `say "hi"`, `"say \"hi\""`, ""},
		{`{"type":"string"}`, "", "", "an answer is needed"},
		{`{"type":"string","minLength":3}`, "ab", "", "at least 3 characters"},
		{`{"type":"string","maxLength":3}`, "äöü", `"äöü"`, ""},
		{`{"type":"string","format":"email"}`, "ada@example.com", `"ada@example.com"`, ""},
		{`{"type":"string","format":"email"}`, "Ada <ada@example.com>", "", "no email"},
		{`{"type":"string","format":"uri"}`, "https://a/b", `"https://a/b"`, ""},
		{`{"type":"string","format":"uri"}`, "a/b", "", "no uri"},
		{`{"type":"string","format":"date"}`, "2024-02-29", `"2024-02-29"`, ""},
		{`{"type":"string","format":"date"}`, "2023-02-29", "", "such as 1815-12-10"},
		{`{"type":"string","format":"date-time"}`, "2024-02-29T01:02:03Z", `"2024-02-29T01:02:03Z"`, ""},
		{`{"type":"string","format":"date-time"}`, "yesterday", "", "no date-time"},
		{`{"type":"integer"}`, "7", "7", ""},
		{`{"type":"integer"}`, "7.0", "7.0", ""},
		{`{"type":"integer"}`, "7.5", "", "no whole number"},
		{`{"type":"integer"}`, "seven", "", `"seven" is no number`},
		{`{"type":"number","minimum":1,"maximum":2}`, "1.5", "1.5", ""},
		{`{"type":"number","minimum":1}`, "0", "", "at least 1"},
		{`{"type":"number","maximum":2}`, "3", "", "at most 2"},
		{`{"type":"number"}`, `"5"`, "", "is no number"},
		{`{"type":"boolean"}`, "Yes", "true", ""},
		{`{"type":"boolean"}`, "n", "false", ""},
		{`{"type":"boolean"}`, "maybe", "", "yes or no?"},
		{`{"type":"string","enum":["r","g"],"enumNames":["Red","Green"]}`, "red", `"r"`, ""},
		{`{"type":"string","enum":["r","g"]}`, "2", `"g"`, ""},
		{`{"type":"string","enum":["r","g"]}`, "3", "", `"3" is none of r, g`},
		{`{"type":"string","oneOf":[{"const":"r","title":"Red"}]}`, "RED", `"r"`, ""},
		{
			`{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1}`, "b, 1",
			`["b","a"]`, "",
		},
		{
			`{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1}`, "", "",
			"choose at least 1",
		},
		{
			`{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"maxItems":1}`, "a,a", "",
			"choose at most 1",
		},
		{`{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}`, "z", "", `"z" is none of a`},
	}
	for _, test := range tests {
		f, err := newForm(jsonrpc.Raw(`{"type":"object","properties":{"x":` + test.schema + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := f[0].parse(test.typed)
		if test.complaint != "" {
			if err == nil || !strings.Contains(err.Error(), test.complaint) {
				t.Errorf("%s, %q: %v, want a complaint %q", test.schema, test.typed, err, test.complaint)
			}
			continue
		}
		if err != nil || string(got) != test.want {
			t.Errorf("%s, %q: %s, %v; want %s", test.schema, test.typed, got, err, test.want)
		}
	}
}

const testFormSchema = `{"type":"object","required":["name","n"],"properties":{
	"name":{"type":"string","title":"Name"},
	"n":{"type":"integer","default":3,"description":"how many"},
	"note":{"type":"string"}}}`

func TestAskForm(t *testing.T) {
	tests := []struct {
		typed, action, content string
	}{
		{"Ada\n\n\n", "accept", `{"name":"Ada","n":3}`},
		{"\nAda\n4\nhello\n", "accept", `{"name":"Ada","n":4,"note":"hello"}`},
		{"\\decline\n\n\n", "accept", `{"name":"decline","n":3}`},
		{"decline\n", "decline", ""},
		{"Ada\ncancel\n", "cancel", ""},
		{"Ada\n", "cancel", ""}, // Ctrl-D
		{"", "cancel", ""},
	}
	for _, test := range tests {
		var screen bytes.Buffer
		a := &asker{
			screen: newConsole(&screen), stdin: newTypist(strings.NewReader(test.typed)),
			turn: make(chan struct{}, 1),
		}
		r, err := a.elicit(t.Context(),
			&spec.ElicitRequestParams{
				Mode: spec.ElicitForm, Message: "Well?\x1b[31m",
				RequestedSchema: jsonrpc.Raw(testFormSchema),
			})
		if err != nil || r.Action != test.action || string(r.Content) != test.content {
			t.Errorf("%q: %+v, %v; want %s %s", test.typed, r, err, test.action, test.content)
		}
		if s := screen.String(); !strings.Contains(s, "The server asks: Well?") ||
			strings.Contains(s, "\x1b") {
			t.Errorf("%q: the screen shows %q", test.typed, s)
		}
	}
}

func TestAskPage(t *testing.T) {
	for typed, want := range map[string]string{
		"y\n": "accept", "what\nyes\n": "accept",
		"no\n": "decline", "decline\n": "decline", "cancel\n": "cancel", "": "cancel",
	} {
		var screen bytes.Buffer
		a := &asker{
			screen: newConsole(&screen), stdin: newTypist(strings.NewReader(typed)),
			turn: make(chan struct{}, 1),
		}
		r, err := a.elicit(t.Context(),
			&spec.ElicitRequestParams{Mode: spec.ElicitURL, Message: "Sign in", URL: "https://example.com/"})
		if err != nil || r.Action != want {
			t.Errorf("%q: %+v, %v; want %s", typed, r, err, want)
		}
		if !strings.Contains(screen.String(), "https://example.com/") {
			t.Errorf("the screen shows %q", screen.String())
		}
	}
}

// There is no answer: the end of the call ends the question, and the next one is not
// asked before.
func TestAskGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		a := &asker{screen: newConsole(io.Discard), stdin: newTypist(r), turn: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.elicit(ctx, &spec.ElicitRequestParams{Mode: spec.ElicitURL})
				ended <- err
			}()
		}
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the question ended with %v", err)
			}
		}
		w.Close()
	})
}

func TestRootOf(t *testing.T) {
	if r, err := rootOf("/a b"); err != nil || r.URI != "file:///a%20b" || r.Name != "a b" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := rootOf("file:///x"); err != nil || r.URI != "file:///x" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestProgressBar(t *testing.T) {
	total := func(n float64) *float64 { return &n }
	tests := []struct {
		done    float64
		total   *float64
		message string
		want    string
	}{
		{3, nil, "", "3"},
		{3, nil, "files", "3 files"},
		{1, total(2), "half\nway", "████████████░░░░░░░░░░░░  50% half way"},
		{9, total(2), "", strings.Repeat("█", 24) + " 100%"},
		{-1, total(2), "", strings.Repeat("░", 24) + "   0%"},
		{1, total(0), "", "1"},
		{1, nil, strings.Repeat("x", 99), "1 " + strings.Repeat("x", 76) + "…"},
	}
	for _, test := range tests {
		if got := progressBar(test.done, test.total, test.message); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// Lines stand above the bar, and nothing of it is left at the end.
func TestConsole(t *testing.T) {
	var b bytes.Buffer
	e := &env{stderr: &b}
	m := newMCPRemote(e)
	m.screen.tty = true
	m.progress(spec.ProgressNotificationParams{Progress: 1})
	m.progress(spec.ProgressNotificationParams{Progress: 1})
	m.screen.printf("a line")
	m.progress(spec.ProgressNotificationParams{Progress: 2})
	m.screen.clear()
	m.screen.clear()
	const wipe = "\r\x1b[K"
	bar := func(text string) string { return noWrap + text + wrap + wipe }
	if want := bar("1") + "a line\n" + bar("1") + bar("2"); b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func FuzzForm(f *testing.F) {
	f.Add([]byte(testFormSchema), "Ada")
	f.Add([]byte(`{"properties":{"a":{"type":"array","items":{"enum":["a"]}}}}`), "1,2")
	f.Add([]byte(`{"properties":7}`), "")
	f.Fuzz(func(t *testing.T, schema []byte, typed string) {
		form, err := newForm(schema)
		if err != nil {
			return
		}
		if example := form.example(); jsonrpc.Valid([]byte(example)) != nil {
			t.Errorf("the example %s is no JSON", example)
		}
		for i := range form {
			p := &form[i]
			_ = p.describe() + p.prompt()
			value, err := p.parse(typed)
			if err == nil && jsonrpc.Valid(value) != nil {
				t.Errorf("%q became %s, which is no JSON", typed, value)
			}
		}
	})
}
