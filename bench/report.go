package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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

// groupTable shows the results of one group. What its own process allocates
// is not known; its CPU time is.
func groupTable(rs results) *table {
	t := &table{
		head: []string{
			"implementation", "time", "fastest … slowest pass", "per second", "allocations",
			"allocated", "times " + rs[0].base,
		},
	}
	if rs[0].cpu != nil {
		cpuOf := rs[0].cpuOf
		if cpuOf == "" {
			cpuOf = "server's CPU time"
		}
		t.head = append(t.head[:4], "times "+rs[0].base, cpuOf, "times "+rs[0].base)
	}
	if rs[0].p50 != nil {
		t.head = append(t.head, "median call")
	}
	if rs[0].memory != nil {
		t.head = append(t.head, "resident memory")
	}
	for _, r := range rs {
		ns, base := median(r.ns), rs.find(r.group, r.base)
		times := "1"
		if r.name != r.base {
			times = fmt.Sprintf("%.2f", ratio(&r, base))
		}
		speed := count(1e9 / ns)
		if r.bytes > 0 {
			speed += fmt.Sprintf(", %.2f GB/s", float64(r.bytes)/ns)
		}
		cells := []string{
			r.name, duration(ns), duration(slices.Min(r.ns)) + " … " + duration(slices.Max(r.ns)), speed,
		}
		if r.cpu == nil {
			cells = append(cells, fmt.Sprintf("%.1f", median(r.allocs)), size(median(r.allocBytes)), times)
		} else {
			cells = append(cells, times, duration(median(r.cpu)), fmt.Sprintf("%.2f", cpuRatio(&r, base)))
		}
		if r.p50 != nil {
			cells = append(cells, duration(median(r.p50)))
		}
		if r.memory != nil {
			cells = append(cells, size(median(r.memory)))
		}
		t.add(cells...)
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
	t := &table{
		head: []string{"idle connections", "number", "each, as opened", "each, after one call"},
	}
	for _, r := range all {
		if r.idle != nil {
			t.add(strings.TrimPrefix(r.group, "idle ")+": "+r.name, strconv.Itoa(r.idle.connections),
				size(r.idle.fresh), size(r.idle.after))
		}
	}
	return t
}

// sessionTable shows what sessions take; like idleTable it can be empty.
func sessionTable(all results) *table {
	t := &table{
		head: []string{
			"idle MCP sessions", "number", "resident memory, each", "live heap, each",
			"goroutines, in all",
		},
	}
	for _, r := range all {
		if s := r.sessions; s != nil {
			t.add(r.name, strconv.Itoa(s.sessions), size(s.rss), size(s.heap), strconv.Itoa(s.goroutines))
		}
	}
	return t
}

func printTable(out io.Writer, t *table) {
	if len(t.rows) > 0 {
		fmt.Fprintln(out)
		t.print(out)
	}
}

func markTable(all results) *table {
	t := &table{head: []string{"mark", "wanted", "measured", "verdict"}}
	for _, m := range marks() {
		switch v := m.value(all); {
		case v == notWanted:
		case v == notMeasured:
			t.add(m.what, m.want(), "", "not measured")
		case m.ok(v):
			t.add(m.what, m.want(), fmt.Sprintf("%.3g%s", v, m.unit), "PASS")
		default:
			t.add(m.what, m.want(), fmt.Sprintf("%.3g%s", v, m.unit), "MISS")
		}
	}
	return t
}

// page is docs/performance.md.
func page(cfg config, all results, took time.Duration) []byte {
	var b bytes.Buffer
	b.WriteString("# Performance\n\n" +
		"`make bench-report` wrote this page from one run; `make bench` prints the same tables. " +
		"Everything is\nmeasured in turns within that run, so compare figures of this page with each " +
		"other and not with\nthose of another machine or day.\n\n")
	fmt.Fprintf(&b, "%s, %d passes, %v for each implementation in each pass, medians, %v in all.\n",
		time.Now().UTC().Format("2 January 2006"), cfg.passes, cfg.each, took)
	fmt.Fprintf(&b, "%s, %d CPUs, %s/%s, %s.\n\n", cpuModel(), runtime.NumCPU(), runtime.GOOS,
		runtime.GOARCH, runtime.Version())
	b.WriteString("## Marks\n\nTimes that are compared are the median of the passes' ratios.\n\n")
	markTable(all).markdown(&b)
	b.WriteString(howMeasured)
	for rest := all; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r result) bool { return r.group != rest[0].group })
		if n < 0 {
			n = len(rest)
		}
		if len(rest[0].ns) > 0 {
			fmt.Fprintf(&b, "### %s\n\n", capital(rest[0].group))
			groupTable(rest[:n]).markdown(&b)
		}
		rest = rest[n:]
	}
	b.WriteString(
		"### Idle connections\n\nResident memory of the server process, divided by the connections.\n\n")
	idleTable(all).markdown(&b)
	b.WriteString(
		"### Idle MCP sessions\n\nOf the server process, after one call in each session.\n\n")
	sessionTable(all).markdown(&b)
	b.WriteString(
		"### Idle sessions with a gateway\n\nOf the gateway's own process. All sessions are on one " +
			"child, with one call in each.\n\n")
	gatewayIdleTable(all).markdown(&b)
	b.WriteString("### Guard: fairness and memory\n\n")
	fairTable(all).markdown(&b)
	nonceTable(all).markdown(&b)
	b.WriteString("## Versions\n\n")
	versions().markdown(&b)
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

