package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var exampleWord = regexp.MustCompile(`'[^']*'|[^ ']+`)

// TestMCPExamples runs the examples of the help that call the playground.
func TestMCPExamples(t *testing.T) {
	needsScripts(t)
	t.Parallel()
	host := strings.TrimPrefix(serve(t, "--listen", "127.0.0.1:0", "--log", "off").addrs[0], "http://")
	dir := t.TempDir()
	seen := 0
	for _, line := range examples(newRootCmd(&env{})) {
		words := strings.Fields(line)
		if !strings.Contains(line, "farcall mcp") || !strings.Contains(line, "localhost:7331") ||
			words[2] == "listen" || words[len(words)-1] == "ID" {
			continue
		}
		seen++
		line, _, _ = strings.Cut(strings.TrimSpace(line), " > ") // to a file
		line, _, _ = strings.Cut(line, "   ")                    // what it is
		var args []string
		for _, m := range exampleWord.FindAllString(strings.ReplaceAll(line, "localhost:7331", host),
			-1) {
			args = append(args, strings.Trim(m, "'"))
		}
		cmd := program(t, args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if seen < 15 {
		t.Errorf("only %d examples were run", seen)
	}
}

// examples are the lines of the examples of a command and of those below it.
func examples(cmd *cobra.Command) []string {
	lines := strings.Split(cmd.Example, "\n")
	for _, sub := range cmd.Commands() {
		lines = append(lines, examples(sub)...)
	}
	return lines
}
