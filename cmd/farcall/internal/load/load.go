// Package load answers one question: how fast does a server answer?
//
// [Run] makes calls and measures them. In a closed loop each worker makes its next call when the
// one before has ended. In an open loop calls begin at a fixed rate, whether or not the server
// keeps up, and the latency of a call counts from the time at which it was due: a server that
// stalls is charged for all the calls that waited meanwhile (no coordinated omission). [Compare]
// measures two servers in turns.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Call makes one call. Its error says how the call failed; the kind of an error is what is
// counted, see [KindError]. A Call belongs to one worker: it is not called by two goroutines at
// once.
type Call func(ctx context.Context) error

// KindError is an error that names its kind: calls that failed in the same way are counted
// together.
type KindError string

// Error implements error.
func (k KindError) Error() string { return string(k) }

// ErrTimeout is the kind of a call that was not answered in time.
const ErrTimeout KindError = "no answer in time"

// Options say what load is made. Duration or Calls is required.
type Options struct {
	// Rate is how many calls begin in a second (open loop). 0: closed loop.
	Rate float64
	// Duration bounds the measurement. 0: Calls alone does.
	Duration time.Duration
	// Calls bounds the number of measured calls. 0: Duration alone does.
	Calls int64
	// Warmup is for how long calls are made before those that are measured. Default none.
	Warmup time.Duration
	// wait returns at a time, or when the context ends. Nil: until.
	wait func(ctx context.Context, at time.Time)
}

// check returns what is wrong with the options.
func (o *Options) check(workers int) error {
	switch {
	case workers == 0:
		return errors.New("load: no worker")
	case o.Duration <= 0 && o.Calls <= 0:
		return errors.New("load: neither a duration nor a number of calls bounds the load")
	case o.Duration < 0 || o.Calls < 0 || o.Warmup < 0 || o.Rate < 0:
		return errors.New("load: negative option")
	}
	return nil
}

// drain is for how long calls that were due in time may still begin after the end of an open loop.
func (o *Options) drain() time.Duration { return max(time.Second, o.Duration/10) }

// Run makes load with one worker for each call, and returns what it measured. It returns after the
// last call has ended. When the context ends before the measurement does, the result is of the
// calls until then.
func Run(ctx context.Context, calls []Call, o *Options) (*Result, error) {
	if err := o.check(len(calls)); err != nil {
		return nil, err
	}
	if err := warm(ctx, calls, o); err != nil {
		return nil, err
	}
	r := newRecorder()
	phase(ctx, calls, o, r)
	return r.result(), nil
}

// warm makes the calls that are not measured. It fails when all of them failed: there is nothing to
// measure then.
func warm(ctx context.Context, calls []Call, o *Options) error {
	if o.Warmup <= 0 {
		return nil
	}
	before := *o
	before.Duration, before.Calls = o.Warmup, 0
	r := newRecorder()
	phase(ctx, calls, &before, r)
	s := r.result()
	if s.Calls == 0 || s.Failed < s.Calls {
		return nil
	}
	for _, e := range s.Errors {
		return fmt.Errorf("all %d calls of the warm-up failed: %s", s.Calls, e.Kind)
	}
	return nil
}

// A pacer hands out the calls of a phase.
type pacer struct {
	start, end time.Time // end is zero without a duration
	last       time.Time // of an open loop: no call begins after it
	interval   float64   // ns between two calls of an open loop; 0: closed
	most       int64     // calls; 0: any number
	wait       func(context.Context, time.Time)

	// turn, of an open loop, is held by the worker that waits for the next call to be due. It is a
	// channel and no mutex as testing/synctest does not count those who wait for a mutex as idle.
	turn chan struct{}
	next int64
	free atomic.Int64 // of a closed loop: calls that were taken
}

