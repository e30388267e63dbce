// Package conform answers one question: does a server keep to JSON-RPC 2.0,
// byte for byte?
//
// It speaks over raw its own connections, because it must be able to send
// what no proper client sends, and it reads the answers with encoding/json
// rather than with farcall's decoder, because it is used to check that too.
//
// Most cases call a method that no server has: the answer, -32601 with the id
// as it was sent, shows how the server treats an envelope without any knowledge
// of its methods. That no answer comes is decided without waiting: an ordinary
// request is sent afterwards, and its answer must come first.
package conform

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Level says how binding a case is.
type Level string

// The levels.
const (
	Must   Level = "must"   // the specification says so
	Should Level = "should" // the specification is silent, or leaves a choice; this is what keeps peers and proxies safe
)

// Verdict is what became of a case.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Skip Verdict = "skip"
)

// Result is the outcome of one case, with its evidence.
type Result struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Ref      string   `json:"ref"`
	Level    Level    `json:"level"`
	Verdict  Verdict  `json:"verdict"`
	Finding  string   `json:"finding,omitempty"` // why it failed, or why it was skipped
	Sent     []string `json:"sent"`
	Expected string   `json:"expected"`
	Received []string `json:"received,omitempty"`
}

// Report is the outcome of a run.
type Report struct {
	Transport string   `json:"transport"`
	Passed    int      `json:"passed"`
	Failed    int      `json:"failed"`
	Skipped   int      `json:"skipped"`
	Cases     []Result `json:"cases"`
}

// Options adjust a run.
type Options struct {
	// Timeout bounds the wait for each answer. Default 5 s.
	Timeout time.Duration
	// Echo names a method that returns its params. Default: found through
	// rpc.discover, or "echo" when there is one.
	Echo string
	// S1 says that the server has the specification's example methods: their
	// cases are never skipped, and error messages must be the specification's.
	S1 bool
	// MustOnly leaves out what is only recommended.
	MustOnly bool
	// Only selects cases by name. Default all.
	Only *regexp.Regexp
	// OnResult receives each result as it is known.
	OnResult func(Result)
}

// ErrConnect is wrapped by the error of a Run that could not reach the server.
var ErrConnect = errors.New("cannot connect")

// noMethod is a method that no server has.
const noMethod = "farcall.conform.nosuchmethod"

// Run probes the server that d reaches. The error is nil when the cases could
// be run, whatever they found.
func Run(ctx context.Context, d Dialer, o *Options) (*Report, error) {
	r := &runner{wire: d.wire(), report: &Report{Transport: d.kind}, ids: 100}
	if o != nil {
		r.opts = *o
	}
	if r.opts.Timeout <= 0 {
		r.opts.Timeout = 5 * time.Second
	}
	defer r.wire.close()
	if err := r.wire.open(ctx, r.opts.Timeout); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	cases := r.selected(Cases())
	if err := r.learn(ctx); err != nil {
		if !errors.Is(err, errUnanswered) {
			return nil, err
		}
		r.refuseAll(cases, err)
		return r.report, nil
	}
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return r.report, err
		}
		r.run(ctx, c)
	}
	return r.report, nil
}

type runner struct {
	wire    wire
	opts    Options
	report  *Report
	echo    string          // "" when there is none
	echoOne bool            // the echo method returns its first param, not the list of them
	noEcho  string          // why there is none
	missing map[string]bool // example methods the server lacks
	ids     int             // the last id that was used
}

func (r *runner) selected(all []Case) []Case {
	return slices.DeleteFunc(all, func(c Case) bool {
		return r.opts.Only != nil && !r.opts.Only.MatchString(c.Name) || r.opts.MustOnly && c.Level != Must
	})
}

// run sends one case and judges what comes back.
func (r *runner) run(ctx context.Context, blank Case) {
	c, reason := r.prepare(blank)
	res := Result{Name: c.Name, Title: c.Title, Ref: c.Ref, Level: c.Level, Expected: c.expected(r.opts.S1)}
	for _, s := range c.sends {
		res.Sent = append(res.Sent, printable(s))
	}
	if reason != "" {
		res.Verdict, res.Finding = Skip, reason
		r.add(res)
		return
	}
	ev := r.wire.probe(ctx, &c, r.opts.Timeout)
	res.Received = ev.lines()
	if f := judge(&c, &ev, r.opts.S1); f != nil && (f.level == Must || !r.opts.MustOnly) {
		res.Verdict, res.Finding, res.Level = Fail, f.text, f.level
	} else {
		res.Verdict = Pass
	}
	r.add(res)
}

func (r *runner) add(res Result) {
	switch res.Verdict {
	case Pass:
		r.report.Passed++
	case Fail:
		r.report.Failed++
	case Skip:
		r.report.Skipped++
	}
	r.report.Cases = append(r.report.Cases, res)
	if r.opts.OnResult != nil {
		r.opts.OnResult(res)
	}
}

// refuseAll reports a server with which no other case makes sense: a plain
// request got no answer that could be recognised.
func (r *runner) refuseAll(cases []Case, err error) {
	r.add(Result{
		Name: "basic/answered", Title: "a plain request is answered", Ref: "JSON-RPC 2.0 §5", Level: Must,
		Verdict: Fail, Finding: err.Error(), Sent: []string{sentinel(noMethod, `"farcall-0"`)},
		Expected: "an answer with the same id",
	})
	for i := range cases {
		c := &cases[i]
		r.add(Result{
			Name: c.Name, Title: c.Title, Ref: c.Ref, Level: c.Level, Verdict: Skip,
			Finding: "plain requests are not answered", Expected: c.expected(r.opts.S1),
		})
	}
}
