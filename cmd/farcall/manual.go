package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCmd writes the man pages that release archives carry. It is hidden: packagers need it,
// users do not.
func newManCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the man pages into a directory",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man pages are for every user
				return err
			}
			root := newRootCmd(e)
			root.DisableAutoGenTag = true // the same pages from the same source
			date := sourceDate()
			header := &doc.GenManHeader{Section: "1", Source: "farcall " + versionName(), Manual: "farcall", Date: &date}
			return doc.GenManTree(root, header, args[0])
		},
	}
}
