package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/capture"
)

const capturedFrame = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"git_log","arguments":{"path":"/srv/repo","limit":20,"branch":"main"}}}`

// burst is how many frames are recorded before the recorder gets the time to write them.
const burst = 1000

// recording is a recorder at work. Its p50 is the time of a frame for the goroutine that reads or
// writes it; that of an operation has all that the recorder does for a burst.
func recording(o capture.Options) func() (*running, error) {
	return func() (*running, error) {
		o.Buffer = 64 << 20
		r, err := capture.New(&o)
		if err != nil {
			return nil, err
		}
		frame, each := []byte(capturedFrame), []float64(nil)
		worker := func(n int) error {
			for range n {
				began := time.Now()
				for range burst {
					r.Frame(1, true, frame)
				}
				each = append(each, float64(time.Since(began).Nanoseconds())/burst)
				if err := r.Flush(); err != nil {
					return err
				}
			}
			if r.Dropped() > 0 {
				return fmt.Errorf("%d frames were dropped", r.Dropped())
			}
			return nil
		}
		return &running{
			worker: func() func(int) error { return worker },
			stop:   func() { _ = r.Close() }, // it was measured
			p50: func() float64 {
				m := median(each)
				each = each[:0]
				return m
			},
		}, nil
	}
}

// filtering reads a capture with a filter that selects nothing.
func filtering(data []byte, text string) func() error {
	return func() error {
		f, err := capture.ParseFilter(text)
		if err != nil {
			return err
		}
		r, err := capture.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		defer r.Close()
		for {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if rec.Type == "frame" && f.Match(rec) {
				return fmt.Errorf("%s selects %s", text, rec.Method)
			}
		}
	}
}

// wanted is whether the marks are to be measured, which takes an idle machine.
func wanted(t *testing.T) {
	t.Helper()
	if os.Getenv("FARCALL_MARKS") == "" {
		t.Skip("FARCALL_MARKS=1 measures; it needs an idle machine")
	}
}

// TestCaptureMarks measures what a capture costs.
func TestCaptureMarks(t *testing.T) {
	wanted(t)
	cfg := config{passes: 11, each: 50 * time.Millisecond}
	dir := t.TempDir()
	var data bytes.Buffer
	r, err := capture.New(&capture.Options{Out: &data, Raw: true, Buffer: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for range 20_000 {
		r.Frame(1, true, []byte(capturedFrame))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	toFile, err := capture.New(&capture.Options{File: filepath.Join(dir, "calls.jsonl"), Raw: true, Buffer: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer toFile.Close()
	const (
		recorder, ring, file = "a burst of 1,000 frames", "to the ring", "to a file"
		filters              = "a filter over a capture"
		load                 = "HTTP POST, many in flight"
	)
	var all results
	for _, g := range []group{
		{name: recorder, workers: 1, base: ring, subjects: []subject{
			{ring, recording(capture.Options{Dir: dir, Raw: true})},
			{"envelopes to the ring", recording(capture.Options{Dir: dir, Envelopes: true})},
			{file, recording(capture.Options{File: filepath.Join(dir, "a.jsonl"), Raw: true})},
			{"redacted, to a file", recording(capture.Options{File: filepath.Join(dir, "b.jsonl")})},
		}},
		{name: filters, workers: 1, bytes: data.Len(), base: "dur>500s", subjects: []subject{
			{"dur>500s", repeating(filtering(data.Bytes(), "dur>500s"))},
			{"method:prompts/*", repeating(filtering(data.Bytes(), "method:prompts/*"))},
			{"a word", repeating(filtering(data.Bytes(), "nothing"))},
			{"a path", repeating(filtering(data.Bytes(), `params.arguments.path=~"^/etc"`))},
		}},
		{name: load, workers: inFlight, base: "off", subjects: []subject{
			{"off", observedHTTP("off", nil).running},
			{file, observedHTTP(file, toFile.Observer()).running},
		}},
	} {
		rs, err := measure(g, cfg, os.Stdout)
		if err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		printGroup(os.Stdout, rs)
		all = append(all, rs...)
	}
	for _, m := range []mark{
		{"a frame to the ring, for the one that reads it", 80, " ns", func(rs results) float64 { return median(rs.find(recorder, ring).p50) }},
		{"a frame to the ring, allocations", 0, "", func(rs results) float64 {
			return float64(int(median(rs.find(recorder, ring).allocs)/burst*10+0.5)) / 10
		}},
		{"a frame to a file, with all that is done for it", 1000, " ns", func(rs results) float64 { return median(rs.find(recorder, file).ns) / burst }},
		{"a filter", -500, " MB/s", func(rs results) float64 {
			return float64(data.Len()) / median(rs.find(filters, "dur>500s").ns) * 1000
		}},
		{"calls per second with frames to a file, in times of off", -0.95, "", func(rs results) float64 {
			return ratio(rs.find(load, "off"), rs.find(load, file))
		}},
	} {
		t.Logf("%-60s %10.4g%s, want %s: %v", m.what, m.value(all), m.unit, m.want(), m.ok(m.value(all)))
	}
}

// TestBenchMarks measures farcall bench: its calls per second, and the error of its latency against
// a server that knows how long it took.
func TestBenchMarks(t *testing.T) {
	wanted(t)
	program := os.Getenv("FARCALL_BINARY")
	if program == "" {
		program = filepath.Join(t.TempDir(), "farcall")
		build := exec.Command("go", "build", "-o", program, "./cmd/farcall")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	figures := func(args ...string) (f struct {
		Calls, Failed int
		Rate          float64
		Latency       struct{ P50 float64 }
	},
	) {
		out, err := exec.CommandContext(t.Context(), program, append([]string{"bench", "--json"}, args...)...).Output()
		var report struct{ Result any }
		report.Result = &f
		if err = errors.Join(err, json.Unmarshal(out, &report)); err != nil || f.Failed > 0 {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return f
	}
	server := exec.CommandContext(t.Context(), program, "serve", "--listen", "127.0.0.1:0", "--log", "off")
	stderr, err := server.StderrPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = server.Process.Signal(os.Interrupt), server.Wait() }()
	lines, address := bufio.NewScanner(stderr), ""
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "farcall: ready http://")
	}
	go io.Copy(io.Discard, stderr) // ends with the process
	fast := figures(address, "math/add", "2", "3", "-d", "3s", "-c", "64")
	t.Logf("calls per second over HTTP: %.0f, want >= 50000", fast.Rate)

	const takes = 20 * time.Millisecond
	var mu sync.Mutex
	var took []float64
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		io.Copy(io.Discard, r.Body)
		<-time.After(takes - time.Millisecond)
		for time.Since(began) < takes { // a timer is not exact
		}
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":5}`)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, float64(time.Since(began).Nanoseconds())/1e6)
	}))
	defer slow.Close()
	known := figures(strings.TrimPrefix(slow.URL, "http://"), "math/add", "2", "3", "-d", "3s", "--rate", "40")
	want := median(took)
	t.Logf("latency: %.4g ms, the server took %.4g ms: %.3g %% more, want < 1 %%", known.Latency.P50, want, (known.Latency.P50/want-1)*100)
}
