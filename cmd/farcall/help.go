package main

import (
	"embed"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
	"github.com/farcall-dev/farcall/observe/levels"
)

// The help of commands: mcp-call.txt is that of 'farcall mcp call', with its examples. {NAME} in it
// stands for a file of parts, or for what the program knows.
//
//go:embed help
var helpFiles embed.FS

// addHelp gives the commands their texts.
func addHelp(root *cobra.Command) {
	words := []string{
		"{faults}", faultHelp(),
		"{logComponents}", strings.Join(levels.Standard(), ", "), "{redirectURL}",
		mcpauth.DefaultRedirect,
	}
	schemes := "  " + strings.Join(target.Standard().Forms(), "\n  ")
	parts, _ := helpFiles.ReadDir("help/parts")
	for _, p := range parts {
		text := strings.ReplaceAll(helpText("parts/"+p.Name()), "{targetSchemes}", schemes)
		words = append(words, "{"+strings.TrimSuffix(p.Name(), ".txt")+"}", text)
	}
	addHelpOf(root, strings.NewReplacer(words...))
}

// addHelpOf gives a command, and those below it, their texts.
func addHelpOf(cmd *cobra.Command, words *strings.Replacer) {
	if text := helpText(helpName(cmd)); text != "" {
		cmd.Long, cmd.Example, _ = strings.Cut(words.Replace(text), "\n\nExamples:\n")
	}
	for _, c := range cmd.Commands() {
		addHelpOf(c, words)
	}
}

// helpName is the name of the file of a command.
func helpName(cmd *cobra.Command) string {
	return strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "farcall "), " ", "-") + ".txt"
}

// helpText returns a file of the help, or "".
func helpText(name string) string {
	text, _ := helpFiles.ReadFile(path.Join("help", name))
	return strings.TrimRight(string(text), "\n")
}
