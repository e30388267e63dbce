package toolsearch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/toolsearch"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// catalogueOf reads the catalogue of testdata: the tools with their queries, and queries that no
// tool fits.
func catalogueOf(t *testing.T) (s *set, foreign []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "office.txt"))
	if err != nil {
		t.Fatal(err)
	}
	s = &set{}
	for line := range strings.Lines(string(text)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "#":
		case "!":
			foreign = append(foreign, rest)
		case "?":
			s.ask(rest)
		default:
			s.offer(t, kind, rest)
		}
	}
	return s, foreign
}

func (s *set) ask(line string) {
	query, all, _ := strings.Cut(line, " = ")
	right := map[string]int{}
	for tool := range strings.SplitSeq(all, ", ") {
		right[strings.ReplaceAll(tool, " ", "__")] = 1
	}
	s.Queries = append(s.Queries, struct {
		Query string
		Right map[string]int
	}{query, right})
}

func (s *set) offer(t *testing.T, server, line string) {
	t.Helper()
	parts := strings.Split(line, " | ")
	properties := map[string]any{}
	for name := range strings.FieldsSeq(parts[2]) {
		properties[name] = map[string]string{"type": "string"}
	}
	raw, err := jsonv2.Append(nil, map[string]any{
		"name": parts[0], "description": parts[1],
		"inputSchema": map[string]any{"type": "object", "properties": properties},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Tools = append(s.Tools, struct {
		Server     string
		Definition jsonrpc.Raw
	}{server, raw})
}

// The ranking does not get worse: a change that loses more than one query of the catalogue fails.
func TestOffice(t *testing.T) {
	t.Parallel()
	s, foreign := catalogueOf(t)
	x := s.index(t)
	f := s.measure(x)
	weak := 0
	for _, q := range foreign {
		if r := x.Search(&toolsearch.Query{Text: q}, nil); r.Weak {
			weak++
		}
	}
	n := float64(len(s.Queries))
	t.Logf("%d tools, %d queries: hit@1 %.3f, hit@3 %.3f, hit@5 %.3f, MRR %.3f",
		len(s.Tools), len(s.Queries), f.hit1, f.hit3, f.hit5, f.mrr)
	t.Logf("weak: %.0f of them, and %d of %d foreign ones", f.weak*n, weak, len(foreign))
	for _, row := range []struct {
		name      string
		got, want float64
	}{
		{"hit@1", f.hit1 * n, 43},
		{"hit@3", f.hit3 * n, 52},
		{"hit@5", f.hit5 * n, 55},
		{"foreign queries that are weak", float64(weak), 20},
	} {
		if row.got < row.want-1.5 {
			t.Errorf("%s: %.0f, was %.0f", row.name, row.got, row.want)
		}
	}
	if t.Failed() {
		for _, q := range s.Queries {
			r := x.Search(&toolsearch.Query{Text: q.Query, Limit: 5}, nil)
			var line strings.Builder
			fmt.Fprintf(&line, "%q (%v):", q.Query, q.Right)
			for _, i := range r.Tools {
				line.WriteString(" " + x.Tool(i).Name)
			}
			t.Log(line.String())
		}
	}
}
