package metrics

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// traffic is what goes one way over a transport. recent has the last frames in its low bits and
// their bytes above, so that one addition counts both.
type traffic struct {
	recent atomic.Uint64

	mu            sync.Mutex
	frames, bytes uint64 // what recent had before
}

const (
	frameBits = 20
	// nearlyFull has the highest bit of each of both numbers in traffic.recent.
	nearlyFull = 1<<63 | 1<<(frameBits-1)
)

func (t *traffic) observe(size int) {
	if t.recent.Add(uint64(size)<<frameBits|1)&nearlyFull != 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		n := t.recent.Swap(0)
		t.frames, t.bytes = t.frames+n&(1<<frameBits-1), t.bytes+n>>frameBits
	}
}

func (t *traffic) read() (frames, bytes float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.recent.Load()
	return float64(t.frames + n&(1<<frameBits-1)), float64(t.bytes + n>>frameBits)
}

// ways are what goes both ways over a transport.
type ways struct {
	transport string
	in, out   traffic
}

// frameCounts are the collector of the traffic of all transports.
type frameCounts struct {
	frames, bytes *prometheus.Desc

	mu  sync.Mutex
	all map[string]*ways // by the transport
}

func (r *registry) traffic() *bounded[text, *ways] {
	describe := func(row metric) *prometheus.Desc {
		return prometheus.NewDesc(row.name, row.help, row.labels, nil)
	}
	c := &frameCounts{frames: describe(frames), bytes: describe(frameBytes), all: map[string]*ways{}}
	r.MustRegister(c)
	half := *r
	half.most /= 2 // each has two series
	return bound(&half, frames, c.of, text.values)
}

// of returns the traffic with the values of the labels: the first is the transport.
func (c *frameCounts) of(values ...string) *ways {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.all[values[0]]
	if w == nil {
		w = &ways{transport: values[0]}
		c.all[values[0]] = w
	}
	return w
}

// Describe implements prometheus.Collector.
func (c *frameCounts) Describe(to chan<- *prometheus.Desc) {
	to <- c.frames
	to <- c.bytes
}

// Collect implements prometheus.Collector.
func (c *frameCounts) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.all))
	c.mu.Unlock()
	send := func(t *traffic, transport, direction string) {
		n, size := t.read()
		if n == 0 {
			return
		}
		to <- prometheus.MustNewConstMetric(c.frames, prometheus.CounterValue, n, transport, direction)
		to <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, size, transport, direction)
	}
	for _, w := range all {
		send(&w.in, w.transport, "in")
		send(&w.out, w.transport, "out")
	}
}
