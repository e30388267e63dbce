package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestPrintJSON(t *testing.T) {
	const raw = ` { "a" : [ 1.0 , -2e3, true ] , "b":{}, "c":[],"d":"x\"y\u0041", "e":null }`
	for _, c := range []struct {
		name string
		env  env
		want string
	}{
		{"for a program", env{}, `{"a":[1.0,-2e3,true],"b":{},"c":[],"d":"x\"y\u0041","e":null}` + "\n"},
		{
			"for people",
			env{isTTY: true, getenv: func(string) string {
				return "1"
			}},
			"{\n  \"a\": [\n    1.0,\n    -2e3,\n    true\n  ],\n  \"b\": {},\n  \"c\": [],\n" +
				"  \"d\": \"x\\\"y\\u0041\",\n  \"e\": null\n}\n",
		},
	} {
		var out bytes.Buffer
		c.env.stdout = &out
		if err := c.env.printJSON(jsonrpc.Raw(raw)); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, out.String(), err, c.want)
		}
	}
}

func TestColours(t *testing.T) {
	var out bytes.Buffer
	e := env{stdout: &out, isTTY: true, getenv: func(string) string { return "" }}
	if err := e.printJSON(jsonrpc.Raw(`{"a":["s",1,null]}`)); err != nil {
		t.Fatal(err)
	}
	want := "{\n  " + colourName + `"a"` + colourReset + ": [\n    " + colourString + `"s"` +
		colourReset + ",\n    " +
		colourNumber + "1" + colourReset + ",\n    " + colourLiteral + "null" + colourReset + "\n  ]\n}\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	e.getenv = func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }
	if e.colours() {
		t.Error("NO_COLOR is not respected")
	}
}

// What a server sends must not be obeyed by the terminal.
func TestControlCharactersAreTamed(t *testing.T) {
	var out bytes.Buffer
	e := env{stdout: &out, isTTY: true, getenv: func(string) string { return "" }}
	if err := e.printJSON(jsonrpc.Raw("[\"\u009b31m \u202e\x7f\"]")); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, `\u009b31m \u202e\u007f`) {
		t.Errorf("%q", s)
	}
	if got := tame("a\x1b[31mb\xff\nc\u009b"); got != "a\\u001b[31mb\\xff\nc\\u009b" {
		t.Errorf("%q", got)
	}
}

func FuzzPretty(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,{"b":"\\\""}],"":{}}`, `"x"`, `-1.5e3`, `[[],[[]]]`, ` null `,
		"[\"\u009b\"]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if jsonrpc.Valid([]byte(s)) != nil {
			return
		}
		var want, got any
		if json.Unmarshal([]byte(s), &want) != nil {
			return // numbers that encoding/json cannot hold
		}
		for _, b := range [][]byte{pretty(jsonrpc.Raw(s), false), compact(jsonrpc.Raw(s))} {
			if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q became %q: %v", s, b, err)
			}
		}
	})
}

func TestShellQuote(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh to ask")
	}
	for _, word := range []string{
		"", "plain", "a b", "it's", `{"a":"$HOME \\ ` + "`x`" + `"}`, "a\nb",
		"*", "~", "-n", "é", "!x", "a;b", "=x",
	} {
		out, err := exec.CommandContext(t.Context(), sh, "-c", "printf %s "+shellQuote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("shellQuote(%q) = %s, which the shell reads as %q (%v)", word, shellQuote(word),
				out, err)
		}
	}
}

func TestShellLine(t *testing.T) {
	const message = `'{"jsonrpc":"2.0","method":"m","params":{"a":"it'\''s"},"id":1}'`
	for _, c := range []struct {
		target string
		remote remote
		want   string
	}{
		{
			"http://h",
			remote{timeout: defaultTimeout},
			`curl -sS -H 'Content-Type: application/json' --data-binary ` + message + ` http://h/rpc`,
		},
		{
			"https://h/x?y",
			remote{timeout: 1.5e9, insecure: true, header: []string{"A: b c"}},
			`curl -sS -k --max-time 1.5 -H 'Content-Type: application/json' -H 'A: b c' --data-binary ` +
				message + ` 'https://h/x?y'`,
		},
		{"ws://h", remote{}, `printf '%s\n' ` + message + ` | websocat -n1 ws://h/rpc/ws`},
		{"tcp://h:1", remote{}, `printf '%s\n' ` + message + ` | nc h 1`},
		{
			"tcp://h:1?framing=header",
			remote{},
			`printf 'Content-Length: 59\r\n\r\n%s' ` + message + ` | nc h 1`,
		},
		{
			"tls://h:1",
			remote{},
			`printf '%s\n' ` + message + ` | openssl s_client -quiet -connect h:1 -verify_return_error`,
		},
		{"unix:/a b", remote{}, `printf '%s\n' ` + message + ` | nc -U '/a b'`},
	} {
		to, err := parseTarget(c.target)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.remote.shellLine(to, "m", jsonrpc.Raw(`{"a": "it's"}`), false); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.target, got, c.want)
		}
	}
	child := target.Child([]string{"./srv", "--x y"})
	if got := (&remote{v1: true}).shellLine(child, "m", nil,
		true); got != `printf '%s\n' '{"method":"m","params":[],"id":null}' | ./srv '--x y'` {
		t.Error(got)
	}
}
