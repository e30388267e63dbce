package route

import (
	"context"
	"fmt"
	"testing"
)

// many is a view of some sources with a hundred tools each.
func many(tb testing.TB, sources int, public bool) *View {
	tb.Helper()
	var all []Source
	for s := range sources {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("tool_%d_%d", s, i))
		}
		f := &fake{}
		l := listed(Tools, names...)
		l.Public = public
		f.set(Tools, l)
		all = append(all, f.source(fmt.Sprint("s", s), Rules{}))
	}
	v := NewView(all, nil)
	tb.Cleanup(v.Close)
	if _, err := v.Page(tb.Context(), Tools, ""); err != nil {
		tb.Fatal(err)
	}
	return v
}

func BenchmarkFind(b *testing.B) {
	for _, sources := range []int{1, 10} {
		for _, public := range []bool{true, false} {
			b.Run(fmt.Sprintf("sources=%d/public=%v", sources, public), func(b *testing.B) {
				v := many(b, sources, public)
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					if _, ok, _ := v.Find(ctx, Tools, "tool_0_50"); !ok {
						b.Fatal("not found")
					}
				}
			})
		}
	}
}

func BenchmarkPage(b *testing.B) {
	v := many(b, 10, true)
	v.Invalidate("s1", Tools)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Page(context.WithoutCancel(b.Context()), Tools, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func TestFindAllocs(t *testing.T) {
	v := many(t, 10, false)
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() { _, _, _ = v.Find(ctx, Tools, "tool_3_50") }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
