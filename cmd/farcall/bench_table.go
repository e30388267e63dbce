package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/load"
)

// table writes results side by side, and with c their ratios.
func (b *bencher) table(out *strings.Builder, results []*load.Result, c *load.Comparison) {
	var rows [][]string
	if c != nil {
		rows = append(rows, []string{"", "A", "B", "B/A", "half of the rounds"})
	}
	row := func(name, figure string, value func(r *load.Result) string) {
		cells := []string{name}
		for _, r := range results {
			cells = append(cells, value(r))
		}
		if c != nil {
			if ratio, ok := c.Ratios[figure]; ok && c.Rounds > 0 {
				cells = append(cells, fmt.Sprintf("%.3f", ratio.Median), fmt.Sprintf("%.3f to %.3f", ratio.Low, ratio.High))
			}
		}
		rows = append(rows, cells)
	}
	row("calls", "", func(r *load.Result) string { return strconv.FormatInt(r.Calls-r.Unsent, 10) })
	row("calls/s", "rate", func(r *load.Result) string { return fmt.Sprintf("%.1f", r.Rate) })
	row("failed", "", func(r *load.Result) string { return strconv.FormatInt(r.Failed, 10) })
	for _, l := range []struct {
		name  string
		value func(*load.Latency) float64
	}{
		{"min", func(l *load.Latency) float64 { return l.Min }},
		{"mean", func(l *load.Latency) float64 { return l.Mean }},
		{"p50", func(l *load.Latency) float64 { return l.P50 }},
		{"p90", func(l *load.Latency) float64 { return l.P90 }},
		{"p99", func(l *load.Latency) float64 { return l.P99 }},
		{"p99.9", func(l *load.Latency) float64 { return l.P999 }},
		{"max", func(l *load.Latency) float64 { return l.Max }},
	} {
		row(l.name, l.name, func(r *load.Result) string { return load.Milliseconds(l.value(&r.Latency)) })
	}
	benchColumns(out, rows)
	for i, r := range results {
		who := ""
		if c != nil {
			who = string(rune('A'+i)) + ": "
		}
		for _, e := range r.Errors {
			fmt.Fprintf(out, "\n%s%d calls failed: %s", who, e.Calls, tame(e.Kind))
		}
		if r.Unsent > 0 {
			fmt.Fprintf(out, "\n%s%d calls were due and not made: the server is slower than --rate", who, r.Unsent)
		}
		if b.o.Rate > 0 && r.Delay.P99 > 1 {
			fmt.Fprintf(out, "\n%s1%% of the calls began %s late or more, which their latency includes; more --concurrency may shorten it", who, load.Milliseconds(r.Delay.P99))
		}
	}
	if !strings.HasSuffix(out.String(), "\n") {
		out.WriteByte('\n')
	}
}

// benchColumns writes rows with the first column to the left and the others to the right.
func benchColumns(out *strings.Builder, rows [][]string) {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i == 0 {
				fmt.Fprintf(&line, "%-*s", width[i], cell)
				continue
			}
			fmt.Fprintf(&line, "  %*s", width[i], cell)
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}
