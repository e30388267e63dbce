package raw

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// meter counts what happens.
type meter struct {
	calls, errors, dropped, garbage, dials atomic.Uint64
	inFlight                               atomic.Int64
	latency                                histogram
}

func (m *meter) begin() {
	m.calls.Add(1)
	m.inFlight.Add(1)
}

func (m *meter) end(failed bool, took time.Duration) {
	m.inFlight.Add(-1)
	if failed {
		m.errors.Add(1)
	}
	m.latency.add(took)
}

func (m *meter) status() Status {
	return Status{
		InFlight: int(m.inFlight.Load()),
		Calls:    m.calls.Load(), Errors: m.errors.Load(), Dropped: m.dropped.Load(),
		Garbage: m.garbage.Load(), Dials: m.dials.Load(),
		LatencyP50: m.latency.quantile(50), LatencyP99: m.latency.quantile(99),
	}
}

// histogram counts durations in buckets of microseconds, four to each power of
// two.
type histogram struct{ buckets [4 * 40]atomic.Uint64 }

func (h *histogram) add(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0)) + 4
	power := bits.Len64(us) - 3 // the top three bits of us tell the bucket
	return min(4*power+int(us>>power&3), 4*40-1)
}

// quantile returns the middle of the bucket in which so many percent are passed,
// 0 when nothing was counted.
func (h *histogram) quantile(percent uint64) time.Duration {
	var counts [len(h.buckets)]uint64
	var total, sum uint64
	for i := range counts {
		counts[i] = h.buckets[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return 0
	}
	for i, n := range counts {
		if sum += n; sum*100 >= total*percent {
			low := uint64(4+i%4) << (i / 4)
			return time.Duration(low-4+(1<<(i/4))/2) * time.Microsecond
		}
	}
	return 0
}
