package gateway

import (
	"strings"
	"testing"
)

// A value that no shell replaces gets a notice with the remedy, and none of a token is in it.
func TestLiteralNotices(t *testing.T) {
	t.Parallel()
	const secret = "it looks like a secret and stands in the file itself; write ${NAME} for a " +
		"variable of the environment, or ${file:PATH}"
	shell := func(name, remedy string) string {
		return name + " stays as it is written: no shell reads it; write ${" + remedy + "}"
	}
	for value, want := range map[string]string{
		"$TOKEN": shell("$TOKEN", "TOKEN"), "Bearer $TOKEN": shell("$TOKEN", "TOKEN"),
		"--dir=$HOME/x": shell("$HOME", "HOME"),
		"~":             shell("~", "HOME"), "~/Desktop": shell("~", "HOME"),
		"--dir=~/x": shell("~", "HOME"),
		"%APPDATA%": shell("%APPDATA%", "APPDATA"), `C:\\x\\%APPDATA%\\y`: shell("%APPDATA%", "APPDATA"),
		"ghp_s3cr3t": secret, "Bearer sk-s3cr3t": secret, "--token=glpat-s3cr3t": secret,
		"Bearer words": secret,

		"${HOME:-/}": "", "Bearer ${HOME:-x}": "", "$${TOKEN}": "", "$ref": "", "cost$": "", "a~b": "",
		"~user": "", "http://h/%AB%CD": "", "%H%M%S": "",
		"sk-learn": "", "sk-learn with 2 words": "", "echo $HOME": "", "plain": "",
	} {
		for key, upstream := range map[string]string{
			"args[0]":   `{"command": "x", "args": ["` + value + `"]}`,
			"env.T":     `{"command": "x", "env": {"T": "` + value + `"}}`,
			"headers.T": `{"url": "https://h/mcp", "headers": {"T": "` + value + `"}}`,
		} {
			for root, file := range map[string]string{"mcpServers": "f.json", "upstreams": "f.yaml"} {
				c, err := Parse(file, []byte(`{"`+root+`": {"a": `+upstream+`}}`))
				if err != nil {
					t.Errorf("%s: %v", upstream, err)
					continue
				}
				var got []string
				for _, n := range c.Notices() {
					if strings.Contains(n.String(), "stays as it is") ||
						strings.Contains(n.String(), "looks like a secret") {
						_, text, _ := strings.Cut(n.String(), root+".a.")
						got = append(got, text)
					}
					if strings.Contains(n.String(), "s3cr3t") {
						t.Errorf("%s: the notice shows the secret: %s", upstream, n)
					}
				}
				wanted := ""
				if want != "" {
					wanted = key + ": " + want
				}
				if strings.Join(got, "\n") != wanted {
					t.Errorf("%s:\n%q\nwant\n%q", upstream, got, wanted)
				}
			}
		}
	}
}

// A list is short for a command with its arguments.
func TestListShortForm(t *testing.T) {
	t.Parallel()
	c, err := Parse("f.yaml", []byte("upstreams:\n  a: [npx, -y, 'a b']\n"))
	if err != nil {
		t.Fatal(err)
	}
	if u := c.Upstreams[0]; strings.Join(u.Command, "|") != "npx|-y|a b" ||
		u.Target() != "npx -y 'a b'" {
		t.Errorf("%q, %s", u.Command, u.Target())
	}
	for text, want := range map[string]string{
		"upstreams: {a: []}":       "1:16: upstreams.a: it is empty; name a program and its arguments",
		"upstreams: {a: [x, [y]]}": "1:20: upstreams.a[1]: one value is wanted, and this is a list",
		"upstreams: {a: ['', x]}": "1:16: upstreams.a.command: the program has no name; name it " +
			"first, then its arguments",
		"upstreams: {a: [x, '${A']}": "1:20: upstreams.a[1]: ${ has no }; add it, or write $${ if the " +
			"text itself has ${",
	} {
		if _, problems := parse(t, "f.yaml", text); !strings.HasSuffix(problems, want) {
			t.Errorf("%s:\n%s\nwant\n%s", text, problems, want)
		}
	}
}
