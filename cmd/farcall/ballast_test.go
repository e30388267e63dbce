package main

import (
	"runtime"
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
	kept := ballast(set())
	with := limit()
	runtime.KeepAlive(kept)
	if with < alone+ballastBytes/2 {
		t.Errorf("%d bytes of garbage, and without it %d", with, alone)
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if ballast(set(name)) != nil {
			t.Errorf("with %s, too", name)
		}
	}
}
