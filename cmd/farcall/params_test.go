package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseParams(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(file, []byte(" {\"a\": 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{`{"a": 1.0}`}, `{"a": 1.0}`},
		{[]string{`[]`}, `[]`},
		{[]string{"a=2", "b=3"}, `{"a":2,"b":3}`},
		{
			[]string{"name=Ada", "ok=true", "none=null", "list=[1]", `text="5"`, "empty="},
			`{"name":"Ada","ok":true,"none":null,"list":[1],"text":"5","empty":""}`,
		},
		{[]string{"a:=1e400", "b:={}"}, `{"a":1e400,"b":{}}`},
		{[]string{"q=a=b", "u=http://x?y=1"}, `{"q":"a=b","u":"http://x?y=1"}`},
		{[]string{"a=line\nbreak"}, `{"a":"line\nbreak"}`},
		{[]string{"2", "3"}, `[2,3]`},
		{[]string{"hello"}, `["hello"]`},
		{[]string{"5"}, `[5]`},
		{[]string{"http://x?y=1"}, `["http://x?y=1"]`},
		{[]string{"1", "[2]", "{}"}, `[1,[2],{}]`},
		{[]string{"-"}, `[7]`},
		{[]string{"@" + file}, `{"a": 1}`},
	} {
		got, err := parseParams(c.args, strings.NewReader("[7]\n"))
		if err != nil || string(got) != c.want {
			t.Errorf("parseParams(%q) = %s, %v, want %s", c.args, got, err, c.want)
		}
	}
}

func TestParseParamsErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{`{"a":}`, "not JSON"},
		{`{a:1}`, "not JSON"},
		{``, "not JSON"},
		{"a=1|2", "all name=value or none"},
		{"1|a=2", "all name=value or none"},
		{"a=1|a=2", "given twice"},
		{"a:=b", "not JSON"},
		{"@/no/such/file", "no such file"},
		{"-", "must be an object or an array"},
	} {
		_, err := parseParams(strings.Split(c.args, "|"), strings.NewReader("5"))
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("parseParams(%q): %v, want %q", c.args, err, c.want)
		}
	}
}
