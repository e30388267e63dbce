package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/guard"
)

// TestReplayKeepsChainsApart: a line that repeats another one repeats the one in the same chain,
// also when the files of several chains are given, or stand in one; a chain goes on from file to
// file.
func TestReplayKeepsChainsApart(t *testing.T) {
	config := &guard.Config{Anonymous: true, Allow: []guard.Rule{{Calls: []string{"new"}}}}
	g, err := offlineGuard(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	line := func(chain string, seq int, call, more string) string {
		return fmt.Sprintf(
			`{"decision":"denied","principal":"anonymous","kind":"anonymous","method":"none",`+
				`"address":"192.0.2.1","transport":"http","call":%q%s,"seq":%d,"prev":"%s%d","hash":"%s%d"}`+
				"\n",
			call, more, seq, chain, seq-1, chain, seq)
	}
	const repeats = `,"of":2,"repeats":5`
	for _, c := range []struct {
		name                     string
		files                    []string
		same, changed, undecided int
	}{
		{"one chain", []string{line("a", 2, "new", "") + line("a", 3, "new", repeats)}, 0, 6, 0},
		{
			"a chain in two files",
			[]string{line("a", 2, "new", ""), line("a", 3, "new", repeats)},
			0, 6, 0,
		},
		{"lines left out", []string{line("a", 2, "new", "") + line("a", 9, "new", repeats)}, 0, 6, 0},
		{
			"two chains in two files",
			[]string{line("a", 2, "new", ""), line("b", 3, "old", repeats)},
			0, 1, 5,
		},
		{
			"two chains in one file",
			[]string{line("a", 2, "new", "") + line("b", 3, "old", repeats)},
			0, 1, 5,
		},
		{"each with its own", []string{
			line("a", 2, "new", "") + line("a", 3, "new", repeats),
			line("b", 2, "old", "") + line("b", 3, "old", repeats),
		}, 6, 6, 0},
	} {
		r := &replayer{
			config: config, guard: g,
			report: replayReport{Causes: map[string]int{}, Changes: map[string]int{}},
			was:    map[uint64]*replayed{},
		}
		for i, text := range c.files {
			if err := r.read(fmt.Sprint(i), strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.report; got.Same != c.same || got.Changed != c.changed ||
			got.Undecided != c.undecided {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
