package toolsearch_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/toolsearch"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A set is a catalogue with queries, each with the tools that are right (2: the best; 1: right,
// too).
type set struct {
	Source string
	Tools  []struct {
		Server     string
		Definition jsonrpc.Raw
	}
	Queries []struct {
		Query string
		Right map[string]int
	}
}

func readSet(t *testing.T, path string) *set {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &set{}
	if err := json.Unmarshal(raw, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *set) index(t *testing.T) *toolsearch.Index {
	t.Helper()
	names := map[string]bool{}
	var tools []toolsearch.Tool
	for _, tool := range s.Tools {
		var d struct{ Name string }
		if err := json.Unmarshal(tool.Definition, &d); err != nil {
			t.Fatal(err)
		}
		name := tool.Server + "__" + d.Name
		names[name] = true
		tools = append(tools,
			toolsearch.Tool{Name: name, Own: d.Name, Server: tool.Server, Raw: tool.Definition})
	}
	for _, q := range s.Queries {
		for name := range q.Right {
			if !names[name] {
				t.Fatalf("%q: there is no tool %s", q.Query, name)
			}
		}
	}
	return toolsearch.New(tools)
}

// figures are what a ranking reaches on a set.
type figures struct {
	hit1, hit3, hit5, recall5, mrr, ndcg, weak float64
	p50, p95                                   int // bytes of an answer
}

func (s *set) measure(x *toolsearch.Index) (f figures) {
	var sizes []int
	for _, q := range s.Queries {
		r := x.Search(&toolsearch.Query{Text: q.Query, Limit: 10}, nil)
		first, gain, best, found := 0, 0.0, 0.0, 0
		for i, tool := range r.Tools {
			grade := q.Right[x.Tool(tool).Name]
			if grade > 0 && first == 0 {
				first = i + 1
			}
			if grade > 0 && i < 5 {
				found++
			}
			gain += (math.Pow(2, float64(grade)) - 1) / math.Log2(float64(i)+2)
		}
		var grades []int
		for _, g := range q.Right {
			grades = append(grades, g)
		}
		slices.Sort(grades)
		slices.Reverse(grades)
		for i, g := range grades[:min(len(grades), 10)] {
			best += (math.Pow(2, float64(g)) - 1) / math.Log2(float64(i)+2)
		}
		for n, hit := range map[int]*float64{1: &f.hit1, 3: &f.hit3, 5: &f.hit5} {
			if first > 0 && first <= n {
				*hit++
			}
		}
		if first > 0 {
			f.mrr += 1 / float64(first)
		}
		f.recall5 += float64(found) / float64(min(len(q.Right), 5))
		f.ndcg += gain / best
		r = x.Search(&toolsearch.Query{Text: q.Query}, nil)
		if r.Weak {
			f.weak++
		}
		a := x.Answer(&r, &toolsearch.Form{})
		sizes = append(sizes, max(len(a.Structured), len(a.Text)))
	}
	n := float64(len(s.Queries))
	for _, v := range []*float64{&f.hit1, &f.hit3, &f.hit5, &f.recall5, &f.mrr, &f.ndcg, &f.weak} {
		*v /= n
	}
	slices.Sort(sizes)
	f.p50, f.p95 = sizes[len(sizes)/2], sizes[len(sizes)*95/100]
	return f
}

// TestEvaluate prints what the ranking reaches on label sets, which are files in the directory
// FARCALL_SEARCH_SETS, each a set in JSON. A file that begins with "heldout" is left out unless
// FARCALL_SEARCH_HELDOUT is set.
func TestEvaluate(t *testing.T) {
	dir := os.Getenv("FARCALL_SEARCH_SETS")
	if dir == "" {
		t.Skip("FARCALL_SEARCH_SETS names no directory")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no sets: ", err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-10s %6s %8s %6s %6s %6s %6s %6s %6s %6s %7s %7s\n",
		"set", "tools", "queries", "hit@1", "hit@3", "hit@5", "R@5", "MRR", "nDCG", "weak", "p50", "p95")
	sets := map[string]*set{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if strings.HasPrefix(name, "heldout") && os.Getenv("FARCALL_SEARCH_HELDOUT") == "" {
			continue
		}
		s := readSet(t, file)
		sets[name] = s
		f := s.measure(s.index(t))
		fmt.Fprintf(&out, "%-10s %6d %8d %6.3f %6.3f %6.3f %6.3f %6.3f %6.3f %6.3f %7d %7d\n",
			name, len(s.Tools), len(s.Queries), f.hit1, f.hit3, f.hit5, f.recall5, f.mrr, f.ndcg, f.weak,
			f.p50, f.p95)
	}
	for name, s := range sets {
		for other, q := range sets {
			if name == other || name == "merged" || other == "merged" {
				continue
			}
			x, weak, n := s.index(t), 0, 0
			for _, one := range q.Queries[:min(len(q.Queries), 60)] {
				if r := x.Search(&toolsearch.Query{Text: one.Query}, nil); r.Weak {
					weak++
				}
				n++
			}
			fmt.Fprintf(&out, "out of scope: queries of %s at %s: %d of %d are weak\n", other, name, weak, n)
		}
	}
	t.Log("\n" + out.String())
}

// alike returns tools with their own words and words in common.
func alike(n int) []toolsearch.Tool {
	tools := make([]toolsearch.Tool, n)
	for i := range tools {
		name := fmt.Sprintf("create_thing_%d", i)
		tools[i] = toolsearch.Tool{
			Name: "server__" + name, Own: name, Server: "server",
			Raw: fmt.Appendf(nil,
				`{"name":"server__%s","description":"Creates thing %d of user %d in project %d.",`+
					`"inputSchema":{"type":"object","properties":{"user":{"type":"string"},`+
					`"thing":{"type":"string","description":"Number %d."}}}}`, name, i, i%50, i%7, i),
		}
	}
	return tools
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{120, 2500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := toolsearch.New(alike(n))
			b.ReportMetric(float64(x.Bytes())/float64(n), "B/tool")
			b.ReportAllocs()
			for b.Loop() {
				x.Search(&toolsearch.Query{Text: "create thing of user 7 in a project", Limit: 6}, nil)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	tools := alike(1000)
	for b.Loop() {
		toolsearch.New(tools)
	}
}
