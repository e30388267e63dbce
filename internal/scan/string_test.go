package scan

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Every length and every place of a special byte, because eight bytes are
// looked at together.
func TestStringLengths(t *testing.T) {
	for n := range 70 {
		for _, special := range []string{
			"", `\n`, `\u0041`, "\x00", "\x1f", "é", "\xff", "😀", "\xe2\x82",
			`"`, `\`,
		} {
			for at := range n + 1 {
				text := []byte(`"` + strings.Repeat("x", at) + special + strings.Repeat("y", n-at) + `"`)
				want := reference(text, 0)
				got, f := Value(text, 0, 0)
				if (f == OK) != (want >= 0) || f == OK && got != want {
					t.Fatalf("%q: %d %v, want %d", text, got, f, want)
				}
			}
		}
	}
}

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{
		`""`:                         ``,
		`"plain"`:                    `plain`,
		`"\"\\\/\b\f\n\r\t"`:         "\"\\/\b\f\n\r\t",
		`"a\u0041\u00e9\u20AC"`:      "aAé€",
		`"\ud83d\ude00"`:             "😀",
		`"\ud83d"`:                   "\uFFFD",
		`"\ud83dx"`:                  "\uFFFDx",
		`"\ud83d\n"`:                 "\uFFFD\n",
		`"\ud83d\u0041"`:             "\uFFFDA",
		`"\ude00\ud83d"`:             "\uFFFD\uFFFD",
		`"\ud83d\ud83d\ude00"`:       "\uFFFD😀",
		`"\uFFFD"`:                   "\uFFFD",
		`"é\u0000"`:                  "é\x00",
		`"\u005c\u0022"`:             `\"`,
		`"in the \"middle\" of it"`:  `in the "middle" of it`,
		`"\u006dethod"`:              `method`,
		`"ends with a backslash \\"`: `ends with a backslash \`,
	} {
		if got := Unquote([]byte(raw)); string(got) != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func TestAppendQuoted(t *testing.T) {
	for s, want := range map[string]string{
		``:                     `""`,
		`plain`:                `"plain"`,
		"<&>é€😀\u2028":         "\"<&>é€😀\u2028\"",
		"\"\\/\b\f\n\r\t":      `"\"\\/\b\f\n\r\t"`,
		"\x00\x1f\x7f":         "\"\\u0000\\u001f\x7f\"",
		"a\xffb":               "\"a\uFFFDb\"",
		"\xed\xa0\x80":         "\"\uFFFD\uFFFD\uFFFD\"",
		"\uFFFD":               "\"\uFFFD\"",
		"cut off \xe2\x82":     "\"cut off \uFFFD\uFFFD\"",
		"\xf0\x9f\x98\x80\xf0": "\"😀\uFFFD\"",
	} {
		if got := AppendQuoted([]byte("x"), s); string(got) != "x"+want {
			t.Errorf("%q: %s, want x%s", s, got, want)
		}
		if got := AppendQuoted(nil, []byte(s)); string(got) != want {
			t.Errorf("%q as bytes: %s, want %s", s, got, want)
		}
		if _, f := Text([]byte(want), 0); f != OK {
			t.Errorf("%s: %v", want, f)
		}
	}
}

// A byte that is escaped, or is none of UTF-8, is quoted in the same way wherever it stands: text
// is quoted eight bytes at a time, and in parts.
func TestAppendQuotedAnywhere(t *testing.T) {
	t.Parallel()
	for _, special := range []string{
		"\"", "\\", "\n", "\x00", "\x1f", "é", "\xff", "\xe2\x82", "\U0001F600", "\"\n\"\xff",
	} {
		alone := AppendQuoted(nil, special)
		alone = alone[1 : len(alone)-1]
		for at := range 140 {
			before, after := strings.Repeat("a", at), strings.Repeat("b", 140-at)
			want := `"` + before + string(alone) + after + `"`
			if got := string(AppendQuoted(nil, before+special+after)); got != want {
				t.Fatalf("%q at %d: %s", special, at, got)
			}
		}
		if many := strings.Repeat(special, 200); special[0] < utf8.RuneSelf {
			got := string(AppendQuoted([]byte("x"), []byte(many)))
			if want := `x"` + strings.Repeat(string(alone), 200) + `"`; got != want {
				t.Errorf("%q: %s", special, got)
			}
		}
	}
}
