package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A group is one job that several implementations do.
type group struct {
	name     string
	workers  int    // goroutines that do it at once
	longer   int    // than others it is measured for, so many times; 0: as long
	bytes    int    // that one operation goes through; 0: not said
	base     string // the peer that the ratios compare with
	cpuOf    string // what the CPU time is called; "": server's CPU time
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
	// cpu returns the CPU time so far of the process that does the work, when that
	// is not this one.
	cpu func() (time.Duration, error)
	// memory returns the resident memory of those processes.
	memory func() (int, error)
	// p50 returns how long half of the operations took at most, in ns, of those
	// since it was asked last.
	p50 func() float64
	// warm is the number of operations that are done before it is measured, where
	// a compiler has to see first what is hot.
	warm int
}

// A result is what one subject did.
type result struct {
	group, name, base string
	cpuOf             string
	bytes             int
	ns                []float64 // for one operation, by pass
	allocs            []float64
	allocBytes        []float64
	cpu               []float64 // ns for one operation, of a process that only does the work
	memory            []float64 // of that process
	p50               []float64 // ns
	idle              *idleResult
	sessions          *sessionResult
	behind            *gatewayIdleResult
	nonces            *nonceResult
	fair              *fairResult
}

type results []result

// errSkip is the error of a subject that this machine cannot run.
var errSkip = errors.New("skipped")

// measure runs the subjects of a group one after another, pass by pass, so
// that what disturbs the machine disturbs all of them.
func measure(g group, cfg config, out io.Writer) (results, error) {
	var rs results
	var jobs []*job
	for _, s := range g.subjects {
		r, err := s.start()
		if errors.Is(err, errSkip) {
			fmt.Fprintf(out, "\n%s: %s: %v\n", g.name, s.name, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		defer r.stop()
		j := &job{running: r, run: spread(r, g.workers)}
		if r.warm > 0 && cfg.passes > 1 {
			if err := j.run(r.warm); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if j.count, err = calibrate(j.run, g.workers,
			cfg.each*time.Duration(max(g.longer, 1))); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		jobs = append(jobs, j)
		rs = append(rs, result{group: g.name, name: s.name, base: g.base, cpuOf: g.cpuOf, bytes: g.bytes})
	}
	for pass := range cfg.passes {
		for k := range jobs {
			i := (k + pass) % len(jobs)
			if err := rs[i].measure(jobs[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", rs[i].name, err)
			}
		}
	}
	return rs, nil
}

// A job is a subject at work: count operations in a pass.
type job struct {
	*running
	run   func(n int) error
	count int
}

// measure runs a job once.
func (r *result) measure(j *job) error {
	var before, after runtime.MemStats
	runtime.GC() // the garbage of the others
	runtime.ReadMemStats(&before)
	n := j.count
	var cpuBefore, cpuAfter time.Duration
	var err error
	if j.cpu != nil {
		if cpuBefore, err = j.cpu(); err != nil {
			return err
		}
	}
	if j.p50 != nil {
		j.p50() // forgets what went before
	}
	began := time.Now()
	err = j.run(n)
	took := time.Since(began)
	if j.p50 != nil {
		r.p50 = append(r.p50, j.p50())
	}
	if j.cpu != nil && err == nil {
		cpuAfter, err = j.cpu()
		r.cpu = append(r.cpu, float64((cpuAfter-cpuBefore).Nanoseconds())/float64(n))
	}
	if j.memory != nil && err == nil {
		var n int
		n, err = j.memory()
		r.memory = append(r.memory, float64(n))
	}
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
	return ratios(a.ns, b.ns)
}

// cpuRatio is the same of the CPU time.
func cpuRatio(a, b *result) float64 {
	if a == nil || b == nil {
		return 0
	}
	return ratios(a.cpu, b.cpu)
}

func ratios(a, b []float64) float64 {
	by := make([]float64, min(len(a), len(b)))
	for i := range by {
		by[i] = a[i] / b[i]
	}
	return median(by)
}
