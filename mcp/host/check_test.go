package host

import (
	"strings"
	"testing"
)

func TestServerCheck(t *testing.T) {
	for _, c := range []struct {
		servers []Server
		want    string
	}{
		{[]Server{{Name: "a__b", URL: "http://h"}}, `must neither contain "__"`},
		{[]Server{{Name: "a_", URL: "http://h"}}, "nor end with _"},
		{[]Server{{Name: "", URL: "http://h"}}, "invalid name"},
		{[]Server{{Name: "a b", URL: "http://h"}}, "invalid name"},
		{[]Server{{Name: strings.Repeat("a", 65), URL: "http://h"}}, "invalid name"},
		{[]Server{{Name: "a"}}, "no command and no url"},
		{[]Server{{Name: "a", URL: "http://h", Command: []string{"x"}}}, "more than one"},
		{[]Server{{Name: "a", Command: []string{""}}}, `server "a.command": the program has no name`},
		{[]Server{{Name: "a", URL: "gopher://h"}}, `server "a.url"`},
		{[]Server{{Name: "a", URL: "http://h", Timeout: -1}}, "must not be negative"},
		{
			[]Server{{Name: "a", URL: "http://h"}, {Name: "A", URL: "http://h"}},
			`two servers are named "a" and "A"`,
		},
	} {
		if h, err := New(t.Context(), c.servers, nil); err == nil ||
			!strings.Contains(err.Error(), c.want) || h != nil {
			t.Errorf("%+v: %v, want %q", c.servers, err, c.want)
		}
	}
}
