package gateway

import (
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// FuzzInner: whatever call_tool is given, the call that comes of it has a name that is none of tool search, and an object of
// arguments.
func FuzzInner(f *testing.F) {
	for _, seed := range []string{`{}`, `{"name":"a"}`, `{"name":"a","arguments":"{\"x\":1}"}`, `{"name":"a","arguments":[1]}`, `{"name":"call_tool"}`, `[`, `{"name":"a","arguments":" {} "}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, arguments []byte) {
		if jsonrpc.Valid(arguments) != nil {
			return
		}
		params := append(append([]byte(`{"_meta":{"a":1},"name":"call_tool","arguments":`), arguments...), '}')
		w := &calling{Call: upstream.Call{Params: params}}
		name, refused := inner(w)
		if refused != "" {
			return
		}
		given := scan.Member(w.Params, "arguments")
		if err := jsonrpc.Valid(w.Params); err != nil || name == "" || isSearch(name) || len(given) == 0 || given[0] != '{' || scan.Member(w.Params, "_meta") == nil {
			t.Errorf("%s becomes %s: %v", params, w.Params, err)
		}
		if got, _ := text(w.Params, "name"); got != name {
			t.Errorf("%s becomes %s", params, w.Params)
		}
	})
}
