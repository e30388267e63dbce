package era

import (
	"strconv"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestLexicon(t *testing.T) {
	if n := len(known.numbers); n < 20 || n > 127 {
		t.Errorf("%d words: a set has room for 127", n)
	}
	var l lexicon
	icons, meta := l.set([]string{"icons", "title"}), l.set([]string{metaWord})
	for _, test := range []struct {
		text        string
		icons, meta bool
	}{
		{``, false, false},
		{`{}`, false, false},
		{`{"icons":1}`, true, false},
		{`{"a":"title"}`, true, false},
		{`{"icon":1,"iconsx":2,"xtitle":3}`, false, false},
		{`{"a":"the icons"}`, false, false},
		{`{"ico\u006es":1}`, true, true},
		{`{"a":"line\n"}`, false, false},
		{`{"io.modelcontextprotocol/x":1}`, false, true},
		{`{"io.modelcontextprotocol\/x":1}`, true, true},
		{`{"io.modelcontextprotocolx":1}`, false, false},
		{`{"icons`, true, true},
	} {
		w := l.in(jsonrpc.Raw(test.text))
		if w.meet(icons) != test.icons || w.meet(meta) != test.meta || !w.meet(everything) {
			t.Errorf("%s: %v %v", test.text, w.meet(icons), w.meet(meta))
		}
	}
	for i := range 200 {
		word := "word " + strconv.Itoa(i)
		if set := l.set([]string{word}); !l.in(jsonrpc.Raw(`["` + word + `"]`)).meet(set) {
			t.Fatalf("%s is not found", word)
		}
	}
}
