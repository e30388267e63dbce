package interop

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inspect runs the Inspector and returns what it printed, and the error of its
// exit status.
func inspect(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	script := filepath.Join("node_modules", ".bin", "mcp-inspector")
	return nodeCommand(t, ctx, append([]string{script, "--cli"}, args...)...).CombinedOutput()
}

// The Inspector uses what "farcall serve" serves.
func TestMCPInspector(t *testing.T) {
	t.Parallel()
	address := "http://" + serve(t)
	http := func(era string) []string {
		return []string{"--server-url", address + "/mcp", "--transport", "http", "--protocol-era", era}
	}
	stdio := []string{"--", farcallPath, "serve", "--stdio", "--log", "off"}
	for way, where := range map[string][2][]string{ // before and after the other arguments
		"legacy":       {http("legacy"), nil},
		"auto":         {http("auto"), nil},
		"modern":       {http("modern"), nil},
		"sse":          {{"--server-url", address + "/sse", "--transport", "sse"}, nil},
		"stdio":        {nil, stdio},
		"stdio modern": {{"--protocol-era", "modern"}, stdio},
	} {
		for name, test := range map[string]struct {
			args, want string
			rare       bool // not tried everywhere
		}{
			"tools":     {"tools/list --strict", "0 errors", false},
			"call":      {"tools/call --tool-name math_add --tool-arg a=2 b=3", `"text": "5"`, false},
			"fail":      {"tools/call --tool-name math_add --tool-arg a=x b=3", "", true},
			"cannot":    {"tools/call --tool-name demo_form", "", true}, // it cannot ask its user
			"resources": {"resources/list", "playground://picture", true},
			"read":      {"resources/read --uri playground://users/7", "application/json", false},
			"templates": {"resources/templates/list", "playground://users/{user_id}", true},
			"prompts":   {"prompts/list", "review_events", true},
			"prompt": {
				"prompts/get --prompt-name calculate --prompt-args operation=add a=2 b=3",
				"math_add with a = 2 and b = 3", true,
			},
		} {
			if test.rare && way != "legacy" && way != "modern" {
				continue
			}
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				out, err := inspect(t,
					slices.Concat(where[0], []string{"--method"}, strings.Fields(test.args), where[1])...)
				if (err != nil) != (test.want == "") || !bytes.Contains(out, []byte(test.want)) {
					t.Errorf("%v\n%s\nwant %q", err, out, test.want)
				}
			})
		}
	}
}

// Of the schemas of the official suite's server, too, it must say nothing bad,
// and its skills must be as they should.
func TestMCPInspectorStrict(t *testing.T) {
	url := []string{
		"--server-url", "http://" + fixture(t) + "/mcp", "--transport", "http",
		"--protocol-era", "modern", "--method",
	}
	for args, want := range map[string]string{
		"tools/list --strict":                                   "test_simple_text",
		"skills/list --verify":                                  "no conformance errors",
		"skills/get --uri skill://release-notes/SKILL.md":       `"digest": "sha256:`,
		"resources/directory/read --uri skill://pdf-processing": "inode/directory",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			if out, err := inspect(t, append(slices.Clip(url), strings.Fields(args)...)...); err != nil ||
				!bytes.Contains(out, []byte(want)) {
				t.Errorf("%v\n%s\nwant %q", err, out, want)
			}
		})
	}
}
