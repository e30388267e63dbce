package load

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

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
		for kind, n := range s.errors {
			to.errors[kindOf(KindError(kind), to.errors)] += n
		}
	}
	r.elapsed += other.elapsed
	r.unsent += other.unsent
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
	for kind, n := range s.errors {
		out.Failed += n
		out.Errors = append(out.Errors, Failures{kind, n})
	}
	slices.SortFunc(out.Errors, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Kind, b.Kind))
	})
	out.Failed += out.Unsent
	if out.Calls == 0 {
		return out
	}
	h := s.latency
	at := func(h *hdrhistogram.Histogram, q float64) float64 {
		return milliseconds(float64(h.ValueAtQuantile(q)))
	}
	out.Latency = Latency{
		Min: milliseconds(float64(h.Min())), Mean: milliseconds(h.Mean()),
		P50: at(h, 50), P75: at(h, 75), P90: at(h, 90), P95: at(h, 95), P99: at(h, 99),
		P999: at(h, 99.9), P9999: at(h, 99.99),
		Max: milliseconds(float64(h.Max())),
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