func newPacer(o *Options) *pacer {
	p := &pacer{start: time.Now(), most: o.Calls, wait: o.wait, turn: make(chan struct{}, 1)}
	if p.wait == nil {
		p.wait = until
	}
	if o.Duration > 0 {
		p.end = p.start.Add(o.Duration)
	}
	if o.Rate > 0 {
		p.interval = float64(time.Second) / o.Rate
		if o.Duration > 0 {
			p.last = p.end.Add(o.drain())
		}
	}
	return p
}

// due returns when call n of an open loop is to begin.
func (p *pacer) due(n int64) time.Time {
	return p.start.Add(time.Duration(float64(n) * p.interval))
}

// take waits until the next call is due, and returns when that is. ok is false when there is none.
func (p *pacer) take(ctx context.Context) (due time.Time, ok bool) {
	if p.interval == 0 {
		if p.most > 0 && p.free.Add(1) > p.most {
			return due, false
		}
		now := time.Now()
		return now, ctx.Err() == nil && (p.end.IsZero() || now.Before(p.end))
	}
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if due, ok = p.peek(); !ok {
		return due, false
	}
	p.wait(ctx, due)
	if ctx.Err() != nil || !p.last.IsZero() && time.Now().After(p.last) {
		return due, false
	}
	p.next++
	return due, true
}

// peek returns the next call of an open loop, without taking it.
func (p *pacer) peek() (due time.Time, ok bool) {
	due = p.due(p.next)
	return due, (p.most == 0 || p.next < p.most) && (p.end.IsZero() || due.Before(p.end))
}

// phase makes calls until there are no more, and records them.
func phase(ctx context.Context, calls []Call, o *Options, r *recorder) {
	p := newPacer(o)
	var wg sync.WaitGroup
	for i, call := range calls {
		shard := &r.shards[i%len(r.shards)]
		wg.Go(func() {
			for {
				due, ok := p.take(ctx)
				if !ok {
					return
				}
				begin := due
				if p.interval > 0 {
					begin = time.Now()
				}
				err := call(ctx)
				end := time.Now()
				if err != nil && ctx.Err() != nil {
					return // interrupted, which is no answer of the server
				}
				shard.record(end.Sub(due), begin.Sub(due), err)
			}
		})
	}
	wg.Wait()
	now := time.Now()
	r.elapsed += now.Sub(p.start)
	if ctx.Err() != nil {
		return
	}
	for due, ok := p.peek(); p.interval > 0 && ok; due, ok = p.peek() {
		r.unsent++
		r.shards[0].record(now.Sub(due), now.Sub(due), nil) // it would have taken longer still
		p.next++
	}
}

// Within bounds the time of a call. 0: nothing does.
func Within(timeout time.Duration, call Call) Call {
	return func(ctx context.Context) error {
		limited, cancel := within(ctx, timeout)
		defer cancel()
		err := call(limited)
		if err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
			return ErrTimeout
		}
		return err
	}
}

func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// Comparison is what was measured of two servers in turns.
type Comparison struct {
	A *Result `json:"a"`
	B *Result `json:"b"`
	// Ratios of B to A, by the name of a figure.
	Ratios map[string]Ratio `json:"ratios"`
	Rounds int              `json:"rounds"`
}

// Ratio is B's figure divided by A's, in each round; the quartiles say how much the rounds differ.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`  // a quarter of the rounds are below
	High   float64 `json:"high"` // a quarter of the rounds are above
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// compared names the figures that have ratios.
var compared = []string{"rate", "mean", "p50", "p90", "p99", "p99.9"}

