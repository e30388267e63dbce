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
	"cmp"
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/mcp/era"
)

// Level says how binding a case is.
type Level string

// The levels.
const (
	Must Level = "must" // the specification says so
	// Should is for what the specification is silent on, or leaves a choice in: it keeps peers and
	// proxies safe.
	Should Level = "should"
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

// Options adjust a run of Run or RunMCP.
type Options struct {
	// Timeout bounds the wait for each answer. Default 5 s, and 10 s for MCP.
	Timeout time.Duration
	// Revisions are those of MCP to be checked. Default all.
	Revisions []*era.Revision
	// Echo names a method that returns its params. Default: found through
	// rpc.discover, or "echo" when there is one.
	Echo string
	// S1 says that the server has the specification's example methods: their
	// cases are never skipped, and error messages must be the specification's.
	S1 bool
	// MustOnly leaves out what is only recommended.
	MustOnly bool
	// Only selects cases by name, such as 2025-11-25/tools/schemas. Default all.
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
	r.opts = *cmp.Or(o, &Options{})
	r.opts.Timeout = cmp.Or(max(r.opts.Timeout, 0), 5*time.Second)
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
		return r.opts.Only != nil && !r.opts.Only.MatchString(c.Name) ||
			r.opts.MustOnly && c.Level != Must
	})
}

// run sends one case and judges what comes back.
func (r *runner) run(ctx context.Context, unfilled Case) {
	c, reason := r.prepare(unfilled)
	res := r.blank(&c)
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

// blank is the result of a case without a verdict.
func (r *runner) blank(c *Case) Result {
	return Result{
		Name: c.Name, Title: c.Title, Ref: c.Ref, Level: c.Level, Expected: c.expected(r.opts.S1),
	}
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
		res := r.blank(&cases[i])
		res.Verdict, res.Finding = Skip, "plain requests are not answered"
		r.add(res)
	}
}

// errUnanswered means that the server does not answer a plain request.
var errUnanswered = errors.New("no answer to a plain request")

// learn finds out what the server can be asked: which request it answers
// reliably (the sentinel), whether it echoes, which example methods it has.
func (r *runner) learn(ctx context.Context) error {
	if err := r.findSentinel(ctx); err != nil {
		return err
	}
	r.missing = map[string]bool{}
	for method, params := range map[string]string{
		"subtract": "[42,23]", "sum": "[1,2,4]",
		"get_data": "[]",
	} {
		a, ok := r.ask(ctx, method, params)
		r.missing[method] = ok && a.code == codeMethodNotFound
	}
	r.findEcho(ctx)
	return nil
}

// findSentinel settles on the request that shows that the server is alive.
// A server that is wrong in one way must not look wrong in all.
func (r *runner) findSentinel(ctx context.Context) error {
	methods := []string{noMethod}
	if r.opts.Echo != "" {
		methods = append(methods, r.opts.Echo)
	}
	methods = append(methods, "rpc.discover")
	var first error
	timeout := r.opts.Timeout
	for _, m := range methods {
		for _, quoted := range []bool{true, false} {
			err := r.wire.useSentinel(ctx, m, quoted, timeout)
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return ctx.Err()
			case first == nil:
				first = err
			}
			timeout = min(timeout, time.Second) // it has had the time to start
		}
	}
	return fmt.Errorf("%w: %w", errUnanswered, first)
}

// ask makes one ordinary call.
func (r *runner) ask(ctx context.Context, method, params string) (answer, bool) {
	id := fmt.Sprintf(`"farcall-ask-%s"`, method)
	send := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s,"id":%s}`, method, params, id)
	ev := r.wire.probe(ctx, &Case{sends: []string{send}, want: []want{{id: id}}}, r.opts.Timeout)
	for _, f := range ev.frames {
		got, _, err := parseAnswers(f)
		if err == nil && len(got) == 1 && sameValue(got[0].id, id) {
			return got[0], true
		}
	}
	return answer{}, false
}

// findEcho looks for a method that returns its params.
func (r *runner) findEcho(ctx context.Context) {
	candidates := []string{"echo"}
	if r.opts.Echo != "" {
		candidates = []string{r.opts.Echo}
	} else if a, ok := r.ask(ctx, "rpc.discover", "[]"); ok && a.code == 0 {
		candidates = append(candidates, echoNames(a.result)...)
	}
	for _, m := range candidates {
		a, ok := r.ask(ctx, m, `["farcall"]`)
		switch {
		case !ok || a.code != 0:
			continue
		case sameValue(a.result, `["farcall"]`):
			r.echo = m
		case sameValue(a.result, `"farcall"`):
			r.echo, r.echoOne = m, true
		default:
			continue
		}
		return
	}
	r.noEcho = fmt.Sprintf("no method that returns its params (tried %s; --echo METHOD names one)",
		strings.Join(candidates, ", "))
}

// echoNames finds the methods of an OpenRPC document that sound like an echo.
func echoNames(doc string) []string {
	var d struct {
		Methods []struct {
			Name string `json:"name"`
		} `json:"methods"`
	}
	if json.Unmarshal([]byte(doc), &d) != nil {
		return nil
	}
	var names []string
	for _, m := range d.Methods {
		word := strings.ToLower(m.Name[strings.LastIndexAny(m.Name, "/._")+1:])
		if word == "echo" && m.Name != "echo" {
			names = append(names, m.Name)
		}
	}
	return names
}

// prepare returns the case with what was learned filled in, and why it cannot
// be run, if it cannot. Ids that are not the point are not used twice: some
// servers never forget one.
func (r *runner) prepare(c Case) (filled Case, skip string) {
	switch {
	case len(c.on) > 0 && !slices.Contains(c.on, r.report.Transport):
		skip = "not for this transport"
	case slices.Contains(c.notOn, r.report.Transport):
		skip = c.notOnWhy
	case c.echo && r.echo == "":
		skip = r.noEcho
	}
	for _, m := range c.needs {
		if r.missing[m] && !r.opts.S1 {
			skip = fmt.Sprintf("the server has no method %q", m)
			break
		}
	}
	r.ids += 2
	fill := strings.NewReplacer("$none", noMethod, "$echo", r.echo, "$id2", strconv.Itoa(r.ids), "$id",
		strconv.Itoa(r.ids-1))
	c.sends, c.want = slices.Clone(c.sends), slices.Clone(c.want)
	for i, s := range c.sends {
		s = fill.Replace(s)
		if c.echo && r.echoOne {
			s = strings.Replace(s, `"params":`+c.payload, `"params":[`+c.payload+`]`, 1)
		}
		c.sends[i] = s
	}
	for i := range c.want {
		c.want[i].id = fill.Replace(c.want[i].id)
	}
	return c, skip
}
