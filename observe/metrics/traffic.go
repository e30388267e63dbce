package metrics

import (
	"strings"
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
	if t.recent.Add(uint64(size)<<frameBits|1)&nearlyFull != 0 { //nolint:gosec // it is not negative
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

// hint is as that of callKey.
func (k frameKey) hint() uint32 {
	h := uint32(len(k.transport)) << 1
	if k.out {
		h++
	}
	return h
}

type frameKey struct {
	transport string
	out       bool
}

func (k frameKey) copied() frameKey { return frameKey{strings.Clone(k.transport), k.out} }

func (k frameKey) values() []string {
	if k.out {
		return []string{k.transport, "out"}
	}
	return []string{k.transport, "in"}
}

// directions are the collector of all traffic.
type directions struct {
	frames, bytes *prometheus.Desc

	mu    sync.Mutex
	known map[[2]string]*traffic // by the values of the labels
}

// series returns the traffic with the values of the labels.
func (d *directions) series(values ...string) *traffic {
	key := [2]string(values)
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.known[key]
	if t == nil {
		t = new(traffic)
		d.known[key] = t
	}
	return t
}

// Describe implements prometheus.Collector.
func (d *directions) Describe(to chan<- *prometheus.Desc) { to <- d.frames; to <- d.bytes }

// Collect implements prometheus.Collector.
func (d *directions) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for labels, t := range d.known {
		n, bytes := t.read()
		to <- prometheus.MustNewConstMetric(d.frames, prometheus.CounterValue, n, labels[:]...)
		to <- prometheus.MustNewConstMetric(d.bytes, prometheus.CounterValue, bytes, labels[:]...)
	}
}

func (r *registry) traffic() *bounded[frameKey, *traffic] {
	d := &directions{
		frames: prometheus.NewDesc(frames.name, frames.help, frames.labels, nil),
		bytes:  prometheus.NewDesc(frameBytes.name, frameBytes.help, frameBytes.labels, nil),
		known:  map[[2]string]*traffic{},
	}
	r.MustRegister(d)
	return bound(r, frames, d.series, frameKey.values)
}
