package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestMCPTarget(t *testing.T) {
	for text, want := range map[string]string{
		"localhost:1":            "http://localhost:1/mcp",
		":1":                     "http://localhost:1/mcp",
		"localhost:1/":           "http://localhost:1/",
		"http://a":               "http://a/mcp",
		"https://a?x=1":          "https://a/mcp?x=1",
		"http://a/rpc":           "http://a/rpc",
		"ws://a":                 "ws://a/mcp",
		"wss://a/socket":         "wss://a/socket",
		"tcp://a:1":              "tcp://a:1",
		"unix:/run/x":            "unix:/run/x",
		"tcp://a:1?framing=line": "tcp://a:1",
	} {
		if got, err := forMCP(readTarget(text)); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	if _, err := forMCP(readTarget("unix:/x?framing=header")); err == nil {
		t.Error("Content-Length headers were accepted")
	}
}

func TestTypedArguments(t *testing.T) {
	const schema = `{"properties":{
		"s":{"type":"string"},"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"},
		"sn":{"type":["string","number"]},"e":{"enum":["a",1]},"c":{"const":true},"r":{"$ref":"#/$defs/a~1b"},
		"any":{"anyOf":[{"type":"integer"},{}]},"loop":{"$ref":"#/properties/loop"},"far":{"$ref":"https://example.com/x"}
	},"$defs":{"a/b":{"oneOf":[{"type":"array"},{"type":"null"}]}}}`
	tests := []struct{ word, want, complaint string }{
		{"s=5", `{"s":"5"}`, ""},
		{"s=", `{"s":""}`, ""},
		{"n=5", `{"n":5}`, ""},
		{"n=x", "", "of type number, and x is not"},
		{"i=5", `{"i":5}`, ""},
		{"b=true", `{"b":true}`, ""},
		{"b=1", "", "For example b=true"},
		{"sn=5", `{"sn":5}`, ""},
		{"sn=x", `{"sn":"x"}`, ""},
		{"e=1", `{"e":1}`, ""},
		{"e=a", `{"e":"a"}`, ""},
		{"c=x", "", "of type boolean"},
		{"r=null", `{"r":null}`, ""},
		{"r=[1]", `{"r":[1]}`, ""},
		{"r=1", "", "of type array or null"},
		{"any=x", `{"any":"x"}`, ""},
		{"loop=1", `{"loop":1}`, ""},
		{"far=x", `{"far":"x"}`, ""},
		{"new=1", `{"new":1}`, ""},
		{"n:=\"x\"", `{"n":"x"}`, ""},
	}
	for _, test := range tests {
		got, err := typedArguments([]string{test.word}, jsonrpc.Raw(schema))
		if test.complaint != "" {
			var text string
			if e := (*exitError)(nil); errors.As(err, &e) {
				text = e.Error() + "\n" + e.hint
			}
			if !strings.Contains(text, test.complaint) {
				t.Errorf("%s: %q, want %q", test.word, text, test.complaint)
			}
			continue
		}
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.word, got, err, test.want)
		}
	}
}

func TestNearestTool(t *testing.T) {
	names := []string{"math_add", "echo"}
	for name, want := range map[string]string{
		"math_sub": `Did you mean "math_add"?`, "ECHO": `Did you mean "echo"?`,
		"somethingelse": "Its tools are: math_add, echo.",
	} {
		if got := nearestTool(name, names); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := nearestTool("x", nil); got != "The server has no tools." {
		t.Error(got)
	}
}

func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, `{"a":{"b":[1,{"c":2}]},"d":"}"}`, `[]`, `[{"a":1}]`,
		`"a"`, `{"a\u0041": "x,:" , "b":[]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want map[string]jsonrpc.Raw
		if jsonrpc.Valid(raw) != nil {
			for range members(raw) { // whatever it is, it ends
			}
			return
		}
		if jsonv2.Unmarshal(raw, &want) != nil {
			return // names that come twice, or no object
		}
		got := maps.Collect(members(raw))
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Fatalf("%s: members %q, want %q", raw, got, want)
		}
		for name := range want {
			if string(got[name]) != string(compact(want[name])) {
				t.Errorf("%s: %q is %s, want %s", raw, name, got[name], want[name])
			}
		}
	})
}
