package sign

import (
	"crypto/ed25519"
	"testing"
	"time"
)

var (
	testSecret = []byte("0123456789abcdef0123456789abcdef")
	testSeed   = ed25519.NewKeyFromSeed([]byte("a seed for the tests, not a key!"))
	testTime   = time.Unix(1_700_000_000, 0)
)

const testNonce = "nonce-0123456789"

func testKeys(tb testing.TB) map[string]*Key {
	tb.Helper()
	secret, err := NewSecret("ci", testSecret)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]*Key{
		"ci": secret,
		"ed": {ID: "ed", Public: testSeed.Public().(ed25519.PublicKey)},
	}
}

func signed(tb testing.TB, method, params string) []byte {
	tb.Helper()
	out, err := Message(method, []byte(params), "ci", testSecret, testTime, testNonce, "")
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func BenchmarkVerifyMessage(b *testing.B) {
	keys := testKeys(b)
	for _, bench := range []struct{ name, params string }{
		{"sorted", `{"_meta":{"progressToken":7},"arguments":{"a":2,"b":3},"name":"add"}`},
		{"unsorted", `{"name":"add","arguments":{"b":3.5,"a":2},"_meta":{"progressToken":7}}`},
		{"spaced", `{ "name": "add", "arguments": { "b": 3, "a": 2 }, "_meta": { "progressToken": 7 } }`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			params := signed(b, "tools/call", bench.params)
			b.ReportMetric(float64(len(params)), "bytes")
			b.ReportAllocs()
			for b.Loop() {
				if !HasSignature(params) {
					b.Fatal("no signature")
				}
				if _, err := VerifyMessage("tools/call", params, keys, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("HasSignature", func(b *testing.B) {
		params := signed(b, "tools/call",
			`{"name":"add","arguments":{"a":2,"b":3},"_meta":{"progressToken":7}}`)
		b.ReportAllocs()
		for b.Loop() {
			if !HasSignature(params) {
				b.Fatal("no signature")
			}
		}
	})
	b.Run("ed25519", func(b *testing.B) {
		params, err := Message("tools/call", []byte(`{"name":"add"}`), "ed", testSeed, testTime,
			testNonce, "")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := VerifyMessage("tools/call", params, keys, ""); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkVerifyHTTP(b *testing.B) {
	keys := testKeys(b)
	r := request(b, testBody)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := VerifyHTTP(r, []byte(testBody), keys); err != nil {
			b.Fatal(err)
		}
	}
}
