package interop

import (
	"encoding/json"
	"slices"
	"testing"
)

// The client of the TypeScript SDK uses our server.
func TestMCPTypeScriptClient(t *testing.T) {
	p := serveOurs(t)
	stdio := command(p.stdio())[1:]
	for name, test := range map[string]struct {
		args     []string
		revision string
	}{
		"http modern":  {[]string{"modern", "http", p.http}, "2026-07-28"},
		"http auto":    {[]string{"auto", "http", p.http}, "2026-07-28"},
		"http legacy":  {[]string{"legacy", "http", p.http}, "2025-11-25"},
		"sse":          {[]string{"legacy", "sse", p.sse}, "2025-11-25"},
		"stdio modern": {append([]string{"modern", "stdio"}, stdio...), "2026-07-28"},
		"stdio legacy": {append([]string{"legacy", "stdio"}, stdio...), "2025-11-25"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got struct {
				Revision                        string
				Tools, Resources, Prompts       []string
				Add                             sum
				Fail, Ask, Visit, Think, Places string
				Read, Prompt, Wait, Cancelled   string
				Complete                        []string
				Progress                        []float64
			}
			if err := json.Unmarshal(node(t, nil, append([]string{"mcp-client.mjs"}, test.args...)...),
				&got); err != nil {
				t.Fatal(err)
			}
			if got.Revision != test.revision {
				t.Errorf("the revision is %s", got.Revision)
			}
			if len(got.Tools) < 12 || len(got.Resources) != 2 || len(got.Prompts) != 1 {
				t.Errorf("lists: %q, %q, %q", got.Tools, got.Resources, got.Prompts)
			}
			for _, one := range [][2]string{
				{got.Fail, "error: it went wrong"},
				{got.Ask, "Hello, Ada!"},
				{got.Visit, "Visited."},
				{got.Think, "It says Paris"},
				{got.Places, root},
				{got.Read, "Note 7."},
				{got.Prompt, "Please greet Bob."},
				{got.Wait, "cancelled"},
				{got.Cancelled, "1"},
			} {
				if one[0] != one[1] {
					t.Errorf("%q; want %q", one[0], one[1])
				}
			}
			if got.Add.Sum != 5 || !slices.Equal(got.Complete, []string{"Bea", "Bob"}) {
				t.Errorf("add = %d, complete = %q", got.Add.Sum, got.Complete)
			}
			if !slices.Equal(got.Progress, []float64{1, 2, 3, 4, 5}) {
				t.Errorf("progress %v", got.Progress)
			}
		})
	}
}
