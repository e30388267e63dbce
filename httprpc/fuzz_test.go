package httprpc

import (
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// Whatever a URL says, what is made of it is a valid request, or an error to
// answer with.
func FuzzQuery(f *testing.F) {
	f.Add("method=text/stream&message=hi&id=7")
	f.Add("method=a&params=%7B%22a%22:1%7D&id=%22x%22")
	f.Add("method=a&b=1&b=x&c=%00&%ff=%ff")
	f.Add("id=1e400&method=%22&params= [1] ")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw)
		var frame []byte
		if err != nil {
			frame = jsonrpc.V2.AppendError(nil, q.id, err.(*jsonrpc.Error)) //nolint:errorlint,forcetypeassert // that is the claim
		} else {
			frame = jsonrpc.V2.AppendRequest(nil, q.id, q.method, q.params)
		}
		var d jsonrpc.Decoder
		var b jsonrpc.Batch
		if e := d.Decode(frame, &b); e != nil || b.Messages[0].Kind == jsonrpc.Invalid {
			t.Fatalf("%q: %s: %v", raw, frame, e)
		}
	})
}
