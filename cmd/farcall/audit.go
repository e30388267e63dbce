package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/audit"
)

func newAuditCmd(e *env) *cobra.Command {
	return newGroup("audit", "Verify the audit of a guard", "There is verify.", newAuditVerifyCmd(e))
}

// verifying is what the flags of audit verify say.
type verifying struct {
	*env
	config, key, since string
	asJSON             bool
}

func newAuditVerifyCmd(e *env) *cobra.Command {
	v := &verifying{env: e}
	cmd := command("verify [FILE…]", "Find lines of an audit that are missing or were changed",
		func(_ *cobra.Command, args []string) error { return v.run(args) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&v.config, "config", "c", "", "the `file` with the guard")
	f.StringVar(&v.key, "key", "", "the `file` with the key of the audit")
	f.StringVar(&v.since, "since", "",
		"a line that was noted, `NUMBER:HASH`: what is before it is not looked at")
	f.BoolVar(&v.asJSON, "json", false, "print JSON")
	return cmd
}

func (v *verifying) run(args []string) error {
	var o audit.VerifyOptions
	if v.config != "" {
		c, err := loadGuarded(v.config)
		if err != nil {
			return err
		}
		if o.Key = []byte(c.Guard.Audit.Key); len(args) == 0 && c.Guard.Audit.File != "" &&
			c.Guard.Audit.File != "-" {
			args = []string{c.Guard.Audit.File}
		}
	}
	if len(args) == 0 {
		return usagef("For example: farcall audit verify audit.jsonl",
			"no FILE, and no --config with an audit in a file")
	}
	if v.key != "" {
		raw, err := os.ReadFile(v.key)
		if err != nil {
			return unreadable("the key", v.key, err)
		}
		o.Key = []byte(strings.TrimSpace(string(raw)))
	}
	if v.since != "" {
		since, err := audit.ParseCheckpoint(v.since)
		if err != nil {
			return usagef("Take what 'farcall audit verify' has printed after head.", "--since: %q is %w",
				v.since, err)
		}
		o.Since = &since
	}
	report, err := verifyFiles(args, &o)
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return err
	} else if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	return v.print(report)
}

// verifyFiles verifies files and those before them.
func verifyFiles(args []string, o *audit.VerifyOptions) (*audit.Report, error) {
	var names []string
	for _, path := range args {
		files, err := audit.Files(path)
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var texts []audit.Text
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, unreadable("the audit", name, err)
		}
		defer f.Close() //nolint:errcheck // it is only read
		texts = append(texts, audit.Text{Name: name, In: f})
	}
	return audit.Verify(texts, o)
}

// verified is the form of --json.
type verified struct {
	OK       bool            `json:"ok"`
	Lines    int             `json:"lines"`
	First    uint64          `json:"first"`
	Last     uint64          `json:"last"`
	Head     string          `json:"head"`
	Open     int             `json:"open"` // calls without an outcome
	Findings []audit.Finding `json:"findings"`
	More     int             `json:"more,omitempty"`
	Notes    []audit.Finding `json:"notes,omitempty"`
}

func findingText(f audit.Finding) string {
	if f.File == "" {
		return f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

func (v *verifying) print(r *audit.Report) error {
	out := verified{
		OK: len(r.Findings) == 0, Lines: r.Lines, First: r.First, Last: r.Last,
		Head: fmt.Sprintf("%d:%s", r.Head.Seq, r.Head.Hash),
		Open: r.Open, More: r.More, Findings: append([]audit.Finding{}, r.Findings...), Notes: r.Notes,
	}
	var err error
	if v.asJSON {
		err = v.printValue(out)
	} else {
		v.show(&out)
	}
	if err == nil && !out.OK {
		return &exitError{code: exitFailure}
	}
	return err
}

func (v *verifying) show(out *verified) {
	for _, f := range out.Findings {
		fmt.Fprintln(v.stdout, v.paint(colourRed, "bad ")+" "+tame(findingText(f)))
	}
	if out.More > 0 {
		fmt.Fprintf(v.stdout, "… and %d more\n", out.More)
	}
	for _, f := range out.Notes {
		fmt.Fprintln(v.stdout, "note "+tame(findingText(f)))
	}
	word := v.paint(colourGreen, "OK")
	if !out.OK {
		word = v.paint(colourRed, "NOT OK")
	}
	fmt.Fprintf(v.stdout, "%s: %s, from %d to %d; %s no outcome\n", word, countOf(out.Lines, "line"),
		out.First, out.Last, openText(out.Open))
	if out.Last > 0 {
		fmt.Fprintf(v.stdout, "head %s\n", out.Head)
	}
}

func openText(n int) string {
	if n == 1 {
		return "1 call has"
	}
	return countOf(n, "call") + " have"
}
