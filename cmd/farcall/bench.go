package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/load"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
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
	cmd := command("bench TARGET METHOD|TOOL [PARAMS]",
		"Measure how fast a server answers, or compare two", b.bench)
	b.remote.flags(cmd, defaultTimeout)
	f := cmd.Flags()
	f.BoolVar(&b.tool, "mcp", false, "call a tool of an MCP server")
	f.StringVar(&b.era, "era", "auto", "with --mcp, speak only `auto|modern|legacy|REVISION`")
	f.Float64Var(&b.o.Rate, "rate", 0,
		"begin so many calls a `second`, whether or not they are answered; 0: each worker waits "+
			"for its answer")
	f.IntVarP(&b.workers, "concurrency", "c", 0,
		"have at most so many calls at once; default 16, with --rate 256")
	f.IntVar(&b.conns, "connections", 0,
		"use so many connections; default 1, for JSON-RPC over HTTP one for each call at once")
	f.DurationVarP(&b.o.Duration, "duration", "d", 0,
		"measure for so long; default 10s without --calls")
	f.Int64VarP(&b.o.Calls, "calls", "n", 0, "measure so many calls")
	f.DurationVar(&b.o.Warmup, "warmup", time.Second,
		"make calls for so long before those that are measured")
	f.StringVar(&b.against, "against", "", "compare with the server at this `TARGET`")
	f.IntVar(&b.rounds, "rounds", 20, "with --against, measure each server so many times in turns")
	f.StringArrayVar(&b.fail, "fail", nil,
		"exit with status 1 when this is so: `FIGURE>VALUE` or FIGURE<VALUE; can be repeated")
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
			return usagef("Add --against TARGET, or leave the prefix out.",
				"--fail %s: there is one server only", text)
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
	return nil
}

