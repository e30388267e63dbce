package metrics

import (
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

// direction is the key of the traffic of a transport, and a hint as that of callKey.
func direction(transport string, out bool) (k pair, hint uint32) {
	if out {
		return pair{transport, "out"}, uint32(len(transport))<<1 | 1
	}
	return pair{transport, "in"}, uint32(len(transport)) << 1
}

func (r *registry) traffic() *bounded[pair, *traffic] {
	known := map[pair]*traffic{}                              // by the values of the labels
	return bound(r, frames, func(values ...string) *traffic { // under the lock of the result
		key := pair(values)
		if t := known[key]; t != nil {
			return t
		}
		t, labels := new(traffic), prometheus.Labels{labelTransport: key[0], labelDirection: key[1]}
		known[key] = t
		register := func(row metric, read func() float64) {
			r.MustRegister(prometheus.NewCounterFunc(
				prometheus.CounterOpts{Name: row.name, Help: row.help, ConstLabels: labels}, read))
		}
		register(frames, func() float64 { n, _ := t.read(); return n })
		register(frameBytes, func() float64 { _, n := t.read(); return n })
		return t
	}, pair.values)
}
