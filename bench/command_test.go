package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBenchMarks measures farcall bench: its calls per second, and the error of its latency against
// a server that knows how long it took.
func TestBenchMarks(t *testing.T) {
	if os.Getenv("FARCALL_MARKS") == "" {
		t.Skip("FARCALL_MARKS=1 measures; it needs an idle machine")
	}
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
		out, err := exec.CommandContext(t.Context(), program,
			append([]string{"bench", "--json"}, args...)...).Output()
		var report struct{ Result any }
		report.Result = &f
		if err = errors.Join(err, json.Unmarshal(out, &report)); err != nil || f.Failed > 0 {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return f
	}
	server := exec.CommandContext(t.Context(), program, "serve", "--listen", "127.0.0.1:0",
		"--log", "off")
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
	at := strings.TrimPrefix(slow.URL, "http://")
	known := figures(at, "math/add", "2", "3", "-d", "3s", "--rate", "40").Latency.P50
	handler, bare := median(took), bareLatency(t, at)
	t.Logf("latency: %.5g ms, the server took %.5g ms: %.3g %% more, want < 1 %%", known, handler,
		(known/handler-1)*100)
	t.Logf("a client that only writes and reads sees %.5g ms: %.3g %% more than the server took", bare,
		(bare/handler-1)*100)
}

// bareLatency is what a client sees that does no more than to write the same request and to read.
func bareLatency(t *testing.T, address string) float64 {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const message = `{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}`
	request := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s",
		address, len(message), message)
	var each []float64
	tick, buf := time.NewTicker(time.Second/40), make([]byte, 4<<10)
	defer tick.Stop()
	for range 120 {
		<-tick.C
		began := time.Now()
		if _, err = conn.Write(request); err == nil {
			_, err = conn.Read(buf)
		}
		if err != nil {
			t.Fatal(err)
		}
		each = append(each, float64(time.Since(began).Nanoseconds())/1e6)
	}
	return median(each)
}
