package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hopCapture is what a gateway has recorded of one call, and a torn line.
const hopCapture = `{"v":1,"type":"capture","seq":1,"t":1000000000,"program":"test"}
{"type":"conn","seq":2,"t":1000000000,"conn":1,"transport":"http","label":"http-1"}
{"type":"conn","seq":3,"t":1000000000,"conn":2,"upstream":"calc","transport":"stdio"}
{"type":"frame","seq":4,"t":1000000000,"conn":1,"dir":"up","kind":"request","id":"7","method":"calc.add","call":2,"n":61,"raw":"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"calc.add\",\"params\":{\"a\":1}}"}
{"type":"frame","seq":5,"t":1004000000,"conn":2,"dir":"up","kind":"request","id":"1","method":"add","call":5,"parent":2,"upstream":"calc","n":56,"raw":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"params\":{\"a\":1}}"}
{"type":"frame","seq":6,"t":1009000000,"conn":2,"dir":"down","kind":"response","id":"1","method":"add","ref":5,"dur":5000000,"call":5,"parent":2,"upstream":"calc","n":76,"raw":"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"two\"}]}}"}
{"type":"frame","seq":7,"t":1010000000,"conn":1,"dir":"down","kind":"response","id":"7","method":"calc.add","ref":4,"dur":10000000,"call":2,"n":76,"raw":"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"two\"}]}}"}
{"type":"stderr","seq":8,"t":1010000000,"conn":2,"n":6,"raw":"\u001b[31mhi"}
{"type":"fra`

// A capture of a gateway has both sides of a call, and a mock of it answers.
func TestOpenCapture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hop.jsonl")
	if err := os.WriteFile(path, []byte(hopCapture), 0o600); err != nil {
		t.Fatal(err)
	}
	_, p, _ := inspector(t, &Options{Servers: []Server{{Capture: path}}, Connect: true})
	v := p.state(1, stateReady)
	if v.Speaks != protocolCapture || !strings.Contains(v.Reason, "4 frames") || !strings.Contains(v.Reason, "torn") {
		t.Errorf("the capture: %+v", v)
	}
	var r pollResult
	p.call("poll", pollParams{Events: 1 << 60}, &r)
	got := fmt.Sprint(r.Rows.Dir, r.Rows.Kind, r.Rows.Ref, r.Rows.Parent, r.Rows.Hop, r.Rows.Took, r.Rows.Time)
	if want := "!!>><<!!qqrr[0 0 0 0 4 3] [0 0 0 3 3 0] [3 4] [0 0 0 0 5000 10000] [0 0 0 4000 9000 10000]"; got != want {
		t.Errorf("rows\n%s, want\n%s", got, want)
	}
	p.fails("call", callParams{Conn: 1, Call: "c", Kind: kindMethod, Name: "calc.add"}, "not connected")
}
