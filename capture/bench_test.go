package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/internal/race"
)

var call = []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"git_log",` +
	`"arguments":{"path":"/srv/repo","limit":20,` +
	`"branch":"main"},"_meta":{"progressToken":3}}}`)

var answer = []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text",` +
	`"text":"commit 1\ncommit 2\n"}],"isError":false}}`)

// BenchmarkFrame is the cost for the goroutine that reads or writes a frame.
func BenchmarkFrame(b *testing.B) {
	for _, bench := range []struct {
		name string
		o    capture.Options
	}{
		{"ring", capture.Options{Dir: b.TempDir(), Envelopes: true}},
		{"ring-raw", capture.Options{Dir: b.TempDir(), Raw: true}},
		{"file", capture.Options{File: filepath.Join(b.TempDir(), "a.jsonl")}},
		{"file-raw", capture.Options{File: filepath.Join(b.TempDir(), "a.jsonl"), Raw: true}},
		{"zst-raw", capture.Options{File: filepath.Join(b.TempDir(), "a.jsonl.zst"), Raw: true}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			o := bench.o
			o.Buffer = 64 << 20
			r, err := capture.New(&o)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(call)))
			for b.Loop() {
				r.Frame(1, true, call)
			}
			b.ReportMetric(float64(r.Dropped())/float64(b.N), "drops/op")
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkWhole is the cost of a frame with all that the goroutine of the recorder does for it.
func BenchmarkWhole(b *testing.B) {
	for _, raw := range []bool{true, false} {
		b.Run(fmt.Sprintf("raw=%v", raw), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				r, err := capture.New(&capture.Options{
					Raw: raw, File: filepath.Join(b.TempDir(), "a.jsonl"), Buffer: 64 << 20,
				})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				for range 10000 {
					r.Frame(1, true, call)
					r.Frame(1, false, answer)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/20000, "ns/frame")
		})
	}
}

func BenchmarkReader(b *testing.B) {
	data := record(b, &capture.Options{Raw: true, Buffer: 64 << 20}, func(r *capture.Recorder) {
		for range 20000 {
			r.Frame(1, true, call)
			r.Frame(1, false, answer)
		}
	})
	for _, text := range []string{
		"", "method:prompts/*", "dur>500s", `params.arguments.path=~"^/etc"`, "nothing",
	} {
		f, err := capture.ParseFilter(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("filter="+text, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := capture.NewReader(bytes.NewReader(data))
				if err != nil {
					b.Fatal(err)
				}
				for {
					rec, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					f.Match(rec)
				}
				r.Close()
			}
		})
	}
}

// TestAllocs holds the recorder to no allocation for a frame, in its own goroutine either.
func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, o := range map[string]*capture.Options{
		"ring": {Dir: t.TempDir(), Envelopes: true}, "raw": {Out: io.Discard, Raw: true},
		"redacted": {Out: io.Discard},
	} {
		r, err := capture.New(o)
		if err != nil {
			t.Fatal(err)
		}
		many := func() {
			for range 1000 {
				r.Frame(1, true, call)
				r.Frame(1, false, answer)
			}
		}
		for range 50 {
			many()
		}
		if n := testing.AllocsPerRun(50, many); n > 20 {
			t.Errorf("%s: %v allocations in 2,000 frames", name, n)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
