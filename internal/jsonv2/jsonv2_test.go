package jsonv2_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type inner struct {
	C []string `json:"c"`
}

type outer struct {
	A    float64 `json:"a"`
	B    int8    `json:"b,omitzero"`
	In   *inner  `json:"in,omitzero"`
	Skip string  `json:"-"`
}

func TestAppend(t *testing.T) {
	for _, test := range []struct {
		in   any
		want string
	}{
		{nil, "null"},
		{true, "true"},
		{"a<&>\u2028\"\n", `"a<&>` + "\u2028" + `\"\n"`},
		{"\xff", "\"\ufffd\""},
		{1e21, "1e+21"},
		{0.1, "0.1"},
		{math.Copysign(0, -1), "-0"},
		{int64(math.MaxInt64), "9223372036854775807"},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{map[string]int{"b": 1, "a": 2}, `{"a":2,"b":1}`},
		{[]int(nil), "[]"},
		{map[string]int(nil), "{}"},
		{[]byte("hi"), `"aGk="`},
		{outer{A: 1, Skip: "x"}, `{"a":1}`},
		{&outer{In: &inner{}}, `{"a":0,"in":{"c":[]}}`},
		{[]string{"\xff<"}, "[\"\ufffd<\"]"},
		{time.Duration(1500), "1500"},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), `"2026-01-02T03:04:05Z"`},
		{struct{ T time.Duration }{2}, `{"T":2}`},
		// What another wrote keeps its digits and escapes.
		{
			[]any{json.RawMessage(`[1.0,1e400,"a\u0041",{"x":1,"x":2}]`)},
			`[[1.0,1e400,"a\u0041",{"x":1,"x":2}]]`,
		},
		{[]jsonrpc.Raw{jsonrpc.Raw(`9007199254740993`), nil}, `[9007199254740993,null]`},
	} {
		got, err := jsonv2.Append([]byte("x"), test.in)
		if err != nil || string(got) != "x"+test.want {
			t.Errorf("%v: got %s, %v; want x%s", test.in, got, err, test.want)
		}
	}
}

func TestAppendFails(t *testing.T) {
	for _, v := range []any{math.NaN(), math.Inf(1), make(chan int), func() {}, []any{1, math.NaN()}} {
		got, err := jsonv2.Append([]byte("x"), v)
		if err == nil || string(got) != "x" {
			t.Errorf("%T: got %s, %v; want an error and dst as it was", v, got, err)
		}
	}
}

func TestAppendGrows(t *testing.T) {
	long := make([]string, 10_000)
	got, err := jsonv2.Append(make([]byte, 3, 8), long)
	if want := 3 + 2 + len(long)*3 - 1; err != nil || len(got) != want {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, want)
	}
}

func TestUnmarshal(t *testing.T) {
	const plain, strict, quoted = 0, 1, 2
	how := []func([]byte, any) error{jsonv2.Unmarshal, jsonv2.UnmarshalStrict, jsonv2.UnmarshalQuoted}
	for _, test := range []struct {
		how  int
		in   string
		want jsonv2.Problem // the zero Problem: it fits
	}{
		{plain, `{"a":1.5,"x":2}`, jsonv2.Problem{}},
		{strict, `{"a":1.5,"in":{"c":[]}}`, jsonv2.Problem{}},
		{quoted, `{"a":"1.5"}`, jsonv2.Problem{}},
		{strict, `{"a":1,"x":2}`, jsonv2.Problem{Pointer: "/x", Reason: "unknown"}},
		{strict, `{"A":1}`, jsonv2.Problem{Pointer: "/A", Reason: "unknown"}},
		{strict, `{"in":{"x/y":2}}`, jsonv2.Problem{Pointer: "/in/x~1y", Reason: "unknown"}},
		{plain, `{"a":1,"a":2}`, jsonv2.Problem{Pointer: "/a", Reason: "duplicate"}},
		{plain, `{"a":1,"\u0061":2}`, jsonv2.Problem{Pointer: "/a", Reason: "duplicate"}},
		{plain, `{"a":"1"}`, jsonv2.Problem{Pointer: "/a", Got: "string"}},
		{plain, `{"b":300}`, jsonv2.Problem{Pointer: "/b", Reason: "out of range", Got: "number"}},
		{plain, `{"b":1.5}`, jsonv2.Problem{Pointer: "/b", Got: "number"}},
		{plain, `{"in":{"c":["x",{}]}}`, jsonv2.Problem{Pointer: "/in/c/1", Got: "object"}},
		{plain, `[]`, jsonv2.Problem{Got: "array"}},
	} {
		var v outer
		err := how[test.how]([]byte(test.in), &v)
		got := jsonv2.Explain(err)
		if (err == nil) != (test.want == jsonv2.Problem{}) {
			t.Errorf("%s: got %v", test.in, err)
		}
		if got.Want = nil; got.Reason == "unknown" || got.Reason == "duplicate" {
			got.Got = ""
		}
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v (%v)", test.in, got, test.want, err)
		}
	}
	if got := jsonv2.Explain(errors.New("x")); got != (jsonv2.Problem{}) {
		t.Errorf("got %+v for a foreign error", got)
	}
}

func TestUnmarshalCopies(t *testing.T) {
	in := []byte(`{"R":[1.0],"S":"abc"}`)
	var v struct {
		R jsonrpc.Raw
		S string
	}
	if err := jsonv2.Unmarshal(in, &v); err != nil {
		t.Fatal(err)
	}
	clear(in)
	if string(v.R) != "[1.0]" || v.S != "abc" {
		t.Errorf("got %s, %s", v.R, v.S)
	}
}

func TestFirst(t *testing.T) {
	for _, test := range [][3]string{
		{"", "", ""},
		{"/a", "a", ""},
		{"/a/b/0", "a", "/b/0"},
		{"/x~1y~01/z", "x/y~1", "/z"},
	} {
		if name, rest := jsonv2.First(test[0]); name != test[1] || rest != test[2] {
			t.Errorf("%q: got %q, %q", test[0], name, rest)
		}
	}
}

// Whatever the bytes are, both forms agree on what is JSON, and what was read
// can be written.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{
		`null`, `{"a":1}`, `[1,"x",{"b":[]}]`, `{"a":1,"a":2}`, `"\ud800"`,
		`1e400`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var v any
		err := jsonv2.Unmarshal(in, &v)
		if err != nil {
			jsonv2.Explain(err)
			return
		}
		if jsonrpc.Valid(in) != nil {
			t.Errorf("read %q, which is no JSON", in)
		}
		out, err := jsonv2.Append(nil, v)
		if err != nil || jsonrpc.Valid(out) != nil {
			t.Errorf("read %q, wrote %q, %v", in, out, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	v := &outer{A: 1.5, B: 2, In: &inner{C: []string{strings.Repeat("x", 20)}}}
	dst := make([]byte, 0, 256)
	for b.Loop() {
		if _, err := jsonv2.Append(dst, v); err != nil {
			b.Fatal(err)
		}
	}
}

func TestKindOf(t *testing.T) {
	for value, want := range map[string]string{
		"{}": "object", "[]": "array", `""`: "string", "true": "boolean", "false": "boolean",
		"null": "null", "-1": "number", " 0": "number",
	} {
		if got := jsonv2.KindOf([]byte(value)); got != want {
			t.Errorf("%s: %s", value, got)
		}
	}
}
