package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func (f *fake) and(kind string, names ...string) *fake {
	f.set(kind, listed(kind, names...))
	return f
}

func TestResources(t *testing.T) {
	deny := Rules{Resources: Filter{Deny: []string{"file:///etc/*"}}}
	allow := Rules{Resources: Filter{Allow: []string{"file:///pub/*"}}}
	hidden := Rules{Resources: Filter{Deny: []string{"file:///{*"}}}
	for _, test := range []struct {
		name    string
		sources []Source
		leads   map[string]string
	}{
		{
			"templates",
			[]Source{
				with(Resources, "f:1").and(Templates, "db://{table}/{id}").source("a", Rules{}),
				with(Resources, "f:1").and(Templates, "web:{+path}", "db://{table}/{id}").source("b", Rules{}),
				with(Tools, "x").source("c", Rules{}),
			},
			map[string]string{
				"f:1": `"f:1" is among the resources of a and b: use a+f:1 or b+f:1`, "a+f:1": "a/f:1",
				"b+f:1":      "b/f:1",
				"db://t/7":   `"db://t/7" is among the resources of a and b: use a+db://t/7 or b+db://t/7`,
				"b+db://t/7": "b/db://t/7",
				"web:a/b":    "b/web:a/b", "db://t": "-", "b+db://t": "b/db://t", "c+db://t": "-", "x:": "-",
			},
		},
		{
			"the only one",
			[]Source{with(Resources, "f:1").source("a", Rules{}), with(Tools, "x").source("b", Rules{})},
			map[string]string{"f:2": "a/f:2", "any:thing": "a/any:thing", "": "-"},
		},
		{
			"a template that cannot be read",
			[]Source{with(Resources, "f:1").source("a", Rules{}), with(Templates, "x:{{").source("b", Rules{})},
			map[string]string{"x:1": "b/x:1", "f:1": "a/f:1"},
		},
		{
			"denied",
			[]Source{with(Resources, "file:///etc/passwd", "file:///a").and(Templates, "file:///{+path}").source("a", deny)},
			map[string]string{
				// it is alone
				"file:///a": "a/file:///a", "file:///b": "a/file:///b", "file:///etc/passwd": "-",
				"a+file:///etc/passwd":    "a/a+file:///etc/passwd",
				"file:///b/../etc/passwd": "-", "file:///%65tc/passwd": "-", "FILE:///etc/x": "-",
				"file:////etc/x": "-", "file:///etc/": "-",
			},
		},
		{
			"allowed",
			[]Source{with(Resources, "file:///pub/1", "file:///a").and(Templates, "file:///{+path}").source("a", allow)},
			map[string]string{
				"file:///pub/1": "a/file:///pub/1", "file:///pub/2": "a/file:///pub/2", "file:///a": "-",
				"file:///b":        "-",
				"file:///pub/../a": "-", "file:///pub/%2e%2e/a": "-",
			},
		},
		{
			"a template that is denied opens nothing",
			[]Source{with(Templates, "file:///{+path}", "db:{x}").source("a", hidden), with(Resources, "f:1").source("b", Rules{})},
			map[string]string{"file:///a": "-", "db:1": "a/db:1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := view(t, nil, test.sources...)
			finds(t, v, Resources, test.leads)
		})
	}
}

func TestTemplates(t *testing.T) {
	for _, test := range []struct {
		template string
		yes, no  string // separated by spaces
	}{
		{"f:{x}", "f:a f: f:a%20b f:a,b", "g:a f:a/b f:a?b"},
		{"f:{x}/{y}", "f:a/b f:/", "f:a f:a/b/c"},
		{"f:{+x}", "f:a/b?c#d f:", "f"},
		{"f:{x}{?q,r*}", "f:a f:a?q=1 f:a?q=1&r=2/3", "f:a#b f:a?q#b"},
		{"f:{x}{#frag}", "f:a f:a#b/c", "f:a/b"},
		{"f:{.ext}", "f: f:.tar.gz", "f:tar f:.a/b"},
		{"f:{/a,b:3}/end", "f:/end f:/x/y/end", "f:x/end"},
		{"f:{;a}", "f: f:;a=1", "f:a"},
		{"f:?a{&b}", "f:?a f:?a&b=1", "f:?ab"},
		{"plain", "plain", "plainer plai"},
		{"{x}-{y}", "a-b -", "a"},
		{"ü{x}", "üb", "u"},
	} {
		tmpl, ok := newTemplate(test.template)
		if !ok {
			t.Errorf("%s cannot be read", test.template)
			continue
		}
		for uri := range strings.SplitSeq(test.yes, " ") {
			if !tmpl.match(uri) {
				t.Errorf("%s has not %q", test.template, uri)
			}
		}
		for uri := range strings.SplitSeq(test.no, " ") {
			if tmpl.match(uri) {
				t.Errorf("%s has %q", test.template, uri)
			}
		}
	}
	for _, bad := range []string{
		"{", "}", "a{}", "{x", "x}", "{{x}}", "{+}", "{x y}", "{x:}",
		"{x:12345}", "{x:a}", "{,}", "{=x}", "{x,}",
	} {
		if _, ok := newTemplate(bad); ok {
			t.Errorf("%s can be read", bad)
		}
	}
}

