package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// print prints the changes of a report, and fails when one is of a level that counts. File is where
// the calls stand.
func (f *changeFlags) print(e *env, report *mock.Report, file string) error {
	var err error
	switch f.format {
	case "text":
		err = f.printText(e, report)
	case "json":
		err = printIndented(e, changesOf(report))
	case "sarif":
		err = printIndented(e, sarifOf(report, file))
	case "junit":
		err = f.printJUnit(e, report, file)
	default:
		return usagef("Write --format text, json, junit or sarif.", "--format: there is no format %q",
			f.format)
	}
	if err == nil && f.failed(report) > 0 {
		return &exitError{code: exitFailure}
	}
	return err
}

// counts reports whether a change makes the run fail.
func (f *changeFlags) counts(change *diff.Finding) bool {
	return change.Level == diff.Breaking || f.strict && change.Level == diff.Unclear
}

func (f *changeFlags) failed(report *mock.Report) (n int) {
	for _, r := range report.Results {
		for i := range r.Findings {
			if f.counts(&r.Findings[i]) {
				n++
			}
		}
	}
	return n
}

func (f *changeFlags) printText(e *env, report *mock.Report) error {
	var b strings.Builder
	levels := map[diff.Level]int{}
	for _, r := range report.Results {
		for _, c := range r.Findings {
			levels[c.Level]++
			if r.Seq > 0 {
				fmt.Fprintf(&b, "#%d %s ", r.Seq, tame(strings.TrimSpace(r.Method+" "+r.Name)))
			}
			fmt.Fprintf(&b, "%s: %s %s\n", c.Level, c.Rule, tame(c.Path))
			if c.Was != "" {
				fmt.Fprintf(&b, "  was %s\n", tame(shortOf(c.Was)))
			}
			if c.Is != "" {
				fmt.Fprintf(&b, "  is  %s\n", tame(shortOf(c.Is)))
			}
		}
	}
	if len(report.Results) > 0 && report.Results[0].Seq > 0 {
		fmt.Fprintf(&b, "%s, %d with changes: ", countOf(len(report.Results), "call"), report.Changed())
	}
	fmt.Fprintf(&b, "%d breaking, %d unclear, %d compatible\n",
		levels[diff.Breaking], levels[diff.Unclear], levels[diff.Compatible])
	_, err := fmt.Fprint(e.stdout, b.String())
	return err
}

// A changedCall is a call with its changes, in JSON.
type changedCall struct {
	Seq    uint64         `json:"seq,omitzero"`
	Method string         `json:"method,omitzero"`
	Name   string         `json:"name,omitzero"`
	Change []diff.Finding `json:"changes"`
}

type changes struct {
	Calls int           `json:"calls"`
	All   []changedCall `json:"changed"`
}

func changesOf(report *mock.Report) *changes {
	c := &changes{Calls: len(report.Results), All: []changedCall{}}
	for _, r := range report.Results {
		if len(r.Findings) > 0 {
			c.All = append(c.All, changedCall{r.Seq, r.Method, r.Name, r.Findings})
		}
	}
	return c
}

// printIndented prints a value as indented JSON.
func printIndented(e *env, value any) error {
	raw, err := jsonv2.Append(nil, value)
	if err == nil {
		_, err = fmt.Fprintf(e.stdout, "%s\n", pretty(raw, false))
	}
	return err
}

// sarifOf returns a report as SARIF 2.1.0.
func sarifOf(report *mock.Report, file string) map[string]any {
	type object = map[string]any
	rules, results, known := []object{}, []object{}, map[string]bool{}
	levels := map[diff.Level]string{
		diff.Breaking: "error", diff.Unclear: "warning",
		diff.Compatible: "note",
	}
	for _, r := range report.Results {
		for _, c := range r.Findings {
			if !known[c.Rule] {
				known[c.Rule] = true
				rules = append(rules, object{"id": c.Rule})
			}
			where := strings.TrimSpace(strings.Join([]string{r.Method, r.Name, c.Path}, " "))
			at := object{"physicalLocation": object{"artifactLocation": object{"uri": file}}}
			if where != "" {
				at["logicalLocations"] = []object{{"fullyQualifiedName": where}}
			}
			message := fmt.Sprintf("%s: was %s, is %s", where, shortOf(c.Was), shortOf(c.Is))
			results = append(results, object{
				"ruleId": c.Rule, "level": levels[c.Level], "message": object{"text": message},
				"locations": []object{at},
			})
		}
	}
	driver := object{"name": "farcall", "rules": rules}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
}

// The parts of JUnit's XML that are written.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// printJUnit prints a test suite: a call is a test.
func (f *changeFlags) printJUnit(e *env, report *mock.Report, file string) error {
	suite := junitSuite{Name: file, Tests: len(report.Results)}
	for _, r := range report.Results {
		c := junitCase{
			Class: r.Method, Time: strconv.FormatFloat(r.Took.Seconds(), 'f', 6, 64),
			Name: fmt.Sprintf("#%d %s", r.Seq, strings.TrimSpace(r.Method+" "+r.Name)),
		}
		for i := range r.Findings {
			change := &r.Findings[i]
			if !f.counts(change) {
				continue
			}
			if c.Failure == nil {
				c.Failure = &junitFailure{Message: change.Rule + " " + change.Path}
				suite.Failures++
			}
			c.Failure.Text += fmt.Sprintf("%s: %s %s: was %s, is %s\n",
				change.Level, change.Rule, change.Path, shortOf(change.Was), shortOf(change.Is))
		}
		suite.Cases = append(suite.Cases, c)
	}
	raw, err := xml.MarshalIndent(&suite, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(e.stdout, "%s%s\n", xml.Header, raw)
	}
	return err
}

// maxDocument bounds a list of tools, or an OpenRPC document.
const maxDocument = 64 << 20

// changeFlags say how answers are compared, and how changes are printed.
type changeFlags struct {
	exact, strict bool
	format        string
}

func (f *changeFlags) register(cmd *cobra.Command, formats string) {
	flags := cmd.Flags()
	flags.BoolVar(&f.exact, "exact", false,
		"compare the values of answers, too: each that differs is breaking")
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
	cmd := command("diff A B", "Compare captures, lists of tools or OpenRPC documents",
		func(_ *cobra.Command, args []string) error { return f.run(args) })
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
			if scripts[i], err = loadScript(path,
				&mock.Part{Upstream: f.upstream, Redacted: f.redacted}); err != nil {
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
