package metrics

import (
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farcall-dev/farcall/observe"
)

// A family is a histogram with many series: calls, by tool. It keeps the classic buckets of each
// series beside those of client_golang, which has the native ones, and writes the text formats
// itself: client_golang makes about 170 objects for each series of each scrape.
type family struct {
	row metric
	vec *prometheus.HistogramVec // for protobuf, the only format of native histograms

	mu    sync.Mutex
	known map[string]*timed // by the values of the labels
	all   []*timed          // in the order in which they began
}

// timed is one series.
type timed struct {
	native prometheus.Observer
	bounds []float64
	labels string // {name="value",…, without the closing brace
	counts []atomic.Uint64
	sum    atomic.Uint64 // the bits of a float64

	mu        sync.Mutex
	exemplars []exemplar // by bucket, nil: no call was in a trace that is recorded
}

// exemplar is a call of a bucket that has a span.
type exemplar struct {
	trace, span string
	value       float64
	at          time.Time
}

// exemplarAge is how long the exemplar of a bucket stays at least.
const exemplarAge = time.Second

func (r *registry) family(row metric) *family {
	f := &family{row: row, vec: newHistogram(row), known: map[string]*timed{}}
	r.natives.MustRegister(f.vec)
	r.families = append(r.families, f)
	return f
}

// series returns the series with the values of the labels.
func (f *family) series(values ...string) *timed {
	key := strings.Join(values, "\xff")
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.known[key]
	if t == nil {
		t = &timed{
			native: f.vec.WithLabelValues(values...), bounds: f.row.buckets,
			labels: labelsOf(f.row.labels, values), counts: make([]atomic.Uint64, len(f.row.buckets)+1),
		}
		f.known[key] = t
		f.all = append(f.all, t)
	}
	return t
}

// labelsOf writes labels as the text formats have them, in the order of their names.
func labelsOf(names, values []string) string {
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	pairs := make([]string, 0, len(names))
	for i, name := range names {
		pairs = append(pairs, name+`="`+escape.Replace(values[i])+`"`)
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, ",")
}

// observe counts a call that took so many seconds, in a span if it has one.
func (t *timed) observe(v float64, span *observe.Span) {
	at := 0
	for at < len(t.bounds) && v > t.bounds[at] {
		at++
	}
	if !span.Sampled || !t.mark(at, v, span) {
		t.native.Observe(v)
	}
	t.counts[at].Add(1)
	for {
		before := t.sum.Load()
		after := math.Float64bits(math.Float64frombits(before) + v)
		if t.sum.CompareAndSwap(before, after) {
			return
		}
	}
}

// mark makes a call the exemplar of its bucket, and counts it in the native histogram, unless the
// exemplar there is a recent one.
func (t *timed) mark(at int, v float64, span *observe.Span) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exemplars == nil {
		t.exemplars = make([]exemplar, len(t.counts))
	}
	e, now := &t.exemplars[at], time.Now()
	if now.Sub(e.at) < exemplarAge {
		return false
	}
	*e = exemplar{hex.EncodeToString(span.Trace[:]), hex.EncodeToString(span.ID[:]), v, now}
	native, ok := t.native.(prometheus.ExemplarObserver)
	if ok {
		native.ObserveWithExemplar(v, prometheus.Labels{"trace_id": e.trace, "span_id": e.span})
	}
	return ok
}

// exemplar returns that of a bucket; the zero value: there is none.
func (t *timed) exemplar(at int) exemplar {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exemplars == nil {
		return exemplar{}
	}
	return t.exemplars[at]
}

// appendTo appends all series in a text format. In OpenMetrics a bound that is a whole number ends
// with .0, and buckets have exemplars.
func (f *family) appendTo(out []byte, openMetrics bool) []byte {
	f.mu.Lock()
	all := slices.Clip(f.all)
	f.mu.Unlock()
	if len(all) == 0 {
		return out
	}
	out = append(out, "# HELP "+f.row.name+" "+f.row.help+"\n# TYPE "+f.row.name+" histogram\n"...)
	bounds := make([]string, 0, len(f.row.buckets)+1)
	for _, bound := range f.row.buckets {
		text := strconv.FormatFloat(bound, 'g', -1, 64)
		if openMetrics && !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		bounds = append(bounds, `,le="`+text+`"} `)
	}
	bounds = append(bounds, `,le="+Inf"} `)
	for _, t := range all {
		out = t.appendTo(out, f.row.name, bounds, openMetrics)
	}
	return out
}

func (t *timed) appendTo(out []byte, name string, bounds []string, exemplars bool) []byte {
	closed := t.labels + "} "
	count := uint64(0)
	for i, bound := range bounds {
		count += t.counts[i].Load()
		out = append(append(append(append(out, name...), "_bucket"...), t.labels...), bound...)
		out = strconv.AppendUint(out, count, 10)
		if exemplars {
			e := t.exemplar(i)
			out = e.appendTo(out)
		}
		out = append(out, '\n')
	}
	out = append(append(append(out, name...), "_sum"...), closed...)
	out = strconv.AppendFloat(out, math.Float64frombits(t.sum.Load()), 'g', -1, 64)
	out = append(append(append(append(out, '\n'), name...), "_count"...), closed...)
	return append(strconv.AppendUint(out, count, 10), '\n')
}

func (e *exemplar) appendTo(out []byte) []byte {
	if e.trace == "" {
		return out
	}
	out = append(out, ` # {span_id="`+e.span+`",trace_id="`+e.trace+`"} `...)
	out = append(strconv.AppendFloat(out, e.value, 'g', -1, 64), ' ')
	return strconv.AppendFloat(out, float64(e.at.UnixMilli())/1e3, 'f', 3, 64)
}