func TestCollect(t *testing.T) {
	pages := map[string]string{
		"":  `{"tools":[{"name":"a"}],"nextCursor":"2","ttlMs":5000,"cacheScope":"public"}`,
		"2": `{"tools":[{"name":"b"},7],"nextCursor":"3","ttlMs":1e3,"cacheScope":"public"}`,
		"3": `{"tools":[]}`,
	}
	ask := func(cursor string) (jsonrpc.Raw, error) { return jsonrpc.Raw(pages[cursor]), nil }
	l, err := Collect(Tools, ask)
	if err != nil || len(l.Items) != 3 || l.TTL != 0 || l.Public || l.Note != "" {
		t.Errorf("%+v, %v", l, err)
	}
	pages["3"] = `{"tools":[],"ttlMs":1500.5,"cacheScope":"public","nextCursor":null}`
	if l, err = Collect(Tools, ask); err != nil || l.TTL.Milliseconds() != 1000 || !l.Public {
		t.Errorf("%+v, %v", l, err)
	}
	pages["3"] = `{"tools":[],"nextCursor":"3"}`
	if _, err = Collect(Tools, ask); err == nil {
		t.Error("a list without an end is read")
	}
	pages["3"] = `{"prompts":[]}`
	if _, err = Collect(Tools, ask); err == nil {
		t.Error("a result without tools is read")
	}
	n := 0
	l, err = Collect(Tools, func(string) (jsonrpc.Raw, error) {
		n++
		return jsonrpc.Raw(fmt.Sprintf(`{"tools":[{"name":"t%d"}],"nextCursor":"%d"}`, n, n)), nil
	})
	if err != nil || n != maxPages || len(l.Items) != maxPages || l.Note == "" {
		t.Errorf("%d pages, %d items, %q, %v", n, len(l.Items), l.Note, err)
	}
	big := `{"tools":[{"name":"` + strings.Repeat("x", maxBytes/4) + `"}],"nextCursor":"`
	two := [2]jsonrpc.Raw{jsonrpc.Raw(big + `1"}`), jsonrpc.Raw(big + `2"}`)}
	if l, err = Collect(Tools, func(string) (jsonrpc.Raw, error) {
		n++
		return two[n%2], nil
	}); err != nil || len(l.Items) != 3 || l.Note == "" {
		t.Errorf("%d items, %q, %v", len(l.Items), l.Note, err)
	}
	failure := errors.New("no")
	if _, err := Collect(Tools, func(string) (jsonrpc.Raw, error) {
		return nil, failure
	}); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

// TestQualifiedObeysRules: a qualifier opens nothing that the rules of its source do not show.
func TestQualifiedObeysRules(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, string) (List, error) { return List{}, nil }
	v := NewView([]Source{
		{Name: "a", Rules: Rules{Resources: Filter{Deny: []string{"file:///secret*"}}}, List: nothing},
		{Name: "b", Rules: Rules{Resources: Filter{Only: []string{}}}, List: nothing},
	}, nil)
	t.Cleanup(v.Close)
	for uri, want := range map[string]bool{
		"a+file:///x": true, "a+file:///secret/x": false,
		"a+file:///x/%2e%2e/secret": false, "b+file:///x": false,
	} {
		if _, _, ok := v.Qualified(uri); ok != want {
			t.Errorf("%s: %v", uri, ok)
		}
	}
}