// Compare measures two servers in rounds. In each, both get the same load one after the other, and
// the order changes from round to round, so that what disturbs the machine for a while disturbs
// both. Duration and Calls are for each server, over all rounds.
func Compare(ctx context.Context, a, b []Call, rounds int, o *Options) (*Comparison, error) {
	if rounds < 2 {
		return nil, errors.New("load: a comparison takes 2 rounds or more")
	}
	for _, calls := range [][]Call{a, b} {
		if err := o.check(len(calls)); err != nil {
			return nil, err
		}
	}
	if err := warm(ctx, a, o); err != nil {
		return nil, fmt.Errorf("a: %w", err)
	}
	if err := warm(ctx, b, o); err != nil {
		return nil, fmt.Errorf("b: %w", err)
	}
	part := *o
	part.Duration = o.Duration / time.Duration(rounds)
	if o.Calls > 0 {
		part.Calls = max(o.Calls/int64(rounds), 1)
	}
	all := [2]*recorder{newRecorder(), newRecorder()}
	ratios := map[string][]float64{}
	c := &Comparison{Ratios: map[string]Ratio{}}
	for n := 0; n < rounds && ctx.Err() == nil; n++ {
		var figures [2]map[string]float64
		for i := range 2 {
			i = (i + n) % 2
			r := newRecorder()
			phase(ctx, [][]Call{a, b}[i], &part, r)
			all[i].add(r)
			figures[i] = r.result().figures()
		}
		if ctx.Err() != nil {
			break
		}
		c.Rounds++
		for _, name := range compared {
			if figures[0][name] > 0 {
				ratios[name] = append(ratios[name], figures[1][name]/figures[0][name])
			}
		}
	}
	c.A, c.B = all[0].result(), all[1].result()
	for name, list := range ratios {
		c.Ratios[name] = spread(list)
	}
	return c, nil
}

// spread sums up ratios.
func spread(list []float64) Ratio {
	slices.Sort(list)
	return Ratio{
		Median: quantile(list, 0.5), Low: quantile(list, 0.25), High: quantile(list, 0.75),
		Min: list[0], Max: list[len(list)-1],
	}
}

// quantile interpolates in a sorted list.
func quantile(list []float64, q float64) float64 {
	at := q * float64(len(list)-1)
	i := int(at)
	if i+1 >= len(list) {
		return list[len(list)-1]
	}
	return list[i] + (at-float64(i))*(list[i+1]-list[i])
}

// near is what timers of Go may be late by, and more.
const near = 2 * time.Millisecond

// until waits until a time, to some microseconds, or until the context ends.
func until(ctx context.Context, at time.Time) {
	if d := time.Until(at) - near; d > 0 {
		timed(ctx, time.Now().Add(d))
	}
	if ctx.Err() == nil {
		nap(at)
	}
}

// timed waits until a time by a timer.
func timed(ctx context.Context, at time.Time) {
	d := time.Until(at)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

const (
	longest  = int64(time.Hour) // a latency that is longer counts as this
	digits   = 3                // a latency is exact to 0.1 %
	maxKinds = 32               // of errors; the rest are counted together
)

const errOther KindError = "other errors"

// A recorder has what was measured. Workers share its shards: each worker waits for no more than
// some others.
type recorder struct {
	shards  [8]shard
	elapsed time.Duration
	unsent  int64
}

type shard struct {
	mu      sync.Mutex
	latency *hdrhistogram.Histogram
	delay   *hdrhistogram.Histogram
	calls   int64
	errors  map[string]int64
}

func newRecorder() *recorder {
	r := &recorder{}
	for i := range r.shards {
		s := &r.shards[i]
		s.latency, s.delay, s.errors = newHistogram(), newHistogram(), map[string]int64{}
	}
	return r
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, digits) }

// record counts a call: how long it took from when it was due, how late it began, and how it
// failed.
func (s *shard) record(latency, delay time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	_ = s.latency.RecordValue(clamp(latency)) // it is in range
	_ = s.delay.RecordValue(clamp(delay))
	if err != nil {
		s.errors[kindOf(err, s.errors)]++
	}
}

func clamp(d time.Duration) int64 { return min(max(int64(d), 1), longest) }

// kindOf names the kind of an error, in a map that does not grow without bound.
func kindOf(err error, known map[string]int64) string {
	var k KindError
	if !errors.As(err, &k) {
		k = KindError(err.Error())
	}
	if _, ok := known[string(k)]; !ok && len(known) >= maxKinds {
		return string(errOther)
	}
	return string(k)
}

