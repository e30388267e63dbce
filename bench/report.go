package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A table is written as text and as Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
}

func (t *table) markdown(out *bytes.Buffer) {
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
	out.WriteByte('\n')
}

// groupTable shows the results of one group.
func groupTable(rs results) *table {
	t := &table{head: []string{"implementation", "time", "fastest … slowest pass", "per second", "allocations", "allocated", "times " + rs[0].base}}
	for _, r := range rs {
		ns := median(r.ns)
		times := "1"
		if r.name != r.base {
			times = fmt.Sprintf("%.2f", ratio(&r, rs.find(r.group, r.base)))
		}
		speed := count(1e9 / ns)
		if r.bytes > 0 {
			speed += fmt.Sprintf(", %.2f GB/s", float64(r.bytes)/ns)
		}
		t.add(r.name, duration(ns), duration(slices.Min(r.ns))+" … "+duration(slices.Max(r.ns)), speed,
			fmt.Sprintf("%.1f", median(r.allocs)), size(median(r.allocBytes)), times)
	}
	return t
}

func printGroup(out io.Writer, rs results) {
	fmt.Fprintf(out, "\n%s\n", rs[0].group)
	groupTable(rs).print(out)
}

// idleTable shows what idle connections take; it has no rows when none were
// measured.
func idleTable(all results) *table {
	t := &table{head: []string{"idle connections", "number", "each, as opened", "each, after one call"}}
	for _, r := range all {
		if r.idle != nil {
			t.add(strings.TrimPrefix(r.group, "idle ")+": "+r.name, strconv.Itoa(r.idle.connections), size(r.idle.fresh), size(r.idle.after))
		}
	}
	return t
}

func printIdle(out io.Writer, all results) {
	if t := idleTable(all); len(t.rows) > 0 {
		fmt.Fprintln(out)
		t.print(out)
	}
}

func markTable(all results) *table {
	t := &table{head: []string{"mark", "wanted", "measured", "verdict"}}
	for _, m := range marks() {
		v := m.value(all)
		if v == notMeasured {
			continue
		}
		verdict := "MISS"
		if m.ok(v) {
			verdict = "PASS"
		}
		t.add(m.what, m.want(), fmt.Sprintf("%.3g%s", v, m.unit), verdict)
	}
	return t
}

func printMarks(out io.Writer, all results) {
	if t := markTable(all); len(t.rows) > 0 {
		fmt.Fprintln(out)
		t.print(out)
	}
}

// page is docs/performance.md.
func page(cfg config, all results, took time.Duration) []byte {
	var b bytes.Buffer
	b.WriteString("# Performance\n\n" +
		"`make bench-report` wrote this page from one run; `make bench` prints the same tables. Everything is measured in\n" +
		"turns within that run, so compare figures of this page with each other and not with those of another machine or day.\n\n")
	fmt.Fprintf(&b, "%s, %d passes, %v for each implementation in each pass, medians, %v in all.\n",
		time.Now().UTC().Format("2 January 2006"), cfg.passes, cfg.each, took)
	fmt.Fprintf(&b, "%s, %d CPUs, %s/%s, %s.\n\n", cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	b.WriteString("## Marks\n\nTimes that are compared are the median of the passes' ratios.\n\n")
	markTable(all).markdown(&b)
	b.WriteString(howMeasured)
	for rest := all; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r result) bool { return r.group != rest[0].group })
		if n < 0 {
			n = len(rest)
		}
		if rest[0].idle == nil {
			fmt.Fprintf(&b, "### %s\n\n", capital(rest[0].group))
			groupTable(rest[:n]).markdown(&b)
		}
		rest = rest[n:]
	}
	b.WriteString("### Idle connections\n\nResident memory of the server process, divided by the connections.\n\n")
	idleTable(all).markdown(&b)
	b.WriteString("## Versions\n\n")
	versions().markdown(&b)
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

const howMeasured = `## What is measured

- **decode**: a frame is decoded and validated as far as the library does that. farcall validates all of it as JSON and
  UTF-8, and the envelope, where it refuses duplicate members; json v2 validates all of it and refuses duplicates
  everywhere; the others validate less. json v1 and v2 decode into a struct with raw members, as one writes it without
  a library. What a library does not export, or cannot do, is left out: jrpc2 does not export how it
  decodes responses, geth neither direction, and sourcegraph and go-sdk have no batches.
- **encode**: a response whose result is JSON already. farcall appends to a buffer that is used again; the others return a
  new one.
- **call**: both ends are in one process, with each library's own client and an echo handler that passes the bytes
  through. Allocations are those of both ends. The floor is a line that is written once and echoed once through
  bufio, by callers that wait for the goroutine that reads, in the order in which they wrote. With "no reader", callers
  read their answers themselves, so nothing else could arrive; it is there for comparison, and no mark counts from it.
- **HTTP**: one net/http client asks each server. The floor is net/http's handler that writes back what it read.
- **idle**: connections to a server in another process, opened one after another. The floor is one goroutine for each, in
  Read; over WebSocket, the library that farcall uses, alone. The kernel's memory is not counted.

## Measurements

`

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// versions lists the modules that are measured.
func versions() *table {
	t := &table{head: []string{"module", "version"}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return t
	}
	for _, dep := range info.Deps {
		if slices.Contains(measuredModules, dep.Path) {
			t.add(dep.Path, dep.Version)
		}
	}
	return t
}

var measuredModules = []string{
	"github.com/coder/websocket",
	"github.com/creachadair/jrpc2",
	"github.com/ethereum/go-ethereum",
	"github.com/go-json-experiment/json",
	"github.com/modelcontextprotocol/go-sdk",
	"github.com/sourcegraph/jsonrpc2",
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.2f µs", ns/1e3)
	default:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	}
}

func size(bytes float64) string {
	switch {
	case bytes < 1e3:
		return fmt.Sprintf("%.0f B", bytes)
	case bytes < 1e6:
		return fmt.Sprintf("%.1f KB", bytes/1e3)
	default:
		return fmt.Sprintf("%.1f MB", bytes/1e6)
	}
}

func count(n float64) string {
	switch {
	case n < 1e3:
		return fmt.Sprintf("%.0f", n)
	case n < 1e6:
		return fmt.Sprintf("%.1f K", n/1e3)
	default:
		return fmt.Sprintf("%.2f M", n/1e6)
	}
}
