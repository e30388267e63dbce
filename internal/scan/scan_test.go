package scan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// reference validates byte by byte, with recursion and without tricks. It
// returns the end of the value at the start of b, or -1.
func reference(b []byte, depth int) int {
	space := func(i int) int {
		for i < len(b) && strings.IndexByte(" \t\r\n", b[i]) >= 0 {
			i++
		}
		return i
	}
	is := func(i int, set string) bool { return i < len(b) && strings.IndexByte(set, b[i]) >= 0 }
	digits := func(i int) int {
		start := i
		for is(i, "0123456789") {
			i++
		}
		if i == start {
			return -1
		}
		return i
	}
	str := func(i int) int {
		start := i
		for i++; i < len(b); i++ {
			switch c := b[i]; {
			case c == '"':
				if !utf8.Valid(b[start:i]) {
					return -1
				}
				return i + 1
			case c < ' ':
				return -1
			case c == '\\':
				i++
				if is(i, "u") {
					for range 4 {
						if i++; !is(i, "0123456789abcdefABCDEF") {
							return -1
						}
					}
				} else if !is(i, `"\/bfnrt`) {
					return -1
				}
			}
		}
		return -1
	}
	num := func(i int) int {
		if is(i, "-") {
			i++
		}
		if is(i, "0") {
			i++
		} else if i = digits(i); i < 0 {
			return -1
		}
		if is(i, ".") {
			if i = digits(i + 1); i < 0 {
				return -1
			}
		}
		if is(i, "eE") {
			if i++; is(i, "+-") {
				i++
			}
			return digits(i)
		}
		return i
	}
	var value func(i, depth int) int
	value = func(i, depth int) int {
		if i >= len(b) {
			return -1
		}
		object := b[i] == '{'
		if !object && b[i] != '[' {
			for _, word := range []string{"true", "false", "null"} {
				if bytes.HasPrefix(b[i:], []byte(word)) {
					return i + len(word)
				}
			}
			if b[i] == '"' {
				return str(i)
			}
			return num(i)
		}
		if depth == 0 {
			return -1
		}
		if i = space(i + 1); is(i, map[bool]string{true: "}", false: "]"}[object]) {
			return i + 1
		}
		for {
			if object {
				if !is(i, `"`) {
					return -1
				}
				if i = str(i); i < 0 {
					return -1
				}
				if i = space(i); !is(i, ":") {
					return -1
				}
				i = space(i + 1)
			}
			if i = value(i, depth-1); i < 0 {
				return -1
			}
			i = space(i)
			switch {
			case is(i, ","):
				i = space(i + 1)
			case object && is(i, "}"), !object && is(i, "]"):
				return i + 1
			default:
				return -1
			}
		}
	}
	return value(0, depth)
}

