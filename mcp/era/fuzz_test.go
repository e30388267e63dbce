package era

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// FuzzTranslate: whatever comes, what goes is valid JSON when it was, and not
// much longer.
func FuzzTranslate(f *testing.F) {
	var methods []string
	for _, test := range ruleCases {
		methods = append(methods, test.method)
		for from := range revisions {
			f.Add(uint8(test.kind), len(methods)-1, uint8(from), uint8(from+3), []byte(test.in))
		}
	}
	for m, text := range full {
		methods = append(methods, m.method)
		f.Add(uint8(m.kind), len(methods)-1, uint8(4), uint8(0), []byte(text))
	}
	f.Fuzz(func(t *testing.T, kind uint8, method int, from, to uint8, in []byte) {
		source := revisions[int(from)%len(revisions)]
		target := revisions[int(to)%len(revisions)]
		name := methods[uint(method)%uint(len(methods))]
		before := bytes.Clone(in)
		out, err := Translate(Kind(kind%3), name, in, source, target)
		if !bytes.Equal(in, before) {
			t.Fatalf("the input was changed: %s, then %s", before, in)
		}
		if err != nil {
			var e *jsonrpc.Error
			if !errors.As(err, &e) || out != nil || e.Message == "" {
				t.Fatalf("%v with %s", err, out)
			}
			return
		}
		if _, fault := scan.Text(in, -1); fault != scan.OK {
			return
		}
		if _, fault := scan.Text(out, -1); fault != scan.OK || !json.Valid(out) && json.Valid(in) {
			t.Fatalf("%s %s -> %s\n in %s\nout %s: %v", name, source.Name, target.Name, in, out, fault)
		}
		if len(out) > 8*len(in)+512 {
			t.Fatalf("%d bytes became %d", len(in), len(out))
		}
		again, err := Translate(Kind(kind%3), name, out, target, target)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatal("a message was translated into its own revision")
		}
		e := &jsonrpc.Error{Code: jsonrpc.InvalidParams, Data: in}
		if got := Code(e, source, target); !bytes.Equal(got.Data, in) {
			t.Fatal("an error's data has changed")
		}
	})
}

// TestDeep: no depth is a danger to the stack.
func TestDeep(t *testing.T) {
	deep := bytes.Repeat([]byte(`{"content":[`), 100_000)
	deep = append(deep, bytes.Repeat([]byte("]}"), 100_000)...)
	for _, raw := range [][]byte{
		deep, deep[:len(deep)/2],
		append([]byte(`{"resultType":"complete","structuredContent":`), append(deep, '}')...),
	} {
		for m := range full {
			if _, err := Translate(m.kind, m.method, raw, Latest(), revisions[0]); err != nil &&
				m.kind != Params {
				t.Errorf("%s: %v", m.method, err)
			}
		}
	}
}
