package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be the child process, as main does.
func TestMain(m *testing.M) {
	if kind := os.Getenv(childEnv); kind != "" {
		if err := serveIdle(kind, os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRun runs everything once, with each answer checked, and writes the page.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "performance.md")
	var out bytes.Buffer
	if err := run(quickConfig(), file, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range marks() {
		if !strings.Contains(out.String(), m.what) || !strings.Contains(string(written), m.what) {
			t.Errorf("the mark %q was not measured", m.what)
		}
	}
}

func TestMarks(t *testing.T) {
	most, least := mark{most: 1.15}, mark{most: -3}
	if !most.ok(1.15) || most.ok(1.16) || !least.ok(3) || least.ok(2.9) {
		t.Error("a bound is on the wrong side")
	}
}

func TestRatioIsOfPassesSideBySide(t *testing.T) {
	// The machine was twice as slow in the second pass and three times in the third.
	a, b := &result{ns: []float64{11, 22, 33}}, &result{ns: []float64{10, 20, 30}}
	if got := ratio(a, b); got < 1.0999 || got > 1.1001 {
		t.Errorf("ratio = %v, want 1.1", got)
	}
}

// Benchmark runs the same subjects under package testing, for profiles and
// benchstat: go test -bench 'call_over_TCP' -cpuprofile cpu.prof.
func Benchmark(b *testing.B) {
	for _, g := range allGroups() {
		b.Run(g.name, func(b *testing.B) {
			for _, s := range g.subjects {
				b.Run(s.name, func(b *testing.B) {
					r, err := s.start()
					if err != nil {
						b.Fatal(err)
					}
					defer r.stop()
					run := spread(r, g.workers)
					b.SetBytes(int64(g.bytes))
					b.ReportAllocs()
					b.ResetTimer()
					if err := run(max(b.N/g.workers, 1) * g.workers); err != nil {
						b.Fatal(err)
					}
				})
			}
		})
	}
}