// texts with their faults; ^ stands before the byte at which it is found.
var faultCases = []struct {
	text string
	want Fault
}{
	{`^`, End},
	{`  ^`, End},
	{`tru^`, End},
	{`[1,^`, End},
	{`{"a"^`, End},
	{`{"a":^`, End},
	{`{"a":1^`, End},
	{`{^`, End},
	{`[^`, End},
	{`"abc^`, End},
	{`"abcdefghijklmnopqrstuvwxyz^`, End},
	{`"a\^`, End},
	{`"a\u12^`, End},
	{`-^`, End},
	{`1.^`, End},
	{`1e+^`, End},
	{`^x`, NoValue},
	{`^trux`, NoValue},
	{`[1,^]`, NoValue},
	{`[^,1]`, NoValue},
	{`{"a":^}`, NoValue},
	{`^+1`, NoValue},
	{`^.5`, NoValue},
	{`^'a'`, NoValue},
	{"^\v1", NoValue},
	{"^\u00a01", NoValue},
	{`{^1:2}`, NoKey},
	{`{"a":1,^}`, NoKey},
	{`{^a:1}`, NoKey},
	{`{"a" ^1}`, NoColon},
	{`{"a"^,1}`, NoColon},
	{`[1 ^2]`, NoComma},
	{`[1^}`, NoComma},
	{`{"a":1^]`, NoComma},
	{`[0^1]`, NoComma},
	{`[-0^1]`, NoComma},
	{`[1^-]`, NoComma},
	{`-^x`, BadNumber},
	{`1.^e5`, BadNumber},
	{`1e^x`, BadNumber},
	{`[-^.5]`, BadNumber},
	{`"a^\x"`, BadEscape},
	{`"a^\u12g4"`, BadEscape},
	{`"a^\U0041"`, BadEscape},
	{"\"a^\x00\"", Control},
	{"\"a^\n\"", Control},
	{"\"abcdefghijklmnopqrstuvw^\x1f\"", Control},
	{"\"é^\x01\"", Control},
	{"\"a^\xff\"", BadUTF8},
	{"\"é^\xc3\"", BadUTF8},
	{"\"^\xc0\xaf\"", BadUTF8},
	{"\"^\xed\xa0\x80\"", BadUTF8},
	{"\"^\xf4\x90\x80\x80\"", BadUTF8},
	{"{\"a^\x80\":1}", BadUTF8},
	{`1 ^2`, Trailing},
	{`{}^}`, Trailing},
	{`"a"^"b"`, Trailing},
	{`0^1`, Trailing},
	{"1^\x00", Trailing},
	{"^\uFEFF1", Mark},
	{`[[[[^[]]]]]`, TooDeep},
	{`[{"a":[{"b":^{}}]}]`, TooDeep},
}

func TestFaults(t *testing.T) {
	for _, test := range faultCases {
		at := strings.IndexByte(test.text, '^')
		text := test.text[:at] + test.text[at+1:]
		if i, f := Text([]byte(text), 4); f != test.want || i != at {
			t.Errorf("%q: %v at %d, want %v at %d", text, f, i, test.want, at)
		}
	}
	for f := range Fault(len(texts)) {
		if f.String() == "" {
			t.Errorf("fault %d has no text", f)
		}
	}
}

var validTexts = []string{
	`null`, `true`, `false`, `0`, `-0`, `1`, `-1`, `10`, `1.5`, `0.0`, `1e5`, `1E+5`, `1.25e-400`,
	`0e0`, `9007199254740993`,
	`""`, `"a"`, `"\""`, `"\\"`, `"\/\b\f\n\r\t"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`,
	`"\uD83D\uDE00"`, `"😀"`, "\"\u007f\u0080\uffff\U0010ffff\"",
	`[]`, `{}`, ` [ ] `, "\t{\r\n} ", `[1,2,3]`, `[ 1 , [ ] , { } , "a" ]`, `{"a":1}`,
	`{ "a" : 1 , "b" : [ null ] }`, `{"":""}`, `{"a":1,"a":2}`,
	`{"name":"add","arguments":{"a":2,"b":3}}`, `[[[[]]]]`,
	`["0123456789abcdef","0123456789abcde","0123456789abcdefg"]`,
}

func TestValid(t *testing.T) {
	for _, text := range validTexts {
		if i, f := Text([]byte(text), 4); f != OK || i != len(text) {
			t.Errorf("%s: %v at %d", text, f, i)
		}
		// Value does not look at what follows a value.
		trimmed := strings.TrimSpace(text)
		if i, f := Value([]byte("[["+trimmed+" ]"), 2, 4); f != OK || i != 2+len(trimmed) {
			t.Errorf("%s: Value: %v at %d", text, f, i)
		}
	}
}

