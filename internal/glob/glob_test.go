package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
		{"?", "", false},
		{"?", "ü", true},
		{"?", "ab", false},
		{"a*c", "abc", true},
		{"a*c", "ac", true},
		{"a*c", "abcd", false},
		{"*b*b*", "abxb", true},
		{"*b*b*", "ab", false},
		{"*bc*c", "abc", false},
		{"read_*", "read_file", true},
		{"read_*", "write", false},
		{"a?c*", "aücd", true},
		{"A", "a", false},
		{"*?", "ü", true},
		{"[a]", "a", false},
	} {
		if Match(test.pattern, test.name) != test.want {
			t.Errorf("%q %q", test.pattern, test.name)
		}
	}
	if Match(strings.Repeat("*a", 500)+"b", strings.Repeat("a", 5000)) {
		t.Error("it has no b")
	}
}
