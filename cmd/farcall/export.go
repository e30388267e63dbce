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

const exportLong = `Write a capture in a format that other tools read.

har is HAR 1.2 for browsers and viewers, in which connections other than HTTP have
_webSocketMessages. otlp has a span for each call, in the JSON of OTLP, for a collector. curl has a
line of curl or shell for each message of a client. pcapng is for Wireshark and tshark, which show
each frame as JSON.

Frames are written as they are read: the size of the capture needs no memory. Secrets that were
replaced in the capture stay replaced.`

type exportFlags struct {
	*env
	format, out, filter, url string
}

func newExportCmd(e *env) *cobra.Command {
	f := &exportFlags{env: e}
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write a capture as HAR, OTLP, curl or pcapng",
		Long:  exportLong,
		Example: `  farcall export a.jsonl --format har --out a.har
  farcall export a.jsonl --format pcapng --out a.pcapng --filter 'method:tools/*'
  farcall export a.jsonl --format curl --url http://127.0.0.1:7331/mcp`,
		RunE: func(_ *cobra.Command, args []string) error { return f.run(args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "har", "write this `FORMAT`: "+strings.Join(export.Formats(), ", "))
	flags.StringVar(&f.out, "out", "", "write to this `file`, with mode 0600 (default: standard output)")
	flags.StringVar(&f.filter, "filter", "", "write only frames that the `filter` selects, as 'farcall view' takes it")
	flags.StringVar(&f.url, "url", "", "send the requests of curl to this `URL` (default: where the capture says)")
	return cmd
}

func (f *exportFlags) run(args []string) error {
	if len(args) != 1 {
		return usagef("For example: farcall export a.jsonl --format har", "export takes one FILE")
	}
	if !slices.Contains(export.Formats(), f.format) {
		return usagef("Write --format "+strings.Join(export.Formats(), ", ")+".", "--format: there is no format %q", f.format)
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
	return errors.Join(export.Write(out, r, f.format, &export.Options{Filter: filter, URL: f.url}), end())
}
