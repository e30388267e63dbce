//go:build !race

package sign

import "testing"

func TestAllocs(t *testing.T) {
	keys := testKeys(t)
	for params, most := range map[string]float64{
		// Signature, its nonce, and one of HMAC
		`{"_meta":{"progressToken":7},"arguments":{"a":2,"b":3},"name":"add"}`: 3,
		`{"name":"add", "arguments":{"b":3.5,"a":2},"_meta":{}}`:               4,
	} {
		out := signed(t, "tools/call", params)
		if n := testing.AllocsPerRun(200, func() {
			if _, err := VerifyMessage("tools/call", out, keys, ""); err != nil {
				t.Fatal(err)
			}
		}); n > most {
			t.Errorf("%s: %v allocations, %v allowed", params, n, most)
		}
		if n := testing.AllocsPerRun(200, func() { HasSignature(out) }); n > 0 {
			t.Errorf("HasSignature: %v allocations", n)
		}
	}
}
