package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set when a release is built (-ldflags "-X main.version=v1.2.3").
var version string

// commit is set where Go does not find the commit itself (-ldflags "-X main.commit=0123456789ab").
var commit string

func newVersionCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(e.stdout, versionLine())
			return err
		},
	}
}

// versionLine names the version, the commit it was built from and the
// platform.
func versionLine() string {
	name := versionName()
	if c := commitName(); c != "" && !strings.Contains(name, c) {
		name += " (commit " + c + ")"
	}
	return fmt.Sprintf("farcall %s %s %s/%s", name, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commitName returns the first 12 digits of the commit that the program was built from, or "".
func commitName() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return ""
}

func versionName() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel"
}
