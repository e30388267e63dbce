package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the child process, as main does.
func TestMain(m *testing.M) {
	if kind := os.Getenv(childEnv); kind != "" {
		if err := serveChild(kind, os.Stdin, os.Stdout); err != nil {
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

// A peer that this machine lacks is reported as missing, and passes no mark.
func TestMissingPeer(t *testing.T) {
	missing := subject{"TypeScript", func() (*running, error) {
		return nil, fmt.Errorf("%w: no Node.js", errSkip)
	}}
	works := subject{"farcall", func() (*running, error) {
		worker := func() func(int) error {
			return func(n int) error { <-time.After(time.Duration(n) * time.Microsecond); return nil }
		}
		return &running{worker: worker, stop: func() {}}, nil
	}}
	var out bytes.Buffer
	rs, err := measure(group{
		name: mcpHTTP, workers: 1, base: "farcall",
		subjects: []subject{missing, works},
	}, quickConfig(), &out)
	if err != nil || len(rs) != 1 {
		t.Fatalf("%v, %v", rs, err)
	}
	if want := "TypeScript: skipped: no Node.js"; !strings.Contains(out.String(), want) {
		t.Errorf("printed %q, want %q", &out, want)
	}
	marks := markTable(rs)
	if len(marks.rows) != 4 {
		t.Errorf("%d marks, want those of the group: %v", len(marks.rows), marks.rows)
	}
	for _, row := range marks.rows {
		if row[3] != "not measured" {
			t.Errorf("%q without the peer", row)
		}
	}
}

func TestRatioIsOfPassesSideBySide(t *testing.T) {
	// The machine was twice as slow in the second pass and three times in the third.
	a, b := &result{ns: []float64{11, 22, 33}}, &result{ns: []float64{10, 20, 30}}
	if got := ratio(a, b); got < 1.0999 || got > 1.1001 {
		t.Errorf("ratio = %v, want 1.1", got)
	}
}

// The marks compare with the way of using supergateway that is the better one,
// figure by figure.
func TestGatewayMarksTakeTheBetter(t *testing.T) {
	r := func(name string, ns, cpu, memory float64) result {
		return result{
			group: gatewayLoad, name: name, ns: []float64{ns}, cpu: []float64{cpu},
			memory: []float64{memory},
		}
	}
	all := results{r("farcall", 10, 10, 10), r(superMany, 100, 400, 900), r(superOne, 200, 300, 90)}
	values := map[string]float64{
		"calls per second": 10, "CPU time": 10.0 / 300,
		"resident memory": 10.0 / 90,
	}
	for _, m := range gatewayMarks() {
		for figure, want := range values {
			if strings.HasPrefix(m.what, gatewayLoad+": "+figure) {
				delete(values, figure)
				if got := m.value(all); got != want {
					t.Errorf("%s: %v, want %v", m.what, got, want)
				}
			}
		}
		if without := m.value(all[:1]); without != notMeasured && without != notWanted {
			t.Errorf("%s: %v without the peer", m.what, without)
		}
	}
	if len(values) > 0 {
		t.Errorf("no mark for %v", values)
	}
}

func TestAddedByAGateway(t *testing.T) {
	r := func(name string, p50 ...float64) result {
		return result{group: gatewaySingle, name: name, p50: p50}
	}
	all := results{r(direct, 10, 20), r("farcall", 60, 80), r("supergateway", 210, 260)}
	if got := addedBy(all, "farcall"); got[0] != 50 || got[1] != 60 {
		t.Errorf("added %v, want 50 and 60", got)
	}
	if got := addedBy(all, "other"); got != nil {
		t.Errorf("added %v by what was not measured", got)
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
					if errors.Is(err, errSkip) {
						b.Skip(err)
					}
					if err != nil {
						b.Fatal(err)
					}
					defer r.stop()
					run := spread(r, g.workers)
					if err := run(r.warm); err != nil {
						b.Fatal(err)
					}
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
