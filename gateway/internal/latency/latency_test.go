package latency

import (
	"testing"
	"time"
)

// TestHistogram is right within an eighth.
func TestHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(50) != 0 {
		t.Error("of nothing")
	}
	for d := time.Microsecond; d < 3*time.Hour; d = d*9/8 + 1 {
		var h Histogram
		h.Add(d)
		if got := h.Quantile(99); got < d || got > d+d/8+2*time.Microsecond {
			t.Errorf("%v: %v", d, got)
		}
	}
	for i := range 1000 {
		h.Add(time.Duration(i) * time.Millisecond)
	}
	for percent, want := range map[uint64]time.Duration{
		50: 500 * time.Millisecond, 99: 990 * time.Millisecond,
	} {
		if got := h.Quantile(percent); got < want || got > want+want/7 {
			t.Errorf("p%d: %v", percent, got)
		}
	}
	h.Add(1 << 62)
	h.Add(-1)
}
