package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper is a server that takes some time for each call, by the clock of synctest.
func sleeper(d time.Duration) Call {
	return func(ctx context.Context) error {
		timed(ctx, time.Now().Add(d))
		return ctx.Err()
	}
}

// of returns n workers of one server.
func of(n int, call Call) []Call { return slices.Repeat([]Call{call}, n) }

func fake(o Options) *Options {
	o.wait = timed
	return &o
}

// near1 reports whether two figures differ by less than 1 %.
func near1(got, want float64) bool { return math.Abs(got-want) <= 0.01*want }

// A server of known latency: what is measured differs by less than 1 %, in both loops.
func TestLatency(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 50, 333} {
		for _, d := range []time.Duration{
			700 * time.Microsecond, 10 * time.Millisecond, 250 * time.Millisecond,
		} {
			synctest.Test(t, func(t *testing.T) {
				r, err := Run(t.Context(), of(100, sleeper(d)),
					fake(Options{Rate: rate, Duration: 5 * time.Second, Warmup: time.Second}))
				if err != nil {
					t.Fatal(err)
				}
				want := milliseconds(float64(d))
				for name, got := range map[string]float64{
					"min": r.Latency.Min, "mean": r.Latency.Mean,
					"p50": r.Latency.P50, "p99": r.Latency.P99, "max": r.Latency.Max,
				} {
					if !near1(got, want) {
						t.Errorf("%v at %v/s: %s is %v ms, want %v", d, rate, name, got, want)
					}
				}
				if rate > 0 && (r.Calls != int64(5*rate) || r.Unsent != 0 || r.Delay.Max > 0.001) {
					t.Errorf("%v at %v/s: %+v", d, rate, r)
				}
				if calls := int64(5 * time.Second / d * 100); rate == 0 &&
					!near1(float64(r.Calls), float64(calls)) {
					t.Errorf("%v: %d calls, want %d", d, r.Calls, calls)
				}
			})
		}
	}
}

// A server that stalls for a second is charged for the calls that were due meanwhile, and a closed
// loop, which sees one slow call, is not taken for an open one.
func TestNoCoordinatedOmission(t *testing.T) {
	t.Parallel()
	stalls := func() Call {
		var n atomic.Int64
		one := make(chan struct{}, 1) // one call at a time
		return func(ctx context.Context) error {
			d := time.Millisecond
			one <- struct{}{}
			defer func() { <-one }()
			if n.Add(1) == 501 {
				d = time.Second
			}
			return sleeper(d)(ctx)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		open, err := Run(t.Context(), of(1, stalls()),
			fake(Options{Rate: 100, Duration: 10 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		// 1000 calls: one took 1 s, and the next 99 or so waited for what was left of that second, then
		// for each other.
		if open.Calls != 1000 || !near1(open.Latency.Max, 1000) || open.Latency.P99 < 850 ||
			open.Latency.P95 < 400 || open.Latency.P50 > 2 {
			t.Errorf("%+v", open)
		}
		if open.Delay.Max < 900 {
			t.Errorf("the calls that waited began late: %+v", open.Delay)
		}
		closed, err := Run(t.Context(), of(1, stalls()), fake(Options{Calls: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		if closed.Calls != 1000 || closed.Latency.P99 > 2 || !near1(closed.Latency.Max, 1000) {
			t.Errorf("%+v", closed)
		}
	})
}

// A server that is slower than the rate: what was due and did not begin counts, with the time that
// it waited.
func TestOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := Run(t.Context(), of(2, sleeper(100*time.Millisecond)),
			fake(Options{Rate: 100, Duration: 10 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		if r.Calls != 1000 || r.Unsent < 770 || r.Unsent > 790 || r.Failed != r.Unsent ||
			!near1(r.Rate, 20) {
			t.Errorf("%+v", r)
		}
		if r.Latency.P99 < 8000 || r.Latency.P99 > 11000 {
			t.Errorf("p99 %v ms", r.Latency.P99)
		}
	})
}

// Errors are counted by kind, a timeout is one, and kinds are bounded.
func TestErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		call := func(ctx context.Context) error {
			switch n++; n % 4 {
			case 0:
				return KindError("error -32601")
			case 1:
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return fmt.Errorf("number %d", n)
			}
			return nil
		}
		r, err := Run(t.Context(), []Call{Within(time.Second, call)}, fake(Options{Calls: 400}))
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int64{}
		for _, e := range r.Errors {
			counts[e.Kind] = e.Calls
		}
		if r.Failed != 300 || counts["error -32601"] != 100 || counts[string(ErrTimeout)] != 100 ||
			len(counts) > maxKinds+1 || counts[string(errOther)] < 60 {
			t.Errorf("%d failed: %v", r.Failed, counts)
		}
		if !near1(r.Latency.Max, 1000) {
			t.Errorf("%+v", r.Latency)
		}
	})
}

// The end of the context ends the measurement; a call that it interrupts is no error of the server.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			r, err := Run(ctx, of(200, sleeper(time.Second)),
				fake(Options{Rate: rate, Duration: time.Hour}))
			if err != nil {
				t.Fatal(err)
			}
			if r.Failed != 0 || r.Unsent != 0 || r.Calls < 150 || r.Calls > 400 || !near1(r.Seconds, 2.5) {
				t.Errorf("%v/s: %+v", rate, r)
			}
		})
	}
}

