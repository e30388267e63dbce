package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farcall-dev/farcall/jsonrpc"
)

var updateReference = flag.Bool("update", false, "write docs/reference")

// TestReference compares the pages of docs/reference with the commands and error codes of the
// program.
func TestReference(t *testing.T) {
	for name, page := range map[string]string{
		"commands.md": commandsPage(),
		"errors.md":   errorsPage(),
	} {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *updateReference {
			if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != page {
			t.Errorf(
				"docs/reference/%s is out of date: run go test ./cmd/farcall -run TestReference -update", name)
		}
	}
}

const generated = "\n<!-- go test ./cmd/farcall -run TestReference -update writes this page. -->\n"

func commandsPage() string {
	var b bytes.Buffer
	root := newRootCmd(&env{getenv: func(string) string { return "" }})
	fmt.Fprintf(&b, "# Commands\n%s\n```\n%s\n```\n", generated, root.Long)
	root.InitDefaultHelpCmd()
	writeCommands(&b, root.Commands())
	return b.String()
}

func writeCommands(b *bytes.Buffer, all []*cobra.Command) {
	for _, c := range all {
		if !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
		if c.Runnable() {
			fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
		}
		if long := strings.TrimSpace(c.Long); long != "" {
			fmt.Fprintf(b, "\n```\n%s\n```\n", long)
		}
		if c.HasExample() {
			fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", c.Example)
		}
		if rows := flagRows(c); len(rows) > 0 {
			fmt.Fprintf(b, "\n| flag | what it does |\n|---|---|\n%s\n", strings.Join(rows, "\n"))
		}
		writeCommands(b, c.Commands())
	}
}

func flagRows(c *cobra.Command) (rows []string) {
	c.InitDefaultHelpFlag()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		if name != "" {
			flag += " " + name
		}
		if !slices.Contains([]string{"", "false", "[]", "0", "0s"}, f.DefValue) {
			usage += " (default `" + f.DefValue + "`)"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", flag, cell(usage)))
	})
	return rows
}

func errorsPage() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Error codes\n%s\n", generated)
	b.WriteString(
		"The codes that farcall sends, and those of its peers that `farcall errors` explains. An empty " +
			"cell:\nthe condition has no code there.\n\n" +
			"| name | JSON-RPC | MCP up to 2025-11-25 | MCP 2026-07-28 | HTTP | category | what to do |\n" +
			"|---|---|---|---|---|---|---|\n")
	for _, c := range jsonrpc.Conditions() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", cell(c.Name), code(c.Plain),
			code(c.Legacy), code(c.Modern),
			number(c.HTTPStatus), cell(c.Category), cell(advice(c)))
	}
	return b.String()
}

func code(c jsonrpc.Code) string {
	if c == 0 {
		return ""
	}
	return strconv.Itoa(int(c))
}

// cell makes a text fit into a cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

// TestHelpFiles checks that each file of the help belongs to a command, and that each name in
// braces is replaced.
func TestHelpFiles(t *testing.T) {
	used := map[string]bool{}
	name := regexp.MustCompile(`\{[a-zA-Z]+\}`)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		used[helpName(cmd)] = true
		if left := name.FindString(cmd.Long); left != "" {
			t.Errorf("%s: %s", cmd.CommandPath(), left)
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newRootCmd(&env{getenv: func(string) string { return "" }}))
	files, err := helpFiles.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !f.IsDir() && !used[f.Name()] {
			t.Errorf("help/%s belongs to no command", f.Name())
		}
	}
}
