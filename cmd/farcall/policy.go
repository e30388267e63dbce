package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func newPolicyCmd(e *env) *cobra.Command {
	return newGroup("policy", "Test the policies of a guard", "There is test.", newPolicyTestCmd(e))
}

func newPolicyTestCmd(e *env) *cobra.Command {
	var asJSON bool
	cmd := command("test FILE", "Compare the decisions of a guard with what is expected",
		func(_ *cobra.Command, args []string) error { return e.testPolicies(args[0], asJSON) })
	cmd.Args = oneFile("farcall policy test policies.yaml")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// policyReport is the outcome of a file of tests, and the form of --json.
type policyReport struct {
	OK     bool           `json:"ok"`
	File   string         `json:"file"`
	Guard  string         `json:"guard"`
	Passed int            `json:"passed"`
	Failed int            `json:"failed"`
	Tests  []policyResult `json:"tests"`
}

type policyResult struct {
	OK       bool     `json:"ok"`
	Line     int      `json:"line"`
	Title    string   `json:"title,omitempty"`
	As       string   `json:"as"`
	Call     string   `json:"call"`
	Expected string   `json:"expected"`
	Decision string   `json:"decision"`
	Policies []string `json:"policies,omitempty"`
	Reason   string   `json:"reason"`
	Problem  string   `json:"problem,omitempty"` // what is not as expected
	Notes    []string `json:"notes,omitempty"`
}

func (e *env) testPolicies(file string, asJSON bool) error {
	tests, err := gateway.LoadPolicyTest(file)
	if bad := (*gateway.ConfigError)(nil); errors.As(err, &bad) {
		return configFailure(err)
	} else if err != nil {
		return unreadable("the tests", file, err)
	}
	config, err := loadGuarded(tests.Guard)
	if err != nil {
		return err
	}
	report := policyReport{File: file, Guard: tests.Guard}
	for i := range tests.Cases {
		c := &tests.Cases[i]
		result, err := e.testPolicy(config, c)
		if err != nil {
			return &exitError{
				code: exitUsage, err: fmt.Errorf("%s:%d:%d: tests[%d]: %w", file, c.Line, c.Column, i, err),
			}
		}
		if result.OK {
			report.Passed++
		} else {
			report.Failed++
		}
		report.Tests = append(report.Tests, *result)
	}
	report.OK = report.Failed == 0
	if err := e.showPolicies(&report, asJSON); err != nil || report.OK {
		return err
	}
	return &exitError{code: exitFailure}
}

// testPolicy makes one call, to a guard with limits that are untouched.
func (e *env) testPolicy(config *gateway.Config, c *gateway.PolicyCase) (*policyResult, error) {
	x := &explaining{
		env: e, as: c.Principal, kind: c.Kind, roles: c.Roles, scopes: c.Scopes,
		transport: c.Transport, local: c.Local, upstream: c.Upstream, strict: true,
	}
	p, notes, err := x.principal(config.Guard)
	if err != nil {
		return misnamedTest(c, err)
	}
	if c.Claims != nil {
		if err := jsonv2.Unmarshal(c.Claims, &p.Claims); err != nil {
			return nil, fmt.Errorf("claims: %w", err)
		}
	}
	word := c.Method
	if c.Name != "" {
		word += " " + c.Name
	}
	call, err := x.call([]string{word}, config)
	if err != nil {
		return misnamedTest(c, err)
	}
	x.fill(call, c)
	at := c.At
	if at.IsZero() {
		at = time.Now()
	}
	g, err := offlineGuard(config.Guard, &guard.Options{Now: func() time.Time { return at }})
	if err != nil {
		return nil, err
	}
	defer g.Close() //nolint:errcheck // nothing was written
	from := &guard.Conn{
		Transport: c.Transport, Remote: c.Remote,
		Local: c.Local || c.Transport == "stdio" || c.Transport == "unix",
	}
	var got guard.Explanation
	switch {
	case p.Kind == "anonymous" && !config.Guard.Anonymous:
		got.Reason = "unauthenticated: the guard does not let anonymous callers in"
	case !p.Expires.IsZero() && !p.Expires.After(at):
		got.Reason = "unauthenticated: the credentials have expired"
	default:
		for range c.Times {
			got = g.Rehearse(p, from, call)
		}
	}
	return compared(c, call, p, &got, notes), nil
}

// misnamedTest is the result of a test that names what the configuration does not have: no decision
// about it is one that the guard would make.
func misnamedTest(c *gateway.PolicyCase, err error) (*policyResult, error) {
	unknown := (*unknownNameError)(nil)
	if !errors.As(err, &unknown) {
		return nil, err
	}
	call := &guard.Call{Method: c.Method, Name: c.Name}
	r := &policyResult{
		Line: c.Line, Title: c.Title, As: cmp.Or(c.Principal, "anonymous"), Call: callText(call),
		Expected: c.Expect,
		Decision: "not decided", Problem: unknown.Error(),
	}
	if unknown.near != "" {
		r.Problem += fmt.Sprintf("; did you mean %q?", unknown.near)
	}
	return r, nil
}

// fill gives a call what a test says of it.
func (x *explaining) fill(call *guard.Call, c *gateway.PolicyCase) {
	if c.Arguments != nil {
		call.Arguments, call.Params = c.Arguments, paramsOf(call, c.Arguments)
	}
	if c.Annotations != nil {
		call.Annotations = c.Annotations
	}
	if c.Schema != nil {
		call.Schema = c.Schema
	}
}

// paramsOf are the params of a call with arguments.
func paramsOf(c *guard.Call, arguments jsonrpc.Raw) jsonrpc.Raw {
	member := named[c.Method]
	if member == "" {
		return arguments
	}
	params := append(jsonrpc.AppendString(jsonrpc.Raw(`{"`+member+`":`), c.Name), '}')
	if arguments != nil {
		params = append(append(append(params[:len(params)-1], `,"arguments":`...), arguments...), '}')
	}
	return params
}

// decisionOf is a decision in a word.
func decisionOf(x *guard.Explanation) string {
	switch {
	case x.Allowed:
		return "allowed"
	case x.Limited:
		return "limited"
	}
	return "denied"
}

// compared is the result of a test.
func compared(
	c *gateway.PolicyCase, call *guard.Call, p *guard.Principal, got *guard.Explanation,
	notes []string,
) *policyResult {
	r := &policyResult{
		Line: c.Line, Title: c.Title, As: p.Name(), Call: callText(call), Expected: c.Expect,
		Decision: decisionOf(got), Policies: got.Policies, Reason: got.Reason, Notes: notes,
	}
	if got.Shadow != "" {
		r.Notes = append(slices.Clone(notes), got.Shadow)
	}
	wanted, decided := slices.Sorted(slices.Values(c.Policies)),
		slices.Sorted(slices.Values(got.Policies))
	switch {
	case r.Decision != c.Expect:
		r.Problem = "expected " + c.Expect + ", and it is " + r.Decision
	case c.Policies != nil && !slices.Equal(wanted, decided):
		r.Problem = fmt.Sprintf("expected a decision by %s, and it is by %s", strings.Join(wanted, ", "),
			strings.Join(decided, ", "))
		if len(decided) == 0 {
			r.Problem = fmt.Sprintf("expected a decision by %s, and no policy decided",
				strings.Join(wanted, ", "))
		}
	case !strings.Contains(got.Reason, c.Reason):
		r.Problem = fmt.Sprintf("expected a reason with %q", c.Reason)
	}
	r.OK = r.Problem == ""
	return r
}

func (e *env) showPolicies(report *policyReport, asJSON bool) error {
	if asJSON {
		return e.printValue(report)
	}
	for i := range report.Tests {
		r := &report.Tests[i]
		word := e.paint(colourGreen, "ok  ")
		if !r.OK {
			word = e.paint(colourRed, "FAIL")
		}
		what := r.As + ": " + r.Call
		if r.Title != "" {
			what = r.Title + " (" + what + ")"
		}
		fmt.Fprintf(e.stdout, "%s  %s:%d: %s: %s\n", word, tame(report.File), r.Line, tame(what),
			r.Decision)
		for _, text := range []string{r.Problem, r.Reason} {
			if !r.OK && text != "" {
				fmt.Fprintf(e.stdout, "        %s\n", tame(text))
			}
		}
		for _, note := range r.Notes {
			fmt.Fprintf(e.stdout, "        note: %s\n", tame(note))
		}
	}
	if report.OK {
		fmt.Fprintf(e.stdout, "%s of %s, all as expected\n", countOf(report.Passed, "test"),
			tame(report.Guard))
	} else {
		verb := "are"
		if report.Failed == 1 {
			verb = "is"
		}
		fmt.Fprintf(e.stdout, "%d of %s of %s %s not as expected\n", report.Failed,
			countOf(report.Failed+report.Passed, "test"), tame(report.Guard), verb)
	}
	return nil
}
