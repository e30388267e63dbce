package yamljson

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/scan"
)

func TestJSON(t *testing.T) {
	for _, test := range []struct{ yaml, want string }{
		{"a: 1.10\nb: 9007199254740993\nc: 0x1F\n", `{"a":1.10,"b":9007199254740993,"c":31}`},
		{"a: yes\nb: true\nc: null\nd: ~\ne:\n", `{"a":"yes","b":true,"c":null,"d":null,"e":null}`},
		{"a: 2026-01-01\nb: \"1\"\nc: !!str 1\n", `{"a":"2026-01-01","b":"1","c":"1"}`},
		{"a: |\n  x\n  y\nb: >\n  x\n  y\n", `{"a":"x\ny\n","b":"x y\n"}`},
		{"a: &x [1, {b: 2}]\nc: *x\n", `{"a":[1,{"b":2}],"c":[1,{"b":2}]}`},
		{"a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", `{"a":{"b":1,"c":2},"d":{"c":3,"b":1}}`},
		{"1: a\ntrue: b\n", `{"1":"a","true":"b"}`},
		{"", ""},
	} {
		if got, err := JSON([]byte(test.yaml)); err != nil || string(got) != test.want {
			t.Errorf("%q: %s, %v; want %s", test.yaml, got, err, test.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, test := range []struct{ yaml, want string }{
		{"a: 1\nb: 2\na: 3\n", `line 3: the key "a" is there twice`},
		{"a: *x\n", `line 1: there is no anchor "x"`},
		{"a: 1\n---\nb: 2\n", "second document"},
		{"? [1]\n: 2\n", "line 2"},
		{"a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested more than 128 deep"},
	} {
		if got, err := JSON([]byte(test.yaml)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.40q: %s, %v; want %q", test.yaml, got, err, test.want)
		}
	}
}

// FuzzJSON: whatever the text is, it is refused, or becomes JSON within the bounds.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		"a: &x [1]\nb: *x\n", "a: {<<: {b: 1}}", "- !!str 1\n- |\n x\n",
		"? a\n: b", "a: .inf\nb: 0o7\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := JSON(text)
		if err != nil || len(out) == 0 {
			return
		}
		if at, fault := scan.Text(out, 2*MaxNesting); fault != scan.OK {
			t.Errorf("%q becomes %q: %s at byte %d", text, out, fault, at)
		}
	})
}
