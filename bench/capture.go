package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/httprpc"
)

// The groups of what a capture costs.
const (
	captureBurst  = "capture: a burst of 1,000 frames"
	captureFilter = "capture: a filter over 20,000 frames"

	captureOff  = "off"
	captureRing = "to the ring"
	captureFile = "to a file"

	capturedFrame = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"git_log",` +
		`"arguments":{"path":"/srv/repo","limit":20,"branch":"main"}}}`
	capturedFrames = 20_000
	// burst is how many frames are recorded before the recorder gets the time to write them.
	burst = 1000
	// queued is the memory for frames that wait: a burst is dropped in no case.
	queued = 64 << 20
)

var captureFilters = []string{
	"dur>500s", "method:prompts/*", "nothing",
	`params.arguments.path=~"^/etc"`,
}

// captureLoad is what calls over HTTP have.
var captureLoad = fmt.Sprintf("capture: HTTP POST, %d in flight", inFlight)

func captureGroups() []group {
	filters := []subject{}
	for _, text := range captureFilters {
		filters = append(filters, subject{text, func() (*running, error) { return filtering(text) }})
	}
	return []group{
		{name: captureBurst, workers: 1, base: captureRing, subjects: []subject{
			{captureRing, recording(capture.Options{Raw: true}, false)},
			{"envelopes to the ring", recording(capture.Options{Envelopes: true}, false)},
			{captureFile, recording(capture.Options{Raw: true}, true)},
			{"redacted, to a file", recording(capture.Options{}, true)},
		}},
		{name: captureFilter, workers: 1, base: filters[0].name, subjects: filters},
		{name: captureLoad, workers: inFlight, base: captureOff, subjects: []subject{
			{captureOff, observedHTTP(captureOff, nil).running},
			{captureFile, httpServer{captureFile, httpRequest, capturedHTTP}.running},
		}},
	}
}

// recorder returns a recorder with a directory that end removes.
func recorder(o capture.Options, file bool) (r *capture.Recorder, end func(), err error) {
	dir, err := os.MkdirTemp("", "farcall-bench-*")
	if err != nil {
		return nil, nil, err
	}
	if o.Buffer = queued; file {
		o.File = filepath.Join(dir, "calls.jsonl")
	} else {
		o.Dir = dir
	}
	if r, err = capture.New(&o); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return r, func() { _, _ = r.Close(), os.RemoveAll(dir) }, nil // it was measured
}

// recording is a recorder at work. Its p50 is the time of a frame for the goroutine that reads or
// writes it; that of an operation has all that the recorder does for a burst.
func recording(o capture.Options, file bool) func() (*running, error) {
	return func() (*running, error) {
		r, end, err := recorder(o, file)
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
			stop:   end,
			p50: func() float64 {
				m := median(each)
				each = each[:0]
				return m
			},
		}, nil
	}
}

// capturedHTTP is a server of echo that records its frames.
func capturedHTTP() (http.Handler, func(), error) {
	r, end, err := recorder(capture.Options{Raw: true}, true)
	if err != nil {
		return nil, nil, err
	}
	rpc := &farcall.Options{Observer: r.Observer()}
	return httprpc.NewHandler(farcallMethods(), &httprpc.Options{RPC: rpc}), end, nil
}

// captured is a capture.
var captured = sync.OnceValues(func() ([]byte, error) {
	var data bytes.Buffer
	r, err := capture.New(&capture.Options{Out: &data, Raw: true, Buffer: queued})
	if err != nil {
		return nil, err
	}
	for range capturedFrames {
		r.Frame(1, true, []byte(capturedFrame))
	}
	err = r.Close()
	return data.Bytes(), err
})

// filtering reads a capture with a filter that selects nothing.
func filtering(text string) (*running, error) {
	data, err := captured()
	if err != nil {
		return nil, err
	}
	f, err := capture.ParseFilter(text)
	if err != nil {
		return nil, err
	}
	return repeating(func() error {
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
	})()
}

func captureMarks() []mark {
	of := func(group, name string, figure func(*result) float64) func(results) float64 {
		return func(rs results) float64 {
			r := rs.find(group, name)
			if r == nil {
				return notWanted
			}
			return figure(r)
		}
	}
	return []mark{
		{
			captureBurst + ": a frame to the ring, for its reader or writer", 80, " ns",
			of(captureBurst, captureRing, func(r *result) float64 {
				return median(r.p50)
			}),
		},
		{
			captureBurst + ": allocations of a frame to the ring", 0, "",
			of(captureBurst, captureRing, func(r *result) float64 {
				return float64(int(median(r.allocs)/burst*10+0.5)) / 10
			}),
		},
		{
			captureBurst + ": a frame to a file, with all that is done for it", 1000, " ns",
			of(captureBurst, captureFile, func(r *result) float64 {
				return median(r.ns) / burst
			}),
		},
		{captureFilter + ": the slowest", -500, " MB/s", func(rs results) float64 {
			data, _ := captured() // it was read
			slowest := 0.0
			for _, text := range captureFilters {
				if r := rs.find(captureFilter, text); r != nil {
					slowest = max(slowest, median(r.ns))
				}
			}
			if slowest == 0 {
				return notWanted
			}
			return float64(len(data)) / slowest * 1000
		}},
		{
			captureLoad + ": calls per second with frames to a file, in times of off", -0.95, "",
			func(rs results) float64 {
				off, file := rs.find(captureLoad, captureOff), rs.find(captureLoad, captureFile)
				if off == nil || file == nil {
					return notWanted
				}
				return ratio(off, file)
			},
		},
	}
}
