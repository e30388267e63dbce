package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A result that is cut is within its bound whatever made it long, says so, and stays JSON.
func TestCut(t *testing.T) {
	t.Parallel()
	long, part := strings.Repeat("x", 20_000), strings.Repeat("y", 300)
	text := func(s string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, s) }
	f := &outputForm{Max: 2000}
	for name, result := range map[string]string{
		"a text":     `{"content":[` + text(long) + `]}`,
		"many texts": `{"content":[` + strings.Repeat(text(part)+",", 50) + text(part) + `]}`,
		"structured": `{"content":[` + text(part) + `],"structuredContent":{"a":"` +
			long + `"}}`,
		"structured, no text": `{"content":[],"structuredContent":{"a":"` + long + `"}}`,
		"_meta":               `{"content":[` + text(part) + `],"_meta":{"a":"` + long + `"}}`,
		"an unknown member": `{"resultType":"complete","content":[` + text(part) + `],"x":"` + long +
			`","isError":true}`,
		"isError": `{"content":[` + text(part) + `],"isError":"` + long + `"}`,
	} {
		got := f.cut(jsonrpc.Raw(result))
		if _, fault := scan.Text(got, -1); fault != scan.OK || len(got) > 2000 {
			t.Errorf("%s: %d bytes, %v", name, len(got), fault)
		}
		if strings.Count(string(got), "is left out: the limit of a result is 2000 bytes") != 1 {
			t.Errorf("%s: %s", name, got)
		}
		for _, kept := range []string{`"isError":true`, `"resultType":"complete"`} {
			if strings.Contains(result, kept) != strings.Contains(string(got), kept) {
				t.Errorf("%s: %s: %s", name, kept, got)
			}
		}
	}
}
