package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// What a release sets: -ldflags "-X main.version=v1.2.3 -X main.commit=0123456789ab -X
// main.date=2026-01-31T00:00:00Z". Without them, what Go recorded about the build is used.
var (
	version string
	commit  string
	date    string // of the commit, RFC 3339
)

func newVersionCmd(e *env) *cobra.Command {
	return noArgs("version", "Print the version, the commit and its date", func() error {
		return e.say("%s", versionLine())
	})
}

// versionLine returns the version, the commit with its date, Go's version and the platform.
func versionLine() string {
	name := versionName()
	if c := commitName(); c != "" {
		name += " (commit " + c
		if d := sourceDate(); !d.IsZero() {
			name += ", " + d.Format(time.DateOnly)
		}
		name += ")"
	}
	return fmt.Sprintf("farcall %s %s %s/%s", name, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionName returns the version of a release or of a module, or "devel".
func versionName() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// commitName returns the first 12 digits of the commit that the program was built from, or "".
func commitName() string {
	if name := cmp.Or(commit, buildSetting("vcs.revision")); len(name) >= 12 {
		return name[:12]
	}
	return commit
}

// sourceDate returns the date of the commit in UTC, or the zero time.
func sourceDate() time.Time {
	t, err := time.Parse(time.RFC3339, cmp.Or(date, buildSetting("vcs.time")))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// buildSetting returns what Go recorded about the build under a key, or "".
func buildSetting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// newManCmd writes the man pages that release archives carry. It is hidden: packagers need it,
// users do not.
func newManCmd(e *env) *cobra.Command {
	cmd := command("man DIRECTORY", "Write the man pages into a directory",
		func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man pages are for every user
				return err
			}
			root := newRootCmd(e)
			root.DisableAutoGenTag = true // the same pages from the same source
			date := sourceDate()
			header := &doc.GenManHeader{
				Section: "1", Source: "farcall " + versionName(), Manual: "farcall",
				Date: &date,
			}
			return doc.GenManTree(root, header, args[0])
		})
	cmd.Args, cmd.Hidden = cobra.ExactArgs(1), true
	return cmd
}
