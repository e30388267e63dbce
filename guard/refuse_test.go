package guard

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// Overload is no secret, and every caller needs to know which limit it has met; what was wrong with
// a credential helps an attacker.
func TestReasonOnTheWire(t *testing.T) {
	for kind, want := range map[jsonrpc.Code]bool{
		jsonrpc.Overloaded: true, jsonrpc.BadSignature: false, jsonrpc.Unauthenticated: false,
		jsonrpc.PermissionDenied: false, jsonrpc.Unavailable: false,
	} {
		r := refuse(kind, "because")
		if got := strings.Contains(string(r.wire(nil, false).Data), `"reason":"because"`); got != want {
			t.Errorf("%v: data %s; the reason is for every caller: %t", kind, r.wire(nil, false).Data, want)
		}
		if got := r.wire(nil, true); string(got.Data) != `{"reason":"because"}` {
			t.Errorf("%v with details: %s", kind, got.Data)
		}
	}
	if got := tooLarge("Request", 2, 1, 413).wire(nil,
		false); string(got.Data) != `{"maxSize":1,"unit":"bytes"}` || got.Message != "Request too large" {
		t.Errorf("%s", got)
	}
}

// The number of a condition depends on what the caller speaks.
func TestCodes(t *testing.T) {
	r := refuse(jsonrpc.PermissionDenied, "")
	for _, test := range []struct {
		call *Call
		want jsonrpc.Code
	}{
		{nil, -32002},
		{&Call{}, -32002},
		{&Call{MCP: true}, -32056},
		{&Call{MCP: true, Modern: true}, -31056},
	} {
		if got := r.code(test.call); got != test.want {
			t.Errorf("%+v: %d, want %d", test.call, got, test.want)
		}
	}
}
