package main

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// A group is one job that several implementations do.
type group struct {
	name     string
	workers  int    // goroutines that do it at once
	bytes    int    // that one operation goes through; 0: not said
	base     string // whom the ratios compare with
	subjects []subject
}

// A subject is one implementation.
type subject struct {
	name  string
	start func() (*running, error)
}

// running is a subject that is ready to work.
type running struct {
	// worker returns what one goroutine runs: n operations in sequence.
	worker func() func(n int) error
	stop   func()
}

// A result is what one subject did.
type result struct {
	group, name, base string
	bytes             int
	ns                []float64 // for one operation, by pass
	allocs            []float64
	allocBytes        []float64
	idle              *idleResult
}

type results []result

// measure runs the subjects of a group one after another, pass by pass, so
// that what disturbs the machine disturbs all of them.
func measure(g group, cfg config) (results, error) {
	rs := make(results, len(g.subjects))
	runs := make([]func(n int) error, len(g.subjects))
	counts := make([]int, len(g.subjects))
	for i, s := range g.subjects {
		rs[i] = result{group: g.name, name: s.name, base: g.base, bytes: g.bytes}
		r, err := s.start()
		if err != nil {
			return nil, err
		}
		defer r.stop()
		runs[i] = spread(r, g.workers)
		if counts[i], err = calibrate(runs[i], g.workers, cfg.each); err != nil {
			return nil, err
		}
	}
	for pass := range cfg.passes {
		for k := range runs {
			i := (k + pass) % len(runs)
			if err := rs[i].measure(runs[i], counts[i]); err != nil {
				return nil, err
			}
		}
	}
	return rs, nil
}

// measure does n operations once.
func (r *result) measure(run func(n int) error, n int) error {
	var before, after runtime.MemStats
	runtime.GC() // the garbage of the others
	runtime.ReadMemStats(&before)
	began := time.Now()
	err := run(n)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	r.ns = append(r.ns, float64(took.Nanoseconds())/float64(n))
	r.allocs = append(r.allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
	r.allocBytes = append(r.allocBytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
	return err
}

// spread returns what does n operations in all on so many goroutines.
func spread(r *running, workers int) func(n int) error {
	ops := make([]func(n int) error, workers)
	for i := range ops {
		ops[i] = r.worker()
	}
	if workers == 1 {
		return ops[0]
	}
	return func(n int) error {
		errs := make([]error, workers)
		var wg sync.WaitGroup
		for i, op := range ops {
			wg.Go(func() { errs[i] = op(n / workers) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// calibrate finds how many operations take about as long as wanted.
func calibrate(run func(n int) error, workers int, want time.Duration) (int, error) {
	for n := workers; ; n *= 2 {
		began := time.Now()
		if err := run(n); err != nil {
			return 0, err
		}
		if took := time.Since(began); took >= want/4 {
			n = int(float64(n) * float64(want) / float64(took))
			return max(n/workers, 1) * workers, nil
		}
	}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// find returns the result of one subject of a group, or nil.
func (rs results) find(group, name string) *result {
	for i := range rs {
		if rs[i].group == group && rs[i].name == name {
			return &rs[i]
		}
	}
	return nil
}

// ratio is the time of a, in times of b: the median of the passes' ratios,
// since the passes of both lie next to each other.
func ratio(a, b *result) float64 {
	if a == nil || b == nil {
		return 0
	}
	by := make([]float64, min(len(a.ns), len(b.ns)))
	for i := range by {
		by[i] = a.ns[i] / b.ns[i]
	}
	return median(by)
}
