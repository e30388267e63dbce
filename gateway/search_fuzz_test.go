package gateway

import (
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// FuzzInner: whatever call_tool is given, the call that comes of it has a name that is not one of
// tool search, and an object of arguments.
func FuzzInner(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"name":"a"}`, `{"name":"a","arguments":"{\"x\":1}"}`,
		`{"name":"a","arguments":[1]}`, `{"name":"call_tool"}`, `[`, `{"name":"a","arguments":" {} "}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, arguments []byte) {
		if jsonrpc.Valid(arguments) != nil {
			return
		}
		params := append(append([]byte(`{"_meta":{"a":1},"name":"call_tool","arguments":`), arguments...),
			'}')
		w := &calling{Call: upstream.Call{Params: params}}
		name, refused := inner(w)
		if refused != "" {
			return
		}
		given := scan.Member(w.Params, "arguments")
		if err := jsonrpc.Valid(w.Params); err != nil || name == "" || isSearch(name) ||
			len(given) == 0 || given[0] != '{' || scan.Member(w.Params, "_meta") == nil {
			t.Errorf("%s becomes %s: %v", params, w.Params, err)
		}
		if got, _ := text(w.Params, "name"); got != name {
			t.Errorf("%s becomes %s", params, w.Params)
		}
	})
}

// TestUnquoted: what a model has put in quotation marks becomes the value that is wanted, and
// nothing else changes.
func TestUnquoted(t *testing.T) {
	schema := jsonrpc.Raw(
		`{"properties":{"n":{"type":"integer"},"b":{"type":"boolean"},"o":{"type":"object"},` +
			`"s":{"type":"string"},"any":{},"bad":7}}`)
	given := jsonrpc.Raw(
		`{"n":"2","b":"true","o":"{\"x\":1}","s":"3","any":"4","bad":"5","other":"6","n2":7}`)
	if got, want := string(unquoted(schema, given)),
		`{"n":2,"b":true,"o":{"x":1},"s":"3","any":"4","bad":"5","other":"6","n2":7}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := string(unquoted(schema, jsonrpc.Raw(`{"n":"two","o":""}`))); got !=
		`{"n":"two","o":""}` {
		t.Error(got)
	}
}
