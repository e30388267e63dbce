// Package latency answers one question: how long do calls take?
package latency

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A Histogram counts durations from 1 µs to some hours, in eight steps between a power of two and
// the next. The zero value is empty. Its methods may be called concurrently.
type Histogram struct{ counts [steps * 34]atomic.Uint64 }

const steps = 8

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) { h.counts[bucket(d)].Add(1) }

func bucket(d time.Duration) int {
	us := uint64(max(d/time.Microsecond, 0))
	if us < steps {
		return int(us)
	}
	power := bits.Len64(us) - bits.Len64(steps-1) // of the step
	return min(power*steps+int(us>>(power-1))-steps, steps*34-1)
}

// Quantile returns the duration that so many percent of all have at most, within an eighth. 0:
// there are none.
func (h *Histogram) Quantile(percent uint64) time.Duration {
	var counts [len(h.counts)]uint64
	all, seen := uint64(0), uint64(0)
	for i := range counts {
		counts[i] = h.counts[i].Load()
		all += counts[i]
	}
	for i, n := range counts {
		if seen += n; n > 0 && seen*100 > all*percent {
			return upper(i)
		}
	}
	return 0
}

// upper is the upper bound of a bucket.
func upper(i int) time.Duration {
	if i < steps {
		return time.Duration(i+1) * time.Microsecond
	}
	power, step := i/steps, i%steps
	return time.Duration((steps+step+1)<<(power-1)) * time.Microsecond
}