// Result is what was measured.
type Result struct {
	Calls   int64      `json:"calls"`  // made, or due and not made
	Failed  int64      `json:"failed"` // of Calls
	Unsent  int64      `json:"unsent"` // of Calls: due in an open loop, and not begun until its end
	Seconds float64    `json:"seconds"`
	Rate    float64    `json:"rate"` // calls that were made in a second
	Latency Latency    `json:"latency"`
	Delay   Delay      `json:"delay"`
	Errors  []Failures `json:"errors,omitempty"`
}

// Failures are calls that failed in the same way.
type Failures struct {
	Kind  string `json:"kind"`
	Calls int64  `json:"calls"`
}

// Latency is the time of calls in milliseconds: in an open loop from when each was due.
type Latency struct {
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99.9"`
	P9999 float64 `json:"p99.99"`
	Max   float64 `json:"max"`
}

// Delay is by how many milliseconds calls of an open loop began late, which their latency includes.
type Delay struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// add takes over what another recorder has.
func (r *recorder) add(other *recorder) {
	to := &r.shards[0]
	for i := range other.shards {
		s := &other.shards[i]
		to.latency.Merge(s.latency)
		to.delay.Merge(s.delay)
		to.calls += s.calls
		// The kinds with most calls come first: no others may take their places.
		for _, e := range failures(s.errors) {
			to.errors[kindOf(KindError(e.Kind), to.errors)] += e.Calls
		}
	}
	r.elapsed += other.elapsed
	r.unsent += other.unsent
}

// failures are counts of errors, those with most calls first.
func failures(counts map[string]int64) (list []Failures) {
	for kind, n := range counts {
		list = append(list, Failures{kind, n})
	}
	slices.SortFunc(list, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// result sums up.
func (r *recorder) result() *Result {
	all := newRecorder()
	all.add(r)
	s := &all.shards[0]
	out := &Result{Calls: s.calls, Unsent: all.unsent, Seconds: all.elapsed.Seconds()}
	if all.elapsed > 0 {
		out.Rate = float64(out.Calls-out.Unsent) / out.Seconds
	}
	out.Errors = failures(s.errors)
	for _, e := range out.Errors {
		out.Failed += e.Calls
	}
	out.Failed += out.Unsent
	if out.Calls == 0 {
		return out
	}
	h := s.latency
	at := func(h *hdrhistogram.Histogram, q float64) float64 {
		return milliseconds(float64(h.ValueAtQuantile(q)))
	}
	out.Latency = Latency{
		Min: milliseconds(float64(h.Min())), Mean: milliseconds(h.Mean()), P50: at(h, 50),
		P75: at(h, 75), P90: at(h, 90), P95: at(h, 95), P99: at(h, 99), P999: at(h, 99.9),
		P9999: at(h, 99.99), Max: milliseconds(float64(h.Max())),
	}
	out.Delay = Delay{
		P50: at(s.delay, 50), P99: at(s.delay, 99), Max: milliseconds(float64(s.delay.Max())),
	}
	return out
}

func milliseconds(ns float64) float64 { return ns / float64(time.Millisecond) }

// Figures are the values of a result by the names that [ParseLimit] knows.
func (r *Result) figures() map[string]float64 {
	l := &r.Latency
	f := map[string]float64{
		"min": l.Min, "mean": l.Mean, "p50": l.P50, "p75": l.P75, "p90": l.P90, "p95": l.P95,
		"p99": l.P99, "p99.9": l.P999, "p99.99": l.P9999, "max": l.Max, "rate": r.Rate, "errors": 0,
	}
	if r.Calls > 0 {
		f["errors"] = float64(r.Failed) / float64(r.Calls)
	}
	return f
}

// names of figures, in the order in which they are shown.
func figureNames() []string { return slices.Sorted(maps.Keys((&Result{}).figures())) }