const howMeasured = `## What is measured

- **decode**: a frame is decoded and validated as far as the library does that. farcall validates
  all of it as JSON and UTF-8, and the envelope, where it refuses duplicate members; json v2
  validates all of it and refuses duplicates everywhere; the others validate less. json v1 and v2
  decode into a struct with raw members, as one writes it without a library. What a library does not
  export, or cannot do, is left out: jrpc2 does not export how it decodes responses, geth neither
  direction, and sourcegraph and go-sdk have no batches.
- **encode**: a response with a result that is JSON already. farcall appends to a buffer that is
  used again; the others return a new one.
- **call**: both ends are in one process, with each library's own client and an echo handler that
  passes the bytes through. Allocations are those of both ends. The floor is a line that is written
  once and echoed once through bufio, by callers that wait for the goroutine that reads, in the
  order in which they wrote. With "no reader", callers read their answers themselves, so nothing
  else could arrive; it is there for comparison, and no mark counts from it.
- **HTTP**: one net/http client asks each server. The floor is net/http's handler that writes back
  what it read.
- **MCP tools/call**: everybody serves the same tool, which adds two numbers, of Go types (in
  TypeScript, of zod schemas). Its output schema also bounds the sum, so a library that validates
  has to check it. farcall, go-sdk and TypeScript validate the arguments and the result, as they do
  by default. mcp-go validates neither by default; where it does, it was asked to. go-sdk and
  TypeScript answer over HTTP with JSON, which is faster than their default, an event stream.
- **The server's work alone**: one request of 2026-07-28 is given to the HTTP handler, which writes
  into memory; nothing goes over a connection. The request is made once, and is as net/http makes
  it. "No HTTP" is what is below: a frame in, a frame out. The marks compare HTTP handlers.
- **MCP over HTTP** and **of a stdio child**: servers in their own processes. The clients write a
  text that is ready and look for the sum in the answer; over HTTP they have a connection each,
  which they read by hand, since net/http's client takes more time than a server. Calls are of
  2025-06-18, over HTTP in a session for each client, except where go-sdk has none ("a session" is
  go-sdk with them) and where the name says 2026-07-28. The floor is net/http's handler that writes
  back what it read. The server's CPU time is that of its process. The clients run on the same CPUs.
- **gateway**: what puts a stdio server on HTTP: ` + "`farcall bridge 127.0.0.1:0 -- CHILD`" + `, the binary,
  and supergateway with ` + "`--outputTransport streamableHttp --stateful --logLevel none`" + `, in front of
  the same child and with the same clients as above. farcall has one child for all; supergateway has
  one for each session, so it is measured with 64 sessions and with one that 64 callers share, and
  the marks compare each figure with the one of the two that is better for it. Its other mode, which
  starts a child for each call, is left out. CPU time and resident memory are those of all
  processes, the child included; what processes share of the memory is counted for each.
  Sequentially, each call is timed, and the child on stdio has a client that writes a line and reads
  a line: what a gateway adds is more than that, HTTP included.
- **Gateway between revisions**: "A to B" is a client of revision A and a child that supports only
  B. The CPU time is the gateway's alone. The marks compare with the same client and a child of its
  revision.
- **guard**: the same call with and without a guard that has an issuer of tokens, an API key, five
  rules by role, one that denies, and a rate for each principal, which refuses nothing. Each of the
  64 callers has its own token (RS256, the usual claims), which the guard has seen before, as it has
  after the first call. Tokens make requests longer, and net/http reads them with or without a
  guard: the mark compares with requests that have the same token, unread. The row without a token
  is there too.
- **A decision, alone**: a call of a tool is decided, counted and ended, ten rules and five Cedar
  policies. When none looks at the call's arguments or address, decisions are remembered; the mark
  is for policies when two do, and for what they add to no policies.
- **A signed message, alone**: the whole way from the message to its principal, the memory of nonces
  included. Each message is used once. The memory of nonces is measured in a process that verifies
  so many, one after another.
- **Five callers beside a flood**: the server takes 16 calls at once, of 1 ms in which it waits.
  Five callers call again 2 ms after each answer. The flood is one more principal with 64
  connections, which call at once when they had an answer, and after 10 ms when they were refused.
  Rounds with and without it alternate; the mark is the median of their ratios. Callers, flood and
  server share the CPUs.
- **capture**: frames of 130 bytes. The median call is the time that a burst takes of the goroutine
  that has them, for each; the time of a burst has all that the recorder does for it. The filters
  read a capture in memory and select nothing.
- **idle MCP sessions**: begun over one connection, with one call in each. Resident memory is read
  as it is, with whatever garbage there is; the live heap after a collection.
- **idle**: connections to a server in another process, opened one after another. The floor is one
  goroutine for each, in Read; over WebSocket, the library that farcall uses, alone. The kernel's
  memory is not counted.

## Measurements

`

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// versions lists the modules and packages that are measured.
func versions() *table {
	t := &table{head: []string{"module", "version"}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if slices.Contains(measuredModules, dep.Path) {
				t.add(dep.Path, dep.Version)
			}
		}
	}
	var node struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if text, err := os.ReadFile(filepath.Join("node", "package.json")); err == nil &&
		json.Unmarshal(text, &node) == nil {
		for _, name := range slices.Sorted(maps.Keys(node.Dependencies)) {
			t.add(name, node.Dependencies[name])
		}
	}
	if text, err := exec.Command("node", "--version").Output(); err == nil {
		t.add("Node.js", strings.TrimSpace(string(text)))
	}
	return t
}

var measuredModules = []string{
	"github.com/coder/websocket",
	"github.com/creachadair/jrpc2",
	"github.com/ethereum/go-ethereum",
	"github.com/go-json-experiment/json",
	"github.com/mark3labs/mcp-go",
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
