package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/load"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/stream"
)

// bencher is farcall bench.
type bencher struct {
	*mcpRemote
	tool    bool // the method is a tool of MCP
	o       load.Options
	workers int
	conns   int
	rounds  int
	against string
	fail    []string
	limits  []load.Limit
	closers []func()
}

func newBenchCmd(e *env) *cobra.Command {
	b := &bencher{mcpRemote: newMCPRemote(e)}
	b.log = ""
	cmd := &cobra.Command{
		Use:   "bench TARGET METHOD|TOOL [PARAMS]",
		Short: "Measure how fast a server answers, or compare two",
		RunE:  func(cmd *cobra.Command, args []string) error { return b.bench(cmd, args) },
	}
	b.remote.flags(cmd, defaultTimeout)
	f := cmd.Flags()
	f.BoolVar(&b.tool, "mcp", false, "call a tool of an MCP server")
	f.StringVar(&b.era, "era", "auto", "with --mcp, speak only `auto|modern|legacy|REVISION`")
	f.Float64Var(&b.o.Rate, "rate", 0, "begin so many calls a `second`, whether or not they are answered; 0: each worker waits for its answer")
	f.IntVarP(&b.workers, "concurrency", "c", 0, "have at most so many calls at once; default 16, with --rate 256")
	f.IntVar(&b.conns, "connections", 0, "use so many connections; default 1, for JSON-RPC over HTTP one for each call at once")
	f.DurationVarP(&b.o.Duration, "duration", "d", 0, "measure for so long; default 10s without --calls")
	f.Int64VarP(&b.o.Calls, "calls", "n", 0, "measure so many calls")
	f.DurationVar(&b.o.Warmup, "warmup", time.Second, "make calls for so long before those that are measured")
	f.StringVar(&b.against, "against", "", "compare with the server at this `TARGET`")
	f.IntVar(&b.rounds, "rounds", 20, "with --against, measure each server so many times in turns")
	f.StringArrayVar(&b.fail, "fail", nil, "exit with status 1 when this is so: `FIGURE>VALUE` or FIGURE<VALUE; can be repeated")
	f.BoolVar(&b.asJSON, "json", false, "print the result as JSON")
	return cmd
}

// options checks the flags and fills in the defaults.
func (b *bencher) options(cmd *cobra.Command) error {
	for _, text := range b.fail {
		l, err := load.ParseLimit(text)
		if err != nil {
			return usagef("For example: --fail 'p99>20ms'", "--fail: %w", err)
		}
		if l.OfTwo() && b.against == "" {
			return usagef("Add --against TARGET, or leave the prefix out.", "--fail %s: there is one server only", text)
		}
		b.limits = append(b.limits, l)
	}
	if err := b.plausible(cmd); err != nil {
		return err
	}
	if b.workers == 0 {
		b.workers = 16
		if b.o.Rate > 0 {
			b.workers = 256
		}
	}
	if b.o.Duration == 0 && b.o.Calls == 0 {
		b.o.Duration = 10 * time.Second
	}
	b.o.Timeout = b.timeout
	return nil
}

// plausible refuses values that mean nothing.
func (b *bencher) plausible(cmd *cobra.Command) error {
	switch {
	case b.o.Rate < 0 || b.o.Calls < 0 || b.o.Duration < 0 || b.o.Warmup < 0 || b.workers < 0 || b.conns < 0:
		return usagef("Use a positive value.", "--rate, --calls, --duration, --warmup, --concurrency and --connections cannot be negative")
	case b.workers > 10000 || b.conns > 10000:
		return usagef("Use a smaller value.", "--concurrency and --connections: 10000 at most")
	case b.against != "" && b.rounds < 2:
		return usagef("Use 2 or more.", "--rounds: a comparison takes two rounds")
	case b.against == "" && cmd.Flags().Changed("rounds"):
		return usagef("Add --against TARGET.", "--rounds is for a comparison")
	case !b.tool && cmd.Flags().Changed("era"):
		return usagef("Add --mcp.", "--era is for MCP")
	}
	return nil
}

// benchTarget reads a TARGET other than a command.
func (b *bencher) benchTarget(text string) (*target.Target, error) {
	if words, ok := strings.CutPrefix(text, "-- "); ok {
		return target.Child(strings.Fields(words)), nil
	}
	if b.tool {
		return mcpTarget(text)
	}
	return parseTarget(text)
}

