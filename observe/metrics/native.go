package metrics

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// schema is that of the native histograms: 8 buckets each time that the value doubles, 9 % apart.
	schema = 3
	steps  = 1 << schema
	// shortest is the exponent of a nanosecond in seconds, and octaves are those up to the longest
	// time.Duration.
	shortest, octaves = -30, 65
	// mostNative is how many buckets a scrape has at most: the schema is smaller if necessary.
	mostNative = 100
)

// bounds are the upper ones of the buckets from 0.5 to 1, but for the last.
var bounds = [steps]float64{
	0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
	0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711,
}

// none is the number of the bucket for values that are not greater than 0.
const none = shortest*steps - 1

// nativeOf returns the number of the bucket for a value: that of number i has what is greater than
// 2^((i-1)/8) seconds, up to 2^(i/8).
func nativeOf(v float64) int {
	if v <= 0 {
		return none
	}
	fraction, exponent := math.Frexp(v)
	i := (exponent - 1) * steps
	for _, bound := range bounds {
		if fraction > bound {
			i++
		}
	}
	return i
}

// natives are the buckets of a native histogram. Those of an octave are made with its first value.
type natives struct {
	none atomic.Uint64
	some [octaves]atomic.Pointer[[steps]atomic.Uint64]
}

// add counts a value of a bucket.
func (n *natives) add(i int) {
	if i == none {
		n.none.Add(1)
		return
	}
	at := &n.some[uint(i-shortest*steps)/steps]
	octave := at.Load()
	if octave == nil {
		at.CompareAndSwap(nil, new([steps]atomic.Uint64))
		octave = at.Load()
	}
	octave[uint(i)%steps].Add(1)
}

// all yields the buckets that have values, by their numbers, from the least on.
func (n *natives) all(yield func(i int, count uint64) bool) {
	if v := n.none.Load(); v > 0 && !yield(none, v) {
		return
	}
	for o := range n.some {
		octave := n.some[o].Load()
		for i := 0; octave != nil && i < steps; i++ {
			if v := octave[i].Load(); v > 0 && !yield((o+shortest)*steps+i, v) {
				return
			}
		}
	}
}

// Describe implements prometheus.Collector.
func (f *family) Describe(to chan<- *prometheus.Desc) { to <- f.desc }

// Collect implements prometheus.Collector, for protobuf, the only format of native histograms, and
// for OpenTelemetry.
func (f *family) Collect(to chan<- prometheus.Metric) {
	for _, t := range f.begun() {
		to <- t.metric(mostNative)
	}
}

// histograms is a series with the classic buckets of one metric and the native ones of another.
type histograms struct {
	prometheus.Metric
	native prometheus.Metric
}

// Write implements prometheus.Metric.
func (h *histograms) Write(out *dto.Metric) error {
	var other dto.Metric
	if err := errors.Join(h.Metric.Write(out), h.native.Write(&other)); err != nil {
		return err
	}
	to, from := out.GetHistogram(), other.GetHistogram()
	to.Schema, to.ZeroThreshold, to.ZeroCount = from.Schema, from.ZeroThreshold, from.ZeroCount
	to.PositiveSpan, to.PositiveDelta = from.PositiveSpan, from.PositiveDelta
	return nil
}

// metric returns the series as it is now, with at most so many native buckets.
func (t *timed) metric(most int) prometheus.Metric {
	classic, buckets := map[float64]uint64{}, map[int]int64{}
	upTo := t.classic()
	count, zero := uint64(0), uint64(0)
	for i, n := range t.native.all {
		if count += n; i == none {
			zero = n
		} else {
			buckets[i] = int64(n)
		}
	}
	for i, bound := range t.family.row.buckets {
		classic[bound] = upTo[i]
	}
	number := int32(schema)
	for ; len(buckets) > most; number-- {
		wider := map[int]int64{}
		for i, n := range buckets {
			wider[(i+1)>>1] += n
		}
		buckets = wider
	}
	sum := math.Float64frombits(t.sum.Load())
	desc := t.family.desc
	native := prometheus.MustNewConstNativeHistogram(
		desc, count, sum, buckets, nil, zero, number, prometheus.DefNativeHistogramZeroThreshold,
		t.began, t.values...)
	m := prometheus.Metric(&histograms{prometheus.MustNewConstHistogramWithCreatedTimestamp(
		desc, count, sum, classic, t.began, t.values...), native})
	var exemplars []prometheus.Exemplar
	for i := range upTo {
		if e := t.exemplar(i); e.trace != "" {
			exemplars = append(exemplars, prometheus.Exemplar{
				Value: e.value, Timestamp: e.at,
				Labels: prometheus.Labels{"trace_id": e.trace, "span_id": e.span},
			})
		}
	}
	if exemplars == nil {
		return m
	}
	return prometheus.MustNewMetricWithExemplars(m, exemplars...)
}
