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

// A family is a histogram with many series: calls, by tool. It has its own counters, for the
// classic buckets and for the native ones: to count a call in a histogram of client_golang takes
// 130 ns. It writes the text formats itself, too: client_golang makes about 170 objects for each
// series of each scrape.
type family struct {
	row    metric
	desc   *prometheus.Desc
	bounds []time.Duration // of the classic buckets
	within []int           // the native buckets that the bounds are in

	mu    sync.Mutex
	known map[string]*timed // by the values of the labels
	all   []*timed          // in the order in which they began
}

// timed is one series.
type timed struct {
	family *family
	values []string // of the labels
	labels string   // {name="value",…, without the closing brace
	began  time.Time
	native natives
	// what is in the native bucket of a classic bound, and not greater than the bound
	below []atomic.Uint64
	sum   atomic.Uint64 // the bits of a float64, in seconds

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
	f := &family{
		row: row, desc: prometheus.NewDesc(row.name, row.help, row.labels, nil),
		known: map[string]*timed{},
	}
	for _, bound := range row.buckets {
		f.bounds = append(f.bounds, time.Duration(bound*float64(time.Second)))
		f.within = append(f.within, nativeOf(bound))
	}
	r.natives.MustRegister(f)
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
			family: f, values: values, labels: labelsOf(f.row.labels, values), began: time.Now(),
			below: make([]atomic.Uint64, len(f.bounds)),
		}
		f.known[key] = t
		f.all = append(f.all, t)
	}
	return t
}

// begun returns all series.
func (f *family) begun() []*timed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.all)
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

// observe counts a call that took so long, in a span if it has one.
func (t *timed) observe(took time.Duration, span *observe.Span) {
	f, at, v := t.family, 0, took.Seconds()
	for at < len(f.bounds) && took > f.bounds[at] {
		at++
	}
	if span.Sampled {
		t.mark(at, v, span)
	}
	native := nativeOf(v)
	t.native.add(native)
	if at < len(f.within) && f.within[at] == native {
		t.below[at].Add(1)
	}
	for {
		before := t.sum.Load()
		after := math.Float64bits(math.Float64frombits(before) + v)
		if t.sum.CompareAndSwap(before, after) {
			return
		}
	}
}

// mark makes a call the exemplar of its bucket, unless the one there is recent.
func (t *timed) mark(at int, v float64, span *observe.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exemplars == nil {
		t.exemplars = make([]exemplar, len(t.below)+1)
	}
	if e, now := &t.exemplars[at], time.Now(); now.Sub(e.at) >= exemplarAge {
		*e = exemplar{hex.EncodeToString(span.Trace[:]), hex.EncodeToString(span.ID[:]), v, now}
	}
}

// ended returns how many calls are in a family.
func (f *family) ended() (n uint64) {
	for _, t := range f.begun() {
		for _, some := range t.native.all {
			n += some
		}
	}
	return n
}

// classic returns what the classic buckets have, each with those before it. The last one has all.
func (t *timed) classic() []uint64 {
	all := make([]uint64, len(t.below)+1)
	for at := range t.below {
		all[at] = t.below[at].Load()
	}
	at, count := 0, uint64(0)
	for native, n := range t.native.all {
		for ; at < len(t.below) && t.family.within[at] <= native; at++ {
			all[at] += count
		}
		count += n
	}
	for ; at < len(all); at++ {
		all[at] += count
	}
	return all
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
	all := f.begun()
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
	classic := t.classic()
	for i, bound := range bounds {
		out = append(append(append(append(out, name...), "_bucket"...), t.labels...), bound...)
		out = strconv.AppendUint(out, classic[i], 10)
		if exemplars {
			e := t.exemplar(i)
			out = e.appendTo(out)
		}
		out = append(out, '\n')
	}
	out = append(append(append(out, name...), "_sum"...), closed...)
	out = strconv.AppendFloat(out, math.Float64frombits(t.sum.Load()), 'g', -1, 64)
	out = append(append(append(append(out, '\n'), name...), "_count"...), closed...)
	return append(strconv.AppendUint(out, classic[len(bounds)-1], 10), '\n')
}

func (e *exemplar) appendTo(out []byte) []byte {
	if e.trace == "" {
		return out
	}
	out = append(out, ` # {span_id="`+e.span+`",trace_id="`+e.trace+`"} `...)
	out = append(strconv.AppendFloat(out, e.value, 'g', -1, 64), ' ')
	return strconv.AppendFloat(out, float64(e.at.UnixMilli())/1e3, 'f', 3, 64)
}