func (b *bencher) bench(cmd *cobra.Command, args []string) error {
	if err := b.options(cmd); err != nil {
		return err
	}
	var t *target.Target
	var words []string
	var err error
	if b.tool {
		t, words, err = b.target(cmd, args)
	} else {
		t, words, err = b.split(cmd, args)
	}
	if err != nil {
		return err
	}
	if len(words) == 0 || words[0] == "" {
		return usagef(commandLine("For example: farcall bench", t, "METHOD a=1"), "no method")
	}
	targets := []*target.Target{t}
	if b.against != "" {
		other, err := b.benchTarget(b.against)
		if err != nil {
			return err
		}
		if other.Kind != target.Stream || other.Framing == stream.NDJSON {
			if err := b.frame(other); err != nil {
				return err
			}
		}
		targets = append(targets, other)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	defer b.close()
	var calls [][]load.Call
	for _, t := range targets {
		list, err := b.prepare(ctx, t, words)
		if err != nil {
			return err
		}
		calls = append(calls, list)
	}
	return b.measure(ctx, words[0], targets, calls)
}

// close ends the connections.
func (b *bencher) close() {
	for _, f := range b.closers {
		f()
	}
}

// measure makes the load and prints what came of it.
func (b *bencher) measure(ctx context.Context, method string, targets []*target.Target, calls [][]load.Call) error {
	if n := runtime.NumCPU() + 1; b.o.Rate > 0 && runtime.GOMAXPROCS(0) < n {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n)) // who waits for a call to be due is a thread that sleeps
	}
	var broken []string
	var result any
	if len(calls) == 2 {
		c, err := load.Compare(ctx, calls[0], calls[1], b.rounds, &b.o)
		if err != nil {
			return err
		}
		broken, result = load.BrokenOf(b.limits, c), c
	} else {
		r, err := load.Run(ctx, calls[0], &b.o)
		if err != nil {
			return err
		}
		broken, result = load.Broken(b.limits, r), r
	}
	if err := b.show(method, targets, result, broken); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: errors.New("interrupted: this is what was measured until then")}
	case len(broken) > 0:
		return &exitError{code: exitFailure, err: errors.New(strings.Join(broken, "\nfarcall: "))}
	}
	return nil
}

// show prints a result.
func (b *bencher) show(method string, targets []*target.Target, result any, broken []string) error {
	if b.asJSON {
		report := struct {
			Method  string   `json:"method"`
			Targets []string `json:"targets"`
			Loop    string   `json:"loop"`
			Rate    float64  `json:"offered,omitzero"` // calls that were due in a second
			Workers int      `json:"concurrency"`
			Result  any      `json:"result"`
			Broken  []string `json:"broken,omitempty"`
		}{Method: method, Loop: b.loop(), Rate: b.o.Rate, Workers: b.workers, Result: result, Broken: broken}
		for _, t := range targets {
			report.Targets = append(report.Targets, t.String())
		}
		raw, err := jsonv2.Append(nil, report)
		if err != nil {
			return err
		}
		return b.printJSON(raw)
	}
	var text strings.Builder
	for i, t := range targets {
		name := ""
		if len(targets) == 2 {
			name = string(rune('A'+i)) + ": "
		}
		fmt.Fprintf(&text, "%s%s at %s\n", name, tame(method), tame(t.String()))
	}
	fmt.Fprintf(&text, "%s\n\n", b.loadLine())
	switch r := result.(type) {
	case *load.Result:
		b.table(&text, []*load.Result{r}, nil)
	case *load.Comparison:
		b.table(&text, []*load.Result{r.A, r.B}, r)
	}
	_, err := fmt.Fprint(b.stdout, text.String())
	return err
}

func (b *bencher) loop() string {
	if b.o.Rate > 0 {
		return "open"
	}
	return "closed"
}

// loadLine says which load was made.
func (b *bencher) loadLine() string {
	text := fmt.Sprintf("closed loop, %d calls at once", b.workers)
	if b.o.Rate > 0 {
		text = fmt.Sprintf("open loop, %g calls/s, %d at once at most", b.o.Rate, b.workers)
	}
	if b.o.Duration > 0 {
		text += fmt.Sprintf(", %v", b.o.Duration)
	}
	if b.o.Calls > 0 {
		text += fmt.Sprintf(", %d calls", b.o.Calls)
	}
	if b.against != "" {
		text += fmt.Sprintf(" each, in %d rounds", b.rounds)
	}
	return text + fmt.Sprintf(", after %v of warm-up", b.o.Warmup)
}