func TestDepth(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 130, 511, 512, 513, 1000} {
		var text []byte
		for i := range n { // a pattern with a period that is no divisor of 64
			text = append(text, []string{"[", `{"a":`, "[1,"}[i%3]...)
		}
		text = append(text, '0')
		for i := range n {
			text = append(text, "]}]"[(n-1-i)%3])
		}
		if i, f := Text(text, n); f != OK {
			t.Errorf("depth %d: %v at %d", n, f, i)
		}
		if _, f := Text(text, -1); f != OK {
			t.Errorf("depth %d without limit: %v", n, f)
		}
		if _, f := Text(text, n-1); f != TooDeep {
			t.Errorf("depth %d, limit %d: %v", n, n-1, f)
		}
		wrong := bytes.Clone(text)
		wrong[len(wrong)-1] ^= ']' ^ '}'
		if i, f := Text(wrong, n); f != NoComma || i != len(wrong)-1 {
			t.Errorf("depth %d, wrong bracket: %v at %d", n, f, i)
		}
	}
	// No depth is a danger to the stack.
	if _, f := Text(bytes.Repeat([]byte("["), 10<<20), -1); f != End {
		t.Error(f)
	}
}

func TestAllocations(t *testing.T) {
	text := []byte(
		`{"name":"add","arguments":{"a":[1,2.5e3,true,null],"b":"a longer text with ümlauts and ` +
			`\n escapes"}}`)
	array := []byte(`[1,[2],"x"]`)
	var sink int
	for name, f := range map[string]func(){
		"Text": func() { _, _ = Text(text, 64) },
		"Members": func() {
			for k, v := range Members(text) {
				sink += len(k) + len(v)
			}
		},
		"Elements": func() {
			for v := range Elements(array) {
				sink += len(v)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, test := range faultCases {
		f.Add([]byte(strings.Replace(test.text, "^", "", 1)))
	}
	for _, text := range validTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, depth := range []int{0, 1, 3, 64} {
			want := reference(b, depth)
			got, fault := Value(b, 0, depth)
			if (fault == OK) != (want >= 0) || fault == OK && got != want {
				t.Fatalf("%q, depth %d: %d %v, want %d", b, depth, got, fault, want)
			}
			if got < 0 || got > len(b) {
				t.Fatalf("%q: offset %d", b, got)
			}
			if skipped := Skip(b, 0); skipped > len(b) || fault == OK && got == len(b) && skipped != got {
				t.Fatalf("%q: skipped up to %d, want %d", b, skipped, got)
			}
		}
		_, fault := Text(b, -1)
		if len(b) < 5000 && (fault == OK) != (json.Valid(b) && utf8.Valid(b)) {
			t.Fatalf("%q: %v, but encoding/json says %v", b, fault, json.Valid(b))
		}
		parts(t, b, fault == OK)
	})
}

// parts checks that Members and Elements find what encoding/json finds, and that
// they survive anything.
func parts(t *testing.T, b []byte, valid bool) {
	t.Helper()
	var out []byte
	for key, value := range Members(b) {
		out = append(AppendQuoted(append(out, ','), key), ':')
		out = append(out, value...)
	}
	for value := range Elements(b) {
		out = append(append(out, ','), value...)
	}
	if !valid {
		return
	}
	switch first := b[Space(b, 0)]; first {
	case '{', '[':
		text := append([]byte{first}, bytes.TrimPrefix(out, []byte(","))...)
		same(t, b, append(text, first+2))
	case '"':
		raw := bytes.TrimSpace(b)
		var want string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if got := Unquote(raw); string(got) != want {
			t.Fatalf("%s: unquoted %q, want %q", raw, got, want)
		}
		same(t, raw, AppendQuoted(nil, want))
	}
}

// same compares two texts as encoding/json reads them, numbers as written.
func same(t *testing.T, a, b []byte) {
	t.Helper()
	var text [2]string
	for i, raw := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		text[i] = fmt.Sprintf("%#v", v)
	}
	if text[0] != text[1] {
		t.Fatalf("%s\nis not\n%s", a, b)
	}
}

