package mcp

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func nothing(context.Context, jsonrpc.Raw) (*ToolResult, error) { return nil, nil }

// numberedTools adds and replaces tools, from one number to another.
func numberedTools(s *Server, from, to int) {
	for i := from; i < to; i++ {
		s.AddTool(Tool{Name: fmt.Sprint("tool", i)}, nothing)
	}
}

// Each change costs the memory of what changes, however many tools there are, also in the server
// that the changed one is mounted in.
func TestChangesCostWhatTheyChange(t *testing.T) {
	spent := func(s *Server, from int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		numberedTools(s, from, from+200) // new ones
		numberedTools(s, from, from+200) // in their places
		s.Transform(fmt.Sprint("tool", from), Transform{Name: fmt.Sprint("shown", from)})
		for i := from; i < from+200; i++ {
			s.RemoveTool(fmt.Sprint("tool", i))
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	inner := NewServer("inner", "1", nil)
	NewServer("outer", "1", nil).Mount("p", inner)
	few := spent(inner, 0)
	numberedTools(inner, 0, 10_000)
	if many := spent(inner, 10_000); many > 2*few {
		t.Errorf("changes cost %d bytes beside 10,000 tools, and %d beside none", many, few)
	}
}

// listedTools returns the names of all tools, page by page.
func listedTools(t *testing.T, s *Server) (names []string) {
	t.Helper()
	for cursor := ""; ; {
		answer, err := s.ServeRPC(t.Context(), modernRequest("tools/list", cursor))
		if err != nil {
			t.Fatal(err)
		}
		result := []byte(answer.(jsonrpc.Raw))
		for tool := range scan.Elements(scan.Member(result, "tools")) {
			names = append(names, string(scan.Unquote(scan.Member(tool, "name"))))
		}
		next := scan.Member(result, "nextCursor")
		if next == nil {
			return names
		}
		cursor = `"cursor":` + string(next)
	}
}

// Lists have what was added in its order: replaced in its place, renamed in its place, and added
// again at the end.
func TestOrderOfLists(t *testing.T) {
	t.Parallel()
	s := NewServer("x", "1", &ServerOptions{PageSize: 7})
	numberedTools(s, 0, 50)
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint("tool", i))
	}
	check := func() {
		t.Helper()
		if got := listedTools(t, s); !slices.Equal(got, want) {
			t.Fatalf("got  %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
		}
	}
	check()
	numberedTools(s, 20, 30)
	s.Transform("tool3", Transform{Name: "three"})
	want[3] = "three"
	check()
	s.RemoveTool("tool3") // by its own name
	s.RemoveTool("tool30")
	s.RemoveTool("no such tool")
	want = slices.DeleteFunc(want, func(n string) bool { return n == "three" || n == "tool30" })
	check()
	numberedTools(s, 30, 31)
	want = append(want, "tool30")
	check()
}

// BenchmarkAddTool is the whole of n registrations.
func BenchmarkAddTool(b *testing.B) {
	for _, n := range []int{500, 5_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				numberedTools(NewServer("x", "1", nil), 0, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/tool")
		})
	}
}
