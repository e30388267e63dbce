package farcall

import (
	"testing"
	"time"
)

// A method begins elsewhere, is inline once it was fast, leaves when it is slow twice or outlives
// the tick, and needs twice as many fast calls each time to come back.
func TestLoad(t *testing.T) {
	const fast, slow = fastCall, fastCall + 1
	l := new(load)
	step := func(name string, want bool) {
		t.Helper()
		if l.inline.Load() != want {
			t.Fatalf("%s: inline is %v", name, !want)
		}
	}
	step("never timed", false)
	l.timed(slow)
	step("slow", false)
	l.timed(fast)
	step("fast", true)
	l.timed(slow)
	step("slow once", true)
	l.timed(fast)
	l.timed(slow)
	step("slow once again", true)
	l.timed(slow)
	step("slow twice", false)
	l.timed(fast)
	step("fast again", true)
	for relapses := 1; relapses < 5; relapses++ {
		l.blocked()
		l.blocked() // the second caller of the same turn
		step("blocked", false)
		for range 1<<relapses - 1 {
			l.timed(fast)
		}
		step("not fast often enough", false)
		l.timed(slow)
		for range 1<<relapses - 1 {
			l.timed(fast)
		}
		step("not fast often enough in a row", false)
		l.timed(fast)
		step("fast often enough", true)
	}
}

// Each call elsewhere is timed, and one in 64 inline.
func TestLoadSamples(t *testing.T) {
	l := new(load)
	count := func() (n int) {
		for range 640 {
			if l.sample() {
				n++
			}
		}
		return n
	}
	if n := count(); n != 640 {
		t.Errorf("%d of 640 calls are timed elsewhere", n)
	}
	l.timed(time.Microsecond)
	if n := count(); n != 10 {
		t.Errorf("%d of 640 calls are timed inline", n)
	}
}