func TestWarmup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := func(ctx context.Context) error {
			timed(ctx, time.Now().Add(time.Millisecond))
			return KindError("no")
		}
		_, err := Run(t.Context(), of(2, broken), fake(Options{Calls: 1, Warmup: time.Second}))
		if err == nil || !strings.Contains(err.Error(), "no") {
			t.Errorf("%v", err)
		}
		slow := true
		call := func(ctx context.Context) error {
			if slow {
				slow = false
				return sleeper(500 * time.Millisecond)(ctx)
			}
			return sleeper(time.Millisecond)(ctx)
		}
		r, err := Run(t.Context(), []Call{call}, fake(Options{Calls: 100, Warmup: time.Second}))
		if err != nil || r.Calls != 100 || !near1(r.Latency.Max, 1) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Two servers in turns: the ratio is what they differ by, and the spread is that of the rounds.
func TestCompare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order strings.Builder
		named := func(name string, d time.Duration) Call {
			return func(ctx context.Context) error {
				order.WriteString(name)
				return sleeper(d)(ctx)
			}
		}
		c, err := Compare(t.Context(), []Call{named("a", 2*time.Millisecond)},
			[]Call{named("b", 3*time.Millisecond)}, 4, fake(Options{Calls: 8}))
		if err != nil {
			t.Fatal(err)
		}
		if order.String() != "aabbbbaaaabbbbaa" {
			t.Errorf("order %s", order.String())
		}
		if p50, rate := c.Ratios["p50"], c.Ratios["rate"]; !near1(p50.Median, 1.5) ||
			!near1(p50.Min, 1.5) || !near1(p50.Max, 1.5) || !near1(rate.Median, 1/1.5) {
			t.Errorf("%+v %+v", p50, rate)
		}
		if c.A.Calls != 8 || c.B.Calls != 8 || c.Rounds != 4 {
			t.Errorf("%+v", c)
		}
	})
	if got, want := spread([]float64{4, 1, 2, 3, 5}), (Ratio{3, 2, 4, 1, 5}); got != want {
		t.Errorf("%v", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := &Result{Calls: 1000, Failed: 15, Rate: 900, Latency: Latency{P99: 21.5, P50: 2}}
	for text, want := range map[string]string{
		"p99>20ms": "p99>20ms: it is 21.5ms", "p99 > 22ms": "", "p50<=2ms": "p50<=2ms: it is 2ms",
		"p50<2ms": "", "p99.9>1s": "",
		"errors>1%": "errors>1%: it is 1.500%", "errors>0.02": "", "rate<1000": "rate<1000: it is 900.0",
		"ratio.p99>1.1": "ratio.p99>1.1: there is one server only",
	} {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Broken([]Limit{l}, r), "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	c := &Comparison{
		A: r, B: &Result{Calls: 1, Latency: Latency{P99: 30}},
		Ratios: map[string]Ratio{"p99": {Median: 1.4}},
	}
	for text, want := range map[string]string{
		"p99>25ms": "p99>25ms: it is 30ms", "a.p99>25ms": "", "b.p99>25ms": "b.p99>25ms: it is 30ms",
		"ratio.p99>1.1": "ratio.p99>1.1: it is 1.400",
		"ratio.p50>1":   "ratio.p50>1: no round has measured it",
	} {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(BrokenOf([]Limit{l}, c), "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, bad := range []string{
		"", "p99", "p98>1ms", "p99>20", "rate>1ms", "errors>x", "p99=1ms", "c.p99>1ms", "ratio.errors>1",
	} {
		if _, err := ParseLimit(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Duration: -1, Calls: 1}, {Rate: -1, Calls: 1}} {
		if _, err := Run(t.Context(), of(1, sleeper(0)), &o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := Run(t.Context(), nil, &Options{Calls: 1}); err == nil {
		t.Error("no worker is accepted")
	}
	if _, err := Compare(t.Context(), nil, nil, 1, &Options{Calls: 1}); err == nil {
		t.Error("one round is accepted")
	}
	var k KindError
	if err := fmt.Errorf("x: %w", ErrTimeout); !errors.As(err, &k) || k != ErrTimeout {
		t.Error("a kind is found in what wraps it")
	}
}
