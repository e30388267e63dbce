package farcall_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update", false, "write the table of ARCHITECTURE.md")

// The table of ARCHITECTURE.md has a row for each package of archLadder, with the same imports.
func TestArchitectureDocs(t *testing.T) {
	raw, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| package | imports of ours | imports of others | names |\n|---|---|---|---|\n"
	_, got, found := strings.Cut(string(raw), head)
	if got, _, _ = strings.Cut(got, "\n\n"); !found {
		t.Fatal("ARCHITECTURE.md has no table of packages")
	}
	want := strings.TrimSpace(ladderTable())
	switch {
	case got == want:
	case *updateDocs:
		if err := os.WriteFile("ARCHITECTURE.md",
			[]byte(strings.Replace(string(raw), head+got, head+want, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the table of ARCHITECTURE.md is not that of archLadder: run 'go test . -run " +
			"TestArchitectureDocs -update'")
	}
}

// ladderTable writes archLadder in Markdown, from the bottom up.
func ladderTable() string {
	heights := map[string]int{}
	var height func(p string) int
	height = func(p string) int {
		if h, known := heights[p]; known {
			return h
		}
		h := 0
		for below := range strings.FieldsSeq(archLadder[p].ours) {
			h = max(h, height(below)+1)
		}
		heights[p] = h
		return h
	}
	all := slices.SortedFunc(maps.Keys(archLadder), func(a, b string) int {
		return cmp.Or(cmp.Compare(height(a), height(b)), cmp.Compare(a, b))
	})
	var b strings.Builder
	for _, p := range all {
		row := archLadder[p]
		name, names := "`"+rowName(p)+"`", ""
		if row.pure {
			name += " (pure)"
		}
		if row.names > 0 {
			names = fmt.Sprint(row.names)
		}
		var outside []string
		for m := range strings.FieldsSeq(row.outside) {
			outside = append(outside, "`"+strings.TrimPrefix(m, "github.com/")+"`")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, groups(strings.Fields(row.ours)),
			cmp.Or(strings.Join(outside, ", "), "–"), names)
	}
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}

func rowName(p string) string {
	if p == "." {
		return "farcall"
	}
	return p
}

// groups writes packages, those of one directory as dir/{a,b}.
func groups(packages []string) string {
	in := map[string][]string{}
	for _, p := range packages {
		dir, name := path.Split(rowName(p))
		in[dir] = append(in[dir], name)
	}
	var list []string
	for _, dir := range slices.Sorted(maps.Keys(in)) {
		names := slices.Sorted(slices.Values(in[dir]))
		switch {
		case dir == "":
			for _, name := range names {
				list = append(list, "`"+name+"`")
			}
		case len(names) == 1:
			list = append(list, "`"+dir+names[0]+"`")
		default:
			list = append(list, "`"+dir+"{"+strings.Join(names, ",")+"}`")
		}
	}
	return cmp.Or(strings.Join(list, ", "), "–")
}
