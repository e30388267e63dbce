//go:build !race

package spec_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func usualResult() *spec.CallToolResult {
	size, priority := int64(3), 0.5
	return &spec.CallToolResult{
		ResultType: spec.ResultComplete,
		Content: []spec.Content{
			{Text: strings.Repeat("one \"line\"\n", 20)},
			{Type: spec.TypeImage, Data: make([]byte, 300), MIMEType: "image/png"},
			{
				Type: spec.TypeResourceLink, URI: "file:///a", Name: "a", Size: &size,
				Icons: []spec.Icon{{Src: "x:y"}},
			},
			{
				Type: spec.TypeResource, Resource: &spec.ResourceContents{URI: "file:///a", Text: "a"},
				Annotations: &spec.Annotations{Audience: []string{spec.RoleUser}, Priority: &priority},
			},
		},
		StructuredContent: jsonrpc.Raw(`{"a":[1,2,3]}`),
	}
}

func TestAppendAllocs(t *testing.T) {
	result, dst := usualResult(), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(200, func() { result.AppendJSON(dst) }); n != 0 {
		t.Errorf("CallToolResult.AppendJSON: %v allocations", n)
	}
}

func BenchmarkCallToolResultAppendJSON(b *testing.B) {
	result, dst := usualResult(), make([]byte, 0, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(len(result.AppendJSON(dst))))
	for b.Loop() {
		result.AppendJSON(dst)
	}
}
