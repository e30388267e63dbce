package main

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// maxDocument bounds a list of tools, or an OpenRPC document.
const maxDocument = 64 << 20

// changeFlags say how answers are compared, and how changes are printed.
type changeFlags struct {
	exact, strict bool
	format        string
}

func (f *changeFlags) register(cmd *cobra.Command, formats string) {
	flags := cmd.Flags()
	flags.BoolVar(&f.exact, "exact", false, "compare the values of answers, too: each that differs is breaking")
	flags.BoolVar(&f.strict, "strict", false, "fail when a change is unclear, too")
	flags.StringVar(&f.format, "format", "text", "print the changes as `FORMAT`: "+formats)
}

type diffFlags struct {
	*env
	changeFlags

	ignore   []string
	redacted bool
	upstream string
}

func newDiffCmd(e *env) *cobra.Command {
	f := &diffFlags{env: e}
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare captures, lists of tools or OpenRPC documents",
		RunE:  func(_ *cobra.Command, args []string) error { return f.run(args) },
	}
	f.register(cmd, "text, json, junit or sarif")
	flags := cmd.Flags()
	flags.StringArrayVar(&f.ignore, "ignore", nil, ignoreUsage)
	flags.BoolVar(&f.redacted, "redacted", false, redactedUsage)
	flags.StringVar(&f.upstream, "upstream", "", upstreamUsage)
	return cmd
}

func (f *diffFlags) run(args []string) error {
	if len(args) != 2 {
		return usagef("For example: farcall diff a.jsonl b.jsonl", "diff takes two files")
	}
	compare := diff.New(&diff.Options{Exact: f.exact, Ignore: f.ignore})
	var documents [2][]byte
	for i, path := range args {
		var err error
		if documents[i], err = readDocument(path); err != nil {
			return err
		}
	}
	report := &mock.Report{}
	switch was, is := documents[0], documents[1]; {
	case was != nil && is != nil:
		found, err := compare.Documents(was, is)
		if err != nil {
			return usagef("", "%s, %s: %w", args[0], args[1], err)
		}
		report.Results = []mock.Result{{Findings: found}}
	case was != nil || is != nil:
		return usagef("Compare two captures, two lists of tools, or two OpenRPC documents.",
			"%s and %s are not of the same kind", args[0], args[1])
	default:
		var scripts [2]*mock.Script
		for i, path := range args {
			var err error
			if scripts[i], err = loadScript(path, &mock.Part{Upstream: f.upstream, Redacted: f.redacted}); err != nil {
				return err
			}
		}
		report = mock.Compare(scripts[0], scripts[1], compare)
	}
	return f.print(f.env, report, args[0])
}

// readDocument returns a file that is one JSON text; nil: it is a capture, or may be one.
func readDocument(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable("the file", path, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxDocument {
		return nil, nil
	}
	r, err := capture.Open(path)
	if err == nil {
		defer r.Close() //nolint:errcheck // it was only read
		if rec, err := r.Next(); err == nil && rec.Type == "capture" {
			return nil, nil
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable("the file", path, err)
	}
	data = bytes.TrimSpace(data)
	if err := jsonrpc.Valid(data); err != nil {
		return nil, usagef("", "%s: it is not a capture, and not JSON: %w", path, err)
	}
	return data, nil
}