// plausible refuses values that mean nothing.
func (b *bencher) plausible(cmd *cobra.Command) error {
	switch {
	case b.o.Rate < 0 || b.o.Calls < 0 || b.o.Duration < 0 || b.o.Warmup < 0 || b.workers < 0 ||
		b.conns < 0:
		return usagef("Use a positive value.",
			"--rate, --calls, --duration, --warmup, --concurrency and --connections cannot be negative")
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
		return forMCP(readTarget(text))
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
func (b *bencher) measure(
	ctx context.Context, method string, targets []*target.Target, calls [][]load.Call,
) error {
	if n := runtime.NumCPU() + 1; b.o.Rate > 0 && runtime.GOMAXPROCS(0) < n {
		// who waits for a call to be due is a thread that sleeps
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
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
		return &exitError{
			code: exitInterrupted, err: errors.New("interrupted: this is what was measured until then"),
		}
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
		}{
			Method: method, Loop: b.loop(), Rate: b.o.Rate, Workers: b.workers, Result: result,
			Broken: broken,
		}
		report.Targets = mapped(targets, (*target.Target).String)
		return b.printValue(report)
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

// prepare connects to a target and returns the calls of its workers.
func (b *bencher) prepare(
	ctx context.Context, t *target.Target, words []string,
) ([]load.Call, error) {
	if b.tool {
		return b.toolCalls(ctx, t, words)
	}
	params, err := parseParams(words[1:], b.stdin)
	if err != nil {
		return nil, err
	}
	if t.Kind == target.HTTP {
		return b.posts(t, words[0], params)
	}
	return b.peerCalls(ctx, t, words[0], params)
}

// connections returns how many to use.
func (b *bencher) connections() int { return min(cmp.Or(b.conns, 1), b.workers) }

// posts calls over HTTP. Each worker has a connection, unless there are fewer: then they take
// turns.
func (b *bencher) posts(t *target.Target, method string, params jsonrpc.Raw) ([]load.Call, error) {
	header, err := b.headers()
	if err != nil {
		return nil, err
	}
	config, err := b.tls()
	if err != nil {
		return nil, err
	}
	if b.conns > 0 {
		b.workers = min(b.workers, b.conns) // HTTP/1.1 has one call at a time on a connection
	}
	message := jsonrpc.V2.AppendRequest(nil, jsonrpc.IntID(1), method, params)
	posters := make([]*load.Poster, b.workers)
	for i := range posters {
		posters[i] = load.NewPoster(t.URL, header, config, message, b.timeout)
		b.closers = append(b.closers, posters[i].Close)
	}
	return load.Pool(posters), nil
}

// peerCalls calls over connections that carry many calls at once.
func (b *bencher) peerCalls(
	ctx context.Context, t *target.Target, method string, params jsonrpc.Raw,
) ([]load.Call, error) {
	var peers []*farcall.Peer
	for range b.connections() {
		limited, cancel := b.limit(ctx)
		tr, err := b.dial(limited, t)
		if err != nil {
			cancel()
			return nil, dialFailure(ctx, t, err)
		}
		cancel()
		if t.Kind == target.Command {
			tr = tapped{tr, b.tapOn(t)}
		}
		p := farcall.NewPeer(tr, &callbacks{}, &farcall.Options{Logger: slog.New(slog.DiscardHandler)}) //nolint:contextcheck // a peer lives until it is closed
		b.closers = append(b.closers, func() { _ = p.Close() })
		peers = append(peers, p)
	}
	q := invocation{params: params}
	calls := make([]load.Call, b.workers)
	for i := range calls {
		p := peers[i%len(peers)]
		var result jsonrpc.Raw
		calls[i] = load.Within(b.timeout, func(ctx context.Context) error {
			return benchFailure(p.Call(ctx, method, orNil(q.params), &result))
		})
	}
	return calls, nil
}

// toolCalls calls a tool of MCP.
func (b *bencher) toolCalls(
	ctx context.Context, t *target.Target, words []string,
) ([]load.Call, error) {
	given, err := b.arguments(ctx, words[1:])
	if err != nil {
		return nil, err
	}
	var sessions []*mcpSession
	for range b.connections() {
		s, err := b.open(ctx, t, b.wide)
		if err != nil {
			return nil, err
		}
		b.closers = append(b.closers, s.end)
		sessions = append(sessions, s)
	}
	arguments, _, err := sessions[0].fit(ctx, words[0], given)
	if err != nil {
		return nil, err
	}
	calls := make([]load.Call, b.workers)
	for i := range calls {
		s := sessions[i%len(sessions)]
		calls[i] = load.Within(b.timeout, func(ctx context.Context) error {
			result, err := s.CallTool(ctx, words[0], arguments)
			if err == nil && result.IsError {
				return load.KindError("the tool failed")
			}
			return benchFailure(err)
		})
	}
	return calls, nil
}

// wide lets a client over HTTP keep a connection for each worker.
func (b *bencher) wide(o *mcp.ClientOptions) {
	if o.HTTP == nil || o.HTTP.HTTP == nil {
		return
	}
	if tr, ok := o.HTTP.HTTP.Transport.(*http.Transport); ok {
		tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, b.workers+1
	}
}

// benchFailure is the kind of an error, by which errors are counted.
func benchFailure(err error) error {
	var wire *jsonrpc.Error
	var status *mcphttp.StatusError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return load.ErrTimeout
	case errors.As(err, &wire):
		return load.Failure(wire)
	case errors.As(err, &status):
		return load.KindError(fmt.Sprintf("HTTP status %d", status.Status))
	case errors.Is(err, farcall.ErrClosed):
		return load.KindError("the connection has ended")
	}
	return load.KindError(plainWords(err))
}

// table writes results side by side, and with c their ratios.
func (b *bencher) table(out *strings.Builder, results []*load.Result, c *load.Comparison) {
	var rows [][]string
	if c != nil {
		rows = append(rows, []string{"", "A", "B", "B/A", "half of the rounds"})
	}
	row := func(name, figure string, value func(r *load.Result) string) {
		cells := []string{name}
		for _, r := range results {
			cells = append(cells, value(r))
		}
		if c != nil {
			if ratio, ok := c.Ratios[figure]; ok && c.Rounds > 0 {
				cells = append(cells, fmt.Sprintf("%.3f", ratio.Median),
					fmt.Sprintf("%.3f to %.3f", ratio.Low, ratio.High))
			}
		}
		rows = append(rows, cells)
	}
	row("calls", "", func(r *load.Result) string { return strconv.FormatInt(r.Calls-r.Unsent, 10) })
	row("calls/s", "rate", func(r *load.Result) string { return fmt.Sprintf("%.1f", r.Rate) })
	row("failed", "", func(r *load.Result) string { return strconv.FormatInt(r.Failed, 10) })
	for _, l := range []struct {
		name  string
		value func(*load.Latency) float64
	}{
		{"min", func(l *load.Latency) float64 { return l.Min }},
		{"mean", func(l *load.Latency) float64 { return l.Mean }},
		{"p50", func(l *load.Latency) float64 { return l.P50 }},
		{"p90", func(l *load.Latency) float64 { return l.P90 }},
		{"p99", func(l *load.Latency) float64 { return l.P99 }},
		{"p99.9", func(l *load.Latency) float64 { return l.P999 }},
		{"max", func(l *load.Latency) float64 { return l.Max }},
	} {
		row(l.name, l.name, func(r *load.Result) string { return load.Milliseconds(l.value(&r.Latency)) })
	}
	for _, line := range aligned(rows, 1, len(results)+2) {
		fmt.Fprintln(out, line)
	}
	for i, r := range results {
		who := ""
		if c != nil {
			who = string(rune('A'+i)) + ": "
		}
		for _, e := range r.Errors {
			fmt.Fprintf(out, "\n%s%d calls failed: %s", who, e.Calls, tame(e.Kind))
		}
		if r.Unsent > 0 {
			fmt.Fprintf(out, "\n%s%d calls were due and not made: the server is slower than --rate", who,
				r.Unsent)
		}
		if b.o.Rate > 0 && r.Delay.P99 > 1 {
			fmt.Fprintf(out,
				"\n%s1%% of the calls began %s late or more, which their latency includes; more "+
					"--concurrency may shorten it", who, load.Milliseconds(r.Delay.P99))
		}
	}
	if !strings.HasSuffix(out.String(), "\n") {
		out.WriteByte('\n')
	}
}
