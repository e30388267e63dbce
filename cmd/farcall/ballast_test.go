package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"
)

// The garbage collector lets a small heap grow by some megabytes more, but where the environment
// says by how much.
func TestBallast(t *testing.T) {
	limit := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.NextGC - m.HeapAlloc
	}
	set := func(names ...string) func(string) (string, bool) {
		return func(name string) (string, bool) { return "", slices.Contains(names, name) }
	}
	alone := limit()
	kept := ballast()
	with := limit()
	runtime.KeepAlive(kept)
	if with < alone+ballastBytes/2 {
		t.Errorf("%d bytes of garbage, and without it %d", with, alone)
	}
	for name, want := range map[string]bool{"GOGC": true, "GOMEMLIMIT": true, "GODEBUG": false} {
		if got := collectorSet(set(name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A new heap may grow more until its first collection, and as usual then.
func TestYoungHeap(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(100) })
	percent := func() string {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return fmt.Sprintf("%d %%", s[0].Value.Uint64())
	}
	young()
	if got := percent(); got != "400 %" {
		t.Errorf("the heap grows by %s at first", got)
	}
	runtime.GC()
	until(t, "100 %", percent)
}
