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

func (r *registry) traffic() *bounded[frameKey, *traffic] {
	known := map[[2]string]*traffic{}                         // by the values of the labels
	return bound(r, frames, func(values ...string) *traffic { // under the lock of the result
		key := [2]string(values)
		if t := known[key]; t != nil {
			return t
		}
		t, labels := new(traffic), prometheus.Labels{labelTransport: key[0], labelDirection: key[1]}
		known[key] = t
		for _, v := range []struct {
			metric
			read func() float64
		}{
			{frames, func() float64 { n, _ := t.read(); return n }},
			{frameBytes, func() float64 { _, n := t.read(); return n }},
		} {
			r.MustRegister(prometheus.NewCounterFunc(
				prometheus.CounterOpts{Name: v.name, Help: v.help, ConstLabels: labels}, v.read))
		}
		return t
	}, frameKey.values)
}
