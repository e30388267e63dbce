package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/observe/internal/words"

	"github.com/prometheus/client_golang/prometheus"
)

// registry makes the metrics of the table.
type registry struct {
	*prometheus.Registry // all but the families

	natives  *prometheus.Registry // the families, with native histograms
	families []*family

	most      int // series of each
	overflown *prometheus.CounterVec
}

func newRegistry(most int) *registry {
	r := &registry{Registry: prometheus.NewRegistry(), natives: prometheus.NewRegistry(), most: most}
	r.overflown = r.counter(overflow)
	return r
}

func (r *registry) counter(row metric) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: row.name, Help: row.help}, row.labels)
	r.MustRegister(v)
	return v
}

func (r *registry) gauge(row metric) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: row.name, Help: row.help}, row.labels)
	r.MustRegister(v)
	return v
}

// histogram has the buckets of the row and native ones, with 10 % between them: who scrapes
// chooses.
func (r *registry) histogram(row metric) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: row.name, Help: row.help, Buckets: row.buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		NativeHistogramMinResetDuration: time.Hour,
	}, row.labels)
	r.MustRegister(v)
	return v
}

// bound looks the series of a metric up by their keys.
func bound[K key[K], V any](
	r *registry, row metric, series func(...string) V, values func(K) []string,
) *bounded[K, V] {
	exceeding := r.overflown.WithLabelValues(row.name)
	none := slices.Repeat([]string{words.Other}, len(row.labels))
	return newBounded(r.most, func(k K) V { return series(valid(values(k))...) }, func() V {
		exceeding.Inc()
		return series(none...)
	})
}

// valid makes the values of labels UTF-8, without which client_golang panics.
func valid(values []string) []string {
	for i, v := range values {
		values[i] = strings.ToValidUTF8(v, "\uFFFD")
	}
	return values
}

// callKey tells calls apart.
type callKey struct{ method, tool, prompt, failure, revision, transport, upstream string }

func (k callKey) copied() callKey {
	return callKey{
		strings.Clone(k.method), strings.Clone(k.tool), strings.Clone(k.prompt), strings.Clone(k.failure),
		strings.Clone(k.revision), strings.Clone(k.transport), strings.Clone(k.upstream),
	}
}

// hint is a number that is likely to be another one for another key. It costs less than a hash.
func (k callKey) hint() uint32 {
	h := uint32(len(k.method))
	for _, text := range [...]string{k.method, k.tool, k.upstream} {
		if n := len(text); n > 0 {
			h = h*31 + uint32(text[n-1]) + uint32(text[n/2])<<5 + uint32(text[n*3/4])<<9 + uint32(n)<<2
		}
	}
	return h ^ h>>11
}

func (k callKey) ofMCP() []string {
	return []string{k.method, k.tool, k.prompt, k.failure, k.revision, words.Network(k.transport)}
}

func (k callKey) ofRPC() []string {
	return []string{"jsonrpc", k.method, k.failure, words.Network(k.transport)}
}

func (k callKey) toMCP() []string { return append(k.ofMCP(), k.upstream) }
func (k callKey) toRPC() []string { return append(k.ofRPC(), k.upstream) }

func (r *registry) calls(row metric, values func(callKey) []string) *bounded[callKey, *timed] {
	return bound(r, row, r.family(row).series, values)
}

// pair is a key of two labels.
type pair [2]string

func (k pair) copied() pair     { return pair{strings.Clone(k[0]), strings.Clone(k[1])} }
func (k pair) values() []string { return slices.Clone(k[:]) }

// text is a key of one label.
type text string

func (k text) copied() text     { return text(strings.Clone(string(k))) }
func (k text) values() []string { return []string{string(k)} }

// session is the series of the sessions of one kind.
type session struct {
	open prometheus.Gauge
	took prometheus.Observer
}

func (r *registry) sessions() (all [2]*bounded[pair, session]) {
	open := r.gauge(sessions)
	for side, row := range []metric{mcpServerSession, mcpClientSession} {
		took := r.histogram(row)
		all[side] = bound(r, row, func(v ...string) session {
			return session{
				open.WithLabelValues(sides[side], v[0], v[1]),
				took.WithLabelValues(v[0], words.Network(v[1])),
			}
		}, pair.values)
	}
	return all
}
