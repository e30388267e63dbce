package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// The document of a list is its page as it came, or, of several, the last one with all elements.
func TestListDocument(t *testing.T) {
	t.Parallel()
	one := jsonrpc.Raw(`{ "x":1.0, "tools":[{"name":"a"}],"nextCursor":"" }`)
	first := jsonrpc.Raw(`{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"2","ttlMs":1}`)
	last := jsonrpc.Raw(`{"ttlMs":2,"tools":[{"name":"c","n":1e2}],"_meta":{"k":[]}}`)
	for _, test := range []struct {
		pages []jsonrpc.Raw
		want  string
	}{
		{nil, `{"tools":[]}`},
		{[]jsonrpc.Raw{one}, string(one)},
		{
			[]jsonrpc.Raw{first, last},
			`{"tools":[{"name":"a"},{"name":"b"},{"name":"c","n":1e2}],"ttlMs":2,"_meta":{"k":[]}}`,
		},
		{[]jsonrpc.Raw{first, jsonrpc.Raw(`"not a page"`)}, `{"tools":[{"name":"a"},{"name":"b"}]}`},
	} {
		l := &mcpList{key: "tools"}
		for _, page := range test.pages {
			l.add(page)
		}
		if got := string(l.document()); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// Each missing server is reported once for all pages, in text that a terminal may
// be shown; elements of other forms are ignored.
func TestSayMissing(t *testing.T) {
	t.Parallel()
	l := &mcpList{key: "tools"}
	for _, missing := range []string{
		`[{"upstream":"a","state":"absent","reason":"no"},{"upstream":"b","state":"stale",` +
			`"reason":"down\nmore"}]`,
		`[{"upstream":"a","state":"absent","reason":"no"},{"upstream":"c","state":"partial"},` +
			`{"upstream":"\u001b[2J","state":"absent"}]`,
		`[1,{"upstream":2},{},null]`, `"x"`, `{}`,
	} {
		l.add(jsonrpc.Raw(`{"tools":[],"_meta":{"farcall.dev/missing":` + missing + `}}`))
	}
	var out bytes.Buffer
	(&mcpRemote{screen: newConsole(&out)}).sayMissing(l.missing)
	want := []string{
		"farcall: warning: the list lacks what a offers: no",
		"farcall: warning: what b offers may have changed since: down",
		"farcall: warning: the list has not all that c offers",
		"farcall: warning: the list lacks what " + tame("\x1b[2J") + " offers", "",
	}
	if got := out.String(); got != strings.Join(want, "\n") || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}
