package jsonc

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

func TestSet(t *testing.T) {
	value := []byte("{\n  \"url\": \"u\"\n}")
	for _, test := range []struct{ text, want string }{
		{"", "{\n  \"mcpServers\": {\n    \"new\": {\n      \"url\": \"u\"\n    }\n  }\n}\n"},
		{"{}\n", "{\n  \"mcpServers\": {\n    \"new\": {\n      \"url\": \"u\"\n    }\n  }\n}\n"},
		{
			"{\n\t\"a\": 1\n}\n",
			"{\n\t\"a\": 1,\n\t\"mcpServers\": {\n\t  \"new\": {\n\t    \"url\": \"u\"\n\t  }\n\t}\n}\n",
		},
		{
			"{\n  \"mcpServers\": {\n    \"a\": {} // last\n    // end\n  }\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {}, // last\n    // end\n    \"new\": {\n" +
				"      \"url\": \"u\"\n    }\n  }\n}\n",
		},
		{
			"{\n  \"mcpServers\": {\n    \"a\": {}, // last, really\n  },\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {}, // last, really\n    \"new\": {\n" +
				"      \"url\": \"u\"\n    },\n  },\n}\n",
		},
		{
			"{\"mcpServers\": {\"a\": {} /* , */ }}",
			"{\"mcpServers\": {\"a\": {}, /* , */\n    \"new\": {\n      \"url\": \"u\"\n    }\n  }}",
		},
		{
			"{\r\n  \"mcpServers\": {}\r\n}\r\n",
			"{\r\n  \"mcpServers\": {\r\n    \"new\": {\r\n      \"url\": \"u\"\r\n    }\r\n  }\r\n}\r\n",
		},
	} {
		got, err := Set([]byte(test.text), []string{"mcpServers"}, "new", value, false)
		if err != nil || string(got) != test.want {
			t.Errorf("%q:\n%s\n%v, want\n%s", test.text, got, err, test.want)
		}
		if _, err := Set(got, []string{"mcpServers"}, "new", value, false); !errors.Is(err, ErrExists) {
			t.Errorf("%q again: %v", test.text, err)
		}
		again, err := Set(got, []string{"mcpServers"}, "new", value, true)
		if err != nil || string(again) != string(got) {
			t.Errorf("%q replaced:\n%s\n%v", test.text, again, err)
		}
	}
	for text, want := range map[string]string{
		"{\n\"a\": \n}": "line 3 is not JSON", `[]`: "the file is no object",
		`{"mcpServers": []}`: "mcpServers is no object", `{"mcpServers": {"x": 1}`: "line 1",
	} {
		if _, err := Set([]byte(text), []string{"mcpServers"}, "new", value, false); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Objects that are missing are made in the order of the path.
func TestSetPath(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                         `{"a":{"b":{"c":{"k":1}}}}`,
		`{"a":{"b":{"x":2}}}`:        `{"a":{"b":{"x":2,"c":{"k":1}}}}`,
		`{"a":{"b":{"c":{"k":0}}}}`:  `{"a":{"b":{"c":{"k":1}}}}`,
		`{"a":{}, /* x */ "b": [1]}`: `{"a":{"b":{"c":{"k":1}}}, /* x */ "b": [1]}`,
	} {
		got, err := Set([]byte(text), []string{"a", "b", "c"}, "k", []byte("1"), true)
		var is, wanted any
		if err != nil || json.Unmarshal(Plain(got), &is) != nil ||
			json.Unmarshal(Plain([]byte(want)), &wanted) != nil || !reflect.DeepEqual(is, wanted) {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// Whatever the text is, a member that was set is there, and all else is as it was.
func FuzzSet(f *testing.F) {
	for _, text := range []string{
		"{}", "{\"a\": {\"b\": 1,},}",
		"// c\n{\"a\": /* , */ {\"b\": [1, 2,] // x\n}}", "{\"a\":1}", "{\"k\": {\"new\": 2}}",
	} {
		f.Add([]byte(text), "a", "new")
	}
	f.Fuzz(func(t *testing.T, text []byte, path, key string) {
		got, err := Set(text, []string{path}, key, []byte(`{"url":"u"}`), true)
		if err != nil || !utf8.ValidString(path) || !utf8.ValidString(key) {
			return
		}
		var was, is map[string]any
		plain := Plain(text)
		if len(strings.TrimSpace(string(plain))) == 0 {
			plain = []byte("{}")
		}
		if json.Unmarshal(plain, &was) != nil {
			return // two members of one name, maybe
		}
		if err := json.Unmarshal(Plain(got), &is); err != nil {
			t.Fatalf("%s\nbecame\n%s\n%v", text, got, err)
		}
		inner, _ := is[path].(map[string]any)
		if _, there := inner[key]; !there {
			e := editor{text: plain, plain: plain}
			names := map[string]bool{}
			for _, m := range e.object(scan.Space(plain, 0)).members {
				if names[m.key] {
					return // two of one name: encoding/json sees the last one
				}
				names[m.key] = true
			}
			t.Fatalf("%s\nbecame\n%s", text, got)
		}
		delete(inner, key)
		if old, ok := was[path].(map[string]any); ok {
			delete(old, key)
		} else {
			delete(is, path)
		}
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s\nbecame\n%s", text, got)
		}
	})
}
