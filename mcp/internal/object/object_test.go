package object_test

import (
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
)

func TestObject(t *testing.T) {
	o := object.New(jsonrpc.Raw(`{"a":1,"b":[2],"c":"\u0061"}`), "b")
	o.Add("d\n", jsonrpc.Raw("null"))
	if err := o.Marshal("e", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Marshal("f", func() {}); err == nil {
		t.Error("a function was marshalled")
	}
	if got, want := string(o.End()), `{"a":1,"c":"\u0061","d\n":null,"e":["x"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, tt := range []struct{ from, want string }{
		{"", `{"a":3}`},
		{`{}`, `{"a":3}`},
		{`{"a":1,"b":2}`, `{"b":2,"a":3}`},
		{`{"\u0061":1}`, `{"a":3}`}, // an escaped name is the same name
	} {
		if got := string(object.With(jsonrpc.Raw(tt.from), "a", jsonrpc.Raw("3"))); got != tt.want {
			t.Errorf("With(%s) = %s, want %s", tt.from, got, tt.want)
		}
	}
	for from, want := range map[string]string{"": "{}", "null": "{}", `{"a":1}`: `{"a":1}`} {
		if got := string(object.OrEmpty(jsonrpc.Raw(from))); got != want {
			t.Errorf("OrEmpty(%s) = %s, want %s", from, got, want)
		}
	}
}