func TestMembers(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{}`, ``},
		{` { } `, ``},
		{`[1]`, ``},
		{`7`, ``},
		{``, ``},
		{`{"a":1,"b":{"c":[2,3]} , "" : "x"}`, `a=1;b={"c":[2,3]};="x";`},
		{`{"\u0061\n":null}`, "a\n=null;"},
		{`{"a":1,"a":2}`, `a=1;a=2;`},
		{`{"stop":1,"b":2}`, `stop=1;`},
		{`{"a":1,"b":}`, `a=1;`},
		{`{"a":1,b:2}`, `a=1;`},
		{`{"a":1,"b`, `a=1;`},
		{`{"a":1 "b":2}`, `a=1;`},
		{`{"a" 1}`, ``},
	} {
		var got strings.Builder
		for key, value := range Members([]byte(test.text)) {
			fmt.Fprintf(&got, "%s=%s;", key, value)
			if cap(value) != len(value) {
				t.Errorf("%s: appending to %s would overwrite what follows", test.text, value)
			}
			if string(key) == "stop" {
				break
			}
		}
		if got.String() != test.want {
			t.Errorf("%s: %s, want %s", test.text, got.String(), test.want)
		}
	}
}

func TestElements(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`[]`, ``},
		{` [ ] `, ``},
		{`{"a":1}`, ``},
		{``, ``},
		{`[1, [2,3] ,"x",{}]`, `1;[2,3];"x";{};`},
		{`[1,"stop",2]`, `1;"stop";`},
		{`[1,]`, `1;`},
		{`[1 2]`, `1;`},
	} {
		var got strings.Builder
		for value := range Elements([]byte(test.text)) {
			got.WriteString(string(value) + ";")
			if string(value) == `"stop"` {
				break
			}
		}
		if got.String() != test.want {
			t.Errorf("%s: %s, want %s", test.text, got.String(), test.want)
		}
	}
}

func BenchmarkText(b *testing.B) {
	var records []byte
	for i := range 1000 {
		records = fmt.Appendf(records,
			`,{"id":%d,"name":"record %d","tags":["alpha","beta"],"ratio":%g,"ok":true,"text":"a line of `+
				`some length\n"}`, i, i, float64(i)/7)
	}
	records = append(append([]byte("["), records[1:]...), ']')
	for _, bench := range []struct {
		name string
		text []byte
	}{
		{
			"small",
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3}}}`),
		},
		{"records", records},
		{"ascii 10 MB", []byte(`"` + strings.Repeat("abcdefgh", 10<<17) + `"`)},
		{"chinese 10 MB", []byte(`"` + strings.Repeat("中文 JSON ", 10<<16) + `"`)},
		{"escapes 10 MB", []byte(`"` + strings.Repeat(`abcdef\n`, 10<<17) + `"`)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, f := Text(bench.text, 512); f != OK {
					b.Fatal(f)
				}
			}
		})
		b.Run("skip "+bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.text)))
			for b.Loop() {
				if Skip(bench.text, 0) != len(bench.text) {
					b.Fatal("not at the end")
				}
			}
		})
	}
}

// The beginning of an object has the members of the whole, in order, and the last of them without
// its value.
func FuzzBeginning(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":12,"result":["x",{}]}`), uint(20))
	f.Add([]byte(`{"a":1,"a\u0062":tru`), uint(11))
	f.Add([]byte(` { "a" : "b\"" , "c":null}`), uint(30))
	f.Add([]byte(`{"a":1}{"b":2}`), uint(14))
	f.Add([]byte(`{,"a":1`), uint(7))
	f.Fuzz(func(t *testing.T, b []byte, cut uint) {
		part := b[:min(cut, uint(len(b)))]
		var keys, values []string
		for key, value := range Members(b) {
			keys, values = append(keys, string(key)), append(values, string(value))
		}
		i, ended := 0, false
		for key, value := range Beginning(part) {
			switch {
			case ended:
				t.Fatalf("%q has the member %q after the one it ends in", part, key)
			case value == nil:
				ended = true
				continue
			case i >= len(keys) || keys[i] != string(key) || values[i] != string(value):
				t.Fatalf("%q, part of %q: the member %d is %q with %q, not of %q", part, b, i, key, value, keys)
			}
			i++
		}
		if whole := i == len(keys); Space(b, 0) < len(b) && len(part) == len(b) && !ended && !whole {
			t.Fatalf("%q: %d of %d members", b, i, len(keys))
		}
	})
}
