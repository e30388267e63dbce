package gateway

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	const before = `
upstreams:
  a: {command: [a, b], timeout: 5s}
  b: {url: "http://127.0.0.1:1/mcp", headers: {X: secret}}
  c: {command: c, disabled: true}
  d: {command: d}
page_size: 7
guard: {anonymous: true, params: {max_depth: 10}}
`
	for after, want := range map[string]string{
		before:                "",
		before + "\n# more\n": "",
		strings.Replace(before, "timeout: 5s", "timeout: 6s, env: {T: x}",
			1): "~a (env, timeout)",
		strings.Replace(before, "X: secret", "X: other", 1):                              "~b (headers)",
		strings.Replace(before, ", disabled: true", "", 1):                               "+c",
		strings.Replace(before, "d: {command: d}", "d: {command: d, disabled: true}", 1): "-d",
		strings.Replace(before, "  d:", "  e:", 1):                                       "+e -d",
		strings.Replace(before, "max_depth: 10", "max_depth: 9", 1):                      "guard",
		strings.Replace(before, "page_size: 7", "title: x",
			1): "title page_size",
	} {
		from, problem := parse(t, "x.yaml", before)
		to, other := parse(t, "x.yaml", after)
		if problem != "" || other != "" {
			t.Fatal(problem, other)
		}
		if got := strings.Join(to.Changes(from), " "); got != want {
			t.Errorf("%s\ngot %q, want %q", after, got, want)
		}
	}
	s := mcp.NewServer("s", "1", nil)
	mine := func(s *mcp.Server) *Config {
		return &Config{Upstreams: []*Upstream{{Name: "s", Server: s}}}
	}
	if got := mine(s).Changes(mine(s)); got != nil {
		t.Error(got)
	}
	if got := mine(mcp.NewServer("s", "1", nil)).Changes(mine(s)); !slices.Equal(got,
		[]string{"~s (server)"}) {
		t.Error(got)
	}
}

// TestChangesKeys: what Changes calls a field is its key in a file.
func TestChangesKeys(t *testing.T) {
	t.Parallel()
	for of, noKeys := range map[reflect.Type][]string{
		reflect.TypeFor[Config]():   nil,
		reflect.TypeFor[Upstream](): {"name", "server"},
	} {
		for f := range of.Fields() {
			key := keyOf(f.Name)
			if !f.IsExported() || slices.Contains(noKeys, key) {
				continue
			}
			text := key + ": {}\nupstreams: {a: {command: a}}"
			if of == reflect.TypeFor[Upstream]() {
				text = "upstreams: {a: {" + key + ": {}}}"
			}
			if _, err := Parse("x.yaml", []byte(text)); err != nil &&
				strings.Contains(err.Error(), "there is no key \""+key) {
				t.Errorf("%v.%s: %v", of, f.Name, err)
			}
		}
	}
}
