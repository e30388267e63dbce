package cancel

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestGiven(t *testing.T) {
	for raw, want := range map[string]string{
		``: "", `null`: "", `7`: "", `{"a":1}`: "", `""`: "", `"why\u0020not"`: "why not",
		`"` + strings.Repeat("x", 5000) + `"`: strings.Repeat("x", MaxReason),
	} {
		if got := Given([]byte(raw)); got != want {
			t.Errorf("%.40s: %q", raw, got)
		}
	}
}

func FuzzBound(f *testing.F) {
	f.Add("")
	f.Add(strings.Repeat("é", 600))
	f.Add("x" + strings.Repeat("\U0001F600", 300))
	f.Add(strings.Repeat("\x80", 2000))
	f.Fuzz(func(t *testing.T, text string) {
		got := Bound(text)
		if !utf8.ValidString(got) || len(got) > MaxReason ||
			len(text) <= MaxReason && utf8.ValidString(text) && got != text {
			t.Errorf("%q: %q", text, got)
		}
	})
}
