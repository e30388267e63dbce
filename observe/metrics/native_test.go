package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/farcall-dev/farcall/observe"
)

// The native buckets, and the classic ones, are those of a histogram of client_golang, for times
// from a nanosecond to hours and for those at bounds.
func TestNative(t *testing.T) {
	t.Parallel()
	r := newRegistry(10)
	row := metric{name: "took_seconds", help: "h", labels: []string{"tool"}, buckets: mcpBuckets}
	own := r.family(row).series("a")
	want := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: row.name, Help: row.help, Buckets: row.buckets, NativeHistogramBucketFactor: 1.1,
	}, row.labels).WithLabelValues("a")
	count := func(took time.Duration) {
		own.observe(took, new(observe.Span))
		want.Observe(took.Seconds())
	}
	count(0)
	for _, bound := range row.buckets {
		for around := range time.Duration(3) {
			count(time.Duration(bound*1e9) + around - 1)
		}
	}
	for at := range 63 {
		count(1 << at / 2)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		count(time.Duration(math.Exp(random.Float64() * 30)))
	}
	var wide, all dto.Metric
	if err := want.(prometheus.Metric).Write(&all); err != nil {
		t.Fatal(err)
	}
	// The same with all buckets, as client_golang has them here.
	if err := own.metric(math.MaxInt).Write(&wide); err != nil {
		t.Fatal(err)
	}
	got, expected := wide.GetHistogram(), all.GetHistogram()
	if math.Abs(got.GetSampleSum()/expected.GetSampleSum()-1) > 1e-9 {
		t.Errorf("sum %v, want %v", got.GetSampleSum(), expected.GetSampleSum())
	}
	got.SampleSum, got.CreatedTimestamp = expected.SampleSum, expected.CreatedTimestamp
	if got.String() != expected.String() {
		t.Errorf("got %.5000v\nwant %.5000v", got.String(), expected.String())
	}
	// A scrape has fewer.
	var narrow dto.Metric
	if err := own.metric(mostNative).Write(&narrow); err != nil {
		t.Fatal(err)
	}
	h := narrow.GetHistogram()
	calls, last := h.GetZeroCount(), int64(0)
	for _, delta := range h.GetPositiveDelta() {
		last += delta
		calls += uint64(last)
	}
	if h.GetSchema() >= schema || len(h.GetPositiveDelta()) > mostNative+mostNative/2 ||
		calls != h.GetSampleCount() {
		t.Errorf("schema %d, %d buckets, %d calls of %d", h.GetSchema(), len(h.GetPositiveDelta()), calls,
			h.GetSampleCount())
	}
}

// Frames and their bytes are all counted, also beyond what one number holds of both.
func TestTraffic(t *testing.T) {
	t.Parallel()
	var one traffic
	const times, size = 1 << frameBits, 1 << 30
	for range times {
		one.observe(size)
	}
	if n, bytes := one.read(); n != times || bytes != times*size {
		t.Errorf("%v frames of %v bytes, want %v of %v", n, bytes, times, float64(times*size))
	}
}
