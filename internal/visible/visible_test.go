package visible

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain\nüñ 漢字 ✓":          "plain\nüñ 漢字 ✓",
		"a\x1b[31mb\xff\nc\u009b": "a\\u001b[31mb\\xff\nc\\u009b",
		"\t\r\x00\x7f":            `\u0009\u000d\u0000\u007f`,
		"x\u202ey\u2066z\u200b":   `x\u202ey\u2066z\u200b`,
		"\U000e0041":              `\U000e0041`,
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

var logs = map[string]string{
	"plain\n\tat main.go:1\nüñ 漢字\n":   "plain\n\tat main.go:1\nüñ 漢字\n",
	"\x1b[1;31mred\x1b[0m\n":           "red\n",
	"\x1b]0;title\a\n":                 "\\u001b]0;title\\u0007\n",
	"\x1b]52;c;aGk=\x1b\\":             `\u001b]52;c;aGk=\u001b\`,
	"\u009b31mC1\u0090":                `\u009b31mC1\u0090`,
	"\x9b31m":                          `\x9b31m`,
	"10%\r20%\r\nend\r\n":              "10%\n20%\nend\n",
	"\x1b[2J\x1b[Hcleared":             `\u001b[2J\u001b[Hcleared`,
	"\u202eright to left\u2069":        `\u202eright to left\u2069`,
	"\x1b[" + strings.Repeat("1", 100): `\u001b[` + strings.Repeat("1", 100),
	"a\x1b\x1b[31mb":                   `a\u001bb`,
}

func TestLog(t *testing.T) {
	for in, want := range logs {
		if got := Log(in); got != want {
			t.Errorf("Log(%q) = %q, want %q", in, got, want)
		}
	}
}

// However a program cuts what it writes, the same text comes out.
func TestWriter(t *testing.T) {
	for in, want := range logs {
		for size := 1; size <= 4; size++ {
			var out bytes.Buffer
			w := NewWriter(&out)
			for rest := in + "."; rest != ""; rest = rest[min(size, len(rest)):] {
				part := rest[:min(size, len(rest))]
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != want+"." {
				t.Errorf("%q in parts of %d became %q, want %q", in, size, out.String(), want+".")
			}
		}
	}
}

func FuzzLog(f *testing.F) {
	for in := range logs {
		f.Add([]byte(in), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		var out bytes.Buffer
		w := NewWriter(&out)
		at = min(max(at, 0), len(in))
		_, _ = w.Write(in[:at])
		_, _ = w.Write(in[at:])
		_, _ = w.Write([]byte(".")) // ends what is held back
		if want := Log(string(in) + "."); out.String() != want {
			t.Errorf("%q in two parts at %d became %q, want %q", in, at, out.String(), want)
		}
		for _, text := range []string{out.String(), Text(string(in))} {
			if !utf8.ValidString(text) {
				t.Errorf("%q became %q, which is not UTF-8", in, text)
			}
			for _, r := range text {
				if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
					t.Errorf("%q became %q, which has %q", in, text, r)
				}
			}
		}
	})
}
