//go:build !race

package replay

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// A million nonces take 60 MB at most, and also when another million takes their place.
func TestMemoryOfAMillion(t *testing.T) {
	const million = 1_000_000
	c := newClock()
	before := heap()
	m := New(million+million/3, c.now) // one owner alone gets three quarters
	for round := range 3 {
		start, slowest := c.t, time.Duration(0)
		for i := range million {
			began := time.Now()
			c.t = start.Add(time.Duration(i) * 340 * time.Microsecond)
			useAs(t, m, "client", fmt.Sprintf("client-%d|nonce-%d", round, i), c.t.Add(330*time.Second),
				true, nil)
			slowest = max(slowest, time.Since(began))
		}
		used := heap() - before
		t.Logf("%d nonces: %.1f MB, %d slots, %d used, slowest %v", m.Len(), float64(used)/1e6,
			len(m.slots), m.used, slowest)
		if used > 60e6 {
			t.Errorf("%d bytes, 60 MB allowed", used)
		}
	}
	c.t = c.t.Add(24 * time.Hour)
	use(t, m, "last", c.t.Add(time.Second), true, nil)
	if used := heap() - before; used > 1e6 {
		t.Errorf("%d bytes are kept for one nonce", used)
	}
}
