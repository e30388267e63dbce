package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/export"
)

type exportFlags struct {
	*env
	format, out, filter, url string
}

func newExportCmd(e *env) *cobra.Command {
	f := &exportFlags{env: e}
	cmd := command("export FILE", "Write a capture as HAR, OTLP, curl or pcapng",
		func(_ *cobra.Command, args []string) error { return f.run(args) })
	cmd.Args = oneFile("farcall export a.jsonl --format har")
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "har",
		"write this `FORMAT`: "+strings.Join(export.Formats(), ", "))
	flags.StringVar(&f.out, "out", "",
		"write to this `file`, with mode 0600 (default: standard output)")
	flags.StringVar(&f.filter, "filter", "",
		"write only frames that the `filter` selects, as 'farcall view' takes it")
	flags.StringVar(&f.url, "url", "",
		"send the requests of curl to this `URL` (default: where the capture says)")
	return cmd
}

func (f *exportFlags) run(args []string) error {
	if !slices.Contains(export.Formats(), f.format) {
		return usagef("Write --format "+strings.Join(export.Formats(), ", ")+".",
			"--format: there is no format %q", f.format)
	}
	filter, err := capture.ParseFilter(f.filter)
	if err != nil {
		return usagef("Run 'farcall view --help' for the language.", "%w", err)
	}
	r, err := capture.Open(args[0])
	if err != nil {
		return unreadable("the capture", args[0], err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	out, end := f.stdout, func() error { return nil }
	if f.out != "" {
		file, err := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return unreadable("the file", f.out, err)
		}
		out, end = io.Writer(file), file.Close
	}
	return errors.Join(export.Write(out, r, f.format, &export.Options{Filter: filter, URL: f.url}),
		end())
}
