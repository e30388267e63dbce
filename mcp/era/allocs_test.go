//go:build !race

package era

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestFastPath: what a server says most often costs an older client nothing.
func TestFastPath(t *testing.T) {
	for _, test := range []struct {
		kind       Kind
		method, to string
		raw        string
	}{
		{Result, "tools/call", "2025-06-18", `{"content":[{"type":"text","text":"the sum is 5"}]}`},
		{Result, "tools/call", "2024-11-05", `{"content":[{"type":"text","text":"the sum is 5"}]}`},
		{
			Result, "tools/call", "2025-06-18",
			`{"content":[{"type":"text","text":"{\"sum\":5}"}],"structuredContent":{"sum":5}}`,
		},
		{Result, "tools/call", "2025-11-25", `{"content":[{"type":"text","text":"a \u00fc"}]}`},
		{Result, "resources/read", "2024-11-05", `{"contents":[{"uri":"file:///a","text":"a"}]}`},
		{
			Params, "tools/call", "2024-11-05",
			`{"name":"add","arguments":{"a":2,"b":3},"_meta":{"progressToken":1}}`,
		},
		{
			Notification, "notifications/progress", "2024-11-05",
			`{"progressToken":1,"progress":1,"total":2}`,
		},
	} {
		raw, to := jsonrpc.Raw(test.raw), Lookup(test.to)
		n := testing.AllocsPerRun(100, func() {
			if got, err := Translate(test.kind, test.method, raw, Latest(), to); err != nil ||
				&got[0] != &raw[0] || len(got) != len(raw) {
				t.Fatalf("%s: %s, %v", test.raw, got, err)
			}
		})
		if n != 0 {
			t.Errorf("%s to %s: %v allocations for %s", test.method, test.to, n, test.raw)
		}
	}
	up := jsonrpc.Raw(`{"name":"add","arguments":{"a":2,"b":3}}`)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = Translate(Params, "tools/call", up, Lookup("2024-11-05"), Latest())
	}); n != 0 {
		t.Errorf("params up: %v allocations", n)
	}
	bare := jsonrpc.Raw(`{"content":[{"type":"text","text":"the sum is 5"}]}`)
	if n := testing.AllocsPerRun(100, func() {
		if got, err := Translate(BareResult, "tools/call", bare, Lookup("2024-11-05"),
			Latest()); err != nil || &got[0] != &bare[0] {
			t.Fatalf("%s, %v", got, err)
		}
	}); n != 0 {
		t.Errorf("a bare result up: %v allocations", n)
	}
}

func BenchmarkTranslate(b *testing.B) {
	text := strings.Repeat("a line of text\\n", 64)
	for _, bench := range []struct{ name, to, raw string }{
		{"text to 2025-11-25", "2025-11-25", `{"content":[{"type":"text","text":"the sum is 5"}]}`},
		{"text to 2025-06-18", "2025-06-18", `{"content":[{"type":"text","text":"the sum is 5"}]}`},
		{"text to 2024-11-05", "2024-11-05", `{"content":[{"type":"text","text":"the sum is 5"}]}`},
		{
			"structured to 2025-06-18", "2025-06-18",
			`{"content":[{"type":"text","text":"{\"sum\":5}"}],"structuredContent":{"sum":5}}`,
		},
		{"1 KB to 2025-06-18", "2025-06-18", `{"content":[{"type":"text","text":"` + text + `"}]}`},
		{
			"resultType to 2025-06-18", "2025-06-18",
			`{"resultType":"complete","content":[{"type":"text","text":"the sum is 5"}]}`,
		},
	} {
		raw, to := jsonrpc.Raw(bench.raw), Lookup(bench.to)
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Translate(Result, "tools/call", raw, Latest(), to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
