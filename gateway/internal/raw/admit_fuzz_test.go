package raw

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// sink takes what is written.
type sink struct{ farcall.Transport }

func (sink) Write(...[]byte) error { return nil }
func (sink) Read() ([]byte, error) { return nil, io.EOF }
func (sink) Close() error          { return nil }

// FuzzScreen lets a lenient server read what goes on: it sees no call that was not asked about.
func FuzzScreen(f *testing.F) {
	for _, seed := range []string{
		call("1", "a", "[]"), call("1", "deny", "[]"),
		`[` + call("1", "a", "[]") + `, ` + call("2", "deny", "{}") + `,{"jsonrpc":"2.0","method":"n"}]`,
		`{"jsonrpc":"2.0","id":1,"method":"a","Method":"deny"}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"deny"}`,
		`{"jsonrpc":"2.0","id":1,"result":1,"METHOD":"deny"}`, `{"id":1,"method":"deny","params":{}}`,
		`[17,{}]`,
		`{"jsonrpc":"2.0","id":{},"method":"deny"}`, ` {"id":null,"method":"deny","params":[]} `,
	} {
		f.Add([]byte(seed))
	}
	u := New(&Options{Name: "up"})
	f.Fuzz(func(t *testing.T, frame []byte) {
		var asked []string
		x := newFront(t.Context(), u, sink{})
		x.admitted = true // so that answers go on
		x.admission = func(method string, _ jsonrpc.Raw) (func(jsonrpc.Raw, error), error) {
			if strings.HasPrefix(method, "deny") {
				return nil, &jsonrpc.Error{Code: -32002, Message: "no"}
			}
			asked = append(asked, method)
			return nil, nil
		}
		ok, err := x.passable(frame)
		if err != nil || !ok {
			return
		}
		rest, err := x.screen(frame)
		if err != nil || rest == nil {
			return
		}
		type message struct{ Method any }
		var all []message
		if json.Unmarshal(rest, &all) != nil {
			var one message
			if json.Unmarshal(rest, &one) != nil {
				t.Fatalf("%q is no message, from %q", rest, frame)
			}
			all = []message{one}
		}
		for _, m := range all {
			if m.Method == nil {
				continue
			}
			if s, _ := m.Method.(string); !slices.Contains(asked, s) {
				t.Errorf("no admission for %v in %q, from %q", m.Method, rest, frame)
			}
		}
	})
}
