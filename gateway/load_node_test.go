package gateway

import (
	"reflect"
	"strings"
	"testing"
)

// The digest of a configuration is that of what all nodes of a cluster have alike.
func TestConfigDigest(t *testing.T) {
	digest := func(text string) string {
		c, err := Parse("farcall.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return string(c.digest)
	}
	const rest = "upstreams: {a: {url: 'http://h/mcp', max_in_flight: 3}}\nname: x\n"
	all := "listen: ':1'\n" + rest
	for text, same := range map[string]bool{
		all:  true,
		rest: true,
		"listen: ':2'\ncluster: {listen: '127.0.0.1:9', peers: ['127.0.0.1:8'], key: '" +
			strings.Repeat("0a", 32) + "'}\n" + rest: true,
		"name: x # a comment\nupstreams:\n  a:\n    max_in_flight: 3\n    url: http://h/mcp\n": true,
		strings.Replace(all, "3", "4", 1):             false,
		strings.Replace(all, "name: x", "name: y", 1): false,
		strings.Replace(all, "a:", "b:", 1):           false,
	} {
		if is := digest(text) == digest(all); is != same {
			t.Errorf("the same: %v, want %v:\n%s", is, same, text)
		}
	}
}

// A line that ends with CR LF is one line, behind a comment too.
func TestLinesOfDOS(t *testing.T) {
	text := "# one\n# two\nlisten: [127.0.0.1:0]\nupstreams:\n  # three\n" +
		"  a: {command: [x], nosuch: 1}\ntext: |\n  x\n  y\n"
	lines, err := readYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ofDOS, err := readYAML([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if key := ofDOS.get("upstreams").get("a").get("nosuch"); key.at.line != 6 {
		t.Errorf("the key is at %v", key.at)
	}
	if !reflect.DeepEqual(lines, ofDOS) {
		t.Errorf("%+v, without CR %+v", ofDOS, lines)
	}
}
